package clock

// A Domain identifies the processes that share one pair of clocks: one boot of one machine in one time
// namespace. Instants may be compared only if their domains are equal and not [UnknownDomain].
type Domain string

// UnknownDomain is the domain of a process that cannot determine its own. It is never the same as another
// domain, not even as itself.
const UnknownDomain Domain = ""

// Same reports whether instants of the two domains may be compared.
func (d Domain) Same(other Domain) bool { return d != UnknownDomain && d == other }
