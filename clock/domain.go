package clock

// A Domain names the set of processes that share one pair of clocks: one boot of one machine in one time
// namespace. Instants may be compared exactly when their domains are equal and not [UnknownDomain].
type Domain string

// UnknownDomain is the domain of a process that cannot tell. It equals no domain, not even itself.
const UnknownDomain Domain = ""

// Same reports whether instants of the two domains may be compared.
func (d Domain) Same(other Domain) bool { return d != UnknownDomain && d == other }
