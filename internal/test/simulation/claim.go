package simulation

import "github.com/leasekeeper/leasekeeper/internal/ownership"

// checkAlone checks, when a client learns that it holds a name, that no other relies on holding it.
func (f *facts) checkAlone(l *lease) {
	for _, other := range f.byHolder() {
		if other != l && other.name == l.name && other.holds && other.relied(f.w) && l.relied(f.w) {
			f.w.fail("a name is held once", "%s is told that it holds %s with lease %d and token %d, and %s relies on lease %d with token %d until %v there",
				l.holder.name, l.name, l.id, l.token, other.holder.name, other.id, other.token, other.deadline)
		}
	}
}

// byHolder returns the leases that clients know of.
func (f *facts) byHolder() []*lease {
	var all []*lease
	for _, c := range f.w.clients {
		all = append(all, c.leases...)
	}
	return all
}

// checkRefused checks that a claim was refused because of a tenure that may still have been the newest.
func (f *facts) checkRefused(k *call, claimed ownership.Claimed) {
	f.w.mark("a claim was refused")
	name := k.leases[0].name
	told := f.toldTenures(name)
	if len(told) > 0 && k.tenures > 0 && claimed.Current.Held && claimed.Current.Token < told[k.tenures-1] {
		f.w.fail("a claim is refused only for whom holds the name (I3)",
			"%s refuses %s the name %s because of token %d, but before it was asked somebody was told of token %d",
			k.member.name, k.client.name, name, claimed.Current.Token, told[k.tenures-1])
	}
}

// toldTenures are the tokens of a name that somebody was told to hold it with, in order.
func (f *facts) toldTenures(name string) []int64 { return f.toldTokens[name] }

func (f *facts) toldTenure(name string, token int64) {
	all := f.toldTokens[name]
	if len(all) == 0 || token > all[len(all)-1] {
		f.toldTokens[name] = append(all, token)
	}
}

// checkFailedPut checks that a put which is said to have failed has changed nothing.
func (f *facts) checkFailedPut(k *call, err error) {
	if revision, there := f.values[k.value]; there {
		f.w.fail("what is said to have failed has changed nothing", "%s says of the put of %q that %v, and it is at revision %d",
			k.member.name, k.value, err, revision)
	}
	f.refused[k.value] = true
}
