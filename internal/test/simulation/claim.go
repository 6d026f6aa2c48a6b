package simulation

import "github.com/leasekeeper/leasekeeper/internal/ownership"

// checkSoleHolder checks, when a client learns that it holds a name, that no other client relies on holding it.
func (f *facts) checkSoleHolder(l *lease) {
	for _, other := range f.byHolder() {
		if other != l && other.name == l.name && other.holds && other.reliedOn(f.w) && l.reliedOn(f.w) {
			f.w.fail("a name is held once", "%s learns that it holds %s with lease %d and token %d, and %s relies on lease %d with token %d until %v on its clocks",
				l.holder.name, l.name, l.id, l.token, other.holder.name, other.id, other.token, other.deadline)
		}
	}
}

// byHolder returns all leases that clients know of, client by client.
func (f *facts) byHolder() []*lease {
	var all []*lease
	for _, c := range f.w.clients {
		all = append(all, c.leases...)
	}
	return all
}

// checkRefused checks that the tenure in a refusal is no older than the newest one that a client knew at the request.
func (f *facts) checkRefused(k *call, claimed ownership.Claimed) {
	f.w.mark("a claim was refused")
	name := k.leases[0].name
	learned := f.learnedTenures(name)
	if len(learned) > 0 && k.tenures > 0 && claimed.Current.Held && claimed.Current.Token < learned[k.tenures-1] {
		f.w.fail("a claim is refused only because of the present holder (I3)",
			"%s refuses %s the name %s because of token %d, but before the request a client knew of token %d",
			k.member.name, k.client.name, name, claimed.Current.Token, learned[k.tenures-1])
	}
}

// learnedTenures returns the tokens of a name's tenures that a client knows of, in order.
func (f *facts) learnedTenures(name string) []int64 { return f.learnedTokens[name] }

func (f *facts) learnedTenure(name string, token int64) {
	all := f.learnedTokens[name]
	if len(all) == 0 || token > all[len(all)-1] {
		f.learnedTokens[name] = append(all, token)
	}
}

// checkFailedPut checks that a put with a definite error has changed nothing.
func (f *facts) checkFailedPut(k *call, err error) {
	if revision, there := f.values[k.value]; there {
		f.w.fail("a request that failed has changed nothing", "%s answers the put of %q with %v, and it is at revision %d",
			k.member.name, k.value, err, revision)
	}
	f.refused[k.value] = true
}
