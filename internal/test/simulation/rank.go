package simulation

import (
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// In worlds with ranks, claims have priorities, and clients prefer waiting claims. Both have dice of their own.

// ranksOfClaims is the number of priorities. It is small, so that claims of one priority meet.
const ranksOfClaims = 3

// drawRank draws the priority of a new claim.
func (w *world) drawRank() int32 {
	if !chance(w.dice.ranks, w.ranks) {
		return 0
	}
	return w.dice.ranks.Int32N(ranksOfClaims)
}

// prefer requests that one of the client's waiting claims goes before all others.
func (c *client) prefer() {
	for _, l := range c.leases {
		if l.name != "" && l.granted && !l.holds && !l.gone && !l.ending {
			l.preferring = true
			c.ask(c.anyMember(0.95), &call{kind: preferring, leases: []*lease{l}, event: replica.Request{Command: ownership.Prefer{Name: l.name, Lease: l.id}}})
			return
		}
	}
}

// checkOrder checks, when the first member publishes that a lease has acquired a name, that it overtook no claim that goes
// before it: neither one with a higher priority nor one whose preference was acknowledged.
func (f *facts) checkOrder(m *member, c ownership.Change) {
	got := f.byID[int64(c.State.Lease)]
	if got == nil || got.preferring {
		return // an unanswered preference may have been carried out
	}
	for _, l := range f.leases {
		if l == got || l.name != got.name || l.since == 0 || l.since >= c.Index || l.rank <= got.rank && !l.preferred {
			continue
		}
		if found, there := m.replica.Lessor().Lookup(l.id); !there || found.Generation != l.generation {
			continue // it may have ended before
		}
		f.w.fail("a name goes to the claim that is first in the queue", "%s hands %s to lease %d of priority %d at index %d, and lease %d of priority %d, preferred %v, has waited since index %d",
			m.name, got.name, got.id, got.rank, c.Index, l.id, l.rank, l.preferred, l.since)
	}
	if got.rank > 0 {
		f.w.mark("a claim with a priority acquired a name")
	}
}
