package lessor

import (
	"fmt"
	"iter"
	"slices"
)

// Record returns the durable form of the lease with this id. It reports false if there is no such lease.
func (l *Lessor) Record(id ID) (Record, bool) {
	le, ok := l.leases[id]
	if !ok {
		return Record{}, false
	}
	return Record{
		ID:             le.id,
		Generation:     le.generation,
		TTL:            le.ttl,
		Cleared:        le.cleared,
		Checkpointed:   le.has(checkpointed),
		Remaining:      le.remaining,
		Pinned:         le.has(pinned),
		RenewalRefused: le.has(renewalRefused),
		Applied:        le.applied,
	}, true
}

// Leaderships returns the durable form of the leaderships that a lease may still need. The current leadership
// is the last one.
func (l *Lessor) Leaderships() []Leadership { return slices.Clone(l.leaderships.table) }

// Recover replaces the whole state by results of Record and Leaderships. The lessor is then not primary, and
// the caller attaches the items afterwards. Records come in any order, leaderships in ascending order of
// Start. Recover panics on a record that no lessor can have returned.
//
// If the instants were read in another clock domain, the caller first replaces each of them by the present
// instant. Then the lessor counts all times again from now, so no lease ends early.
func (l *Lessor) Recover(records iter.Seq[Record], table []Leadership) {
	l.reset()
	for _, leadership := range table {
		l.leaderships.begin(leadership.Start, leadership.Applied)
	}
	for r := range records {
		if r.ID == NoLease || r.TTL <= 0 || r.TTL > MaxTTL || r.Cleared < r.Generation || l.leases[r.ID] != nil {
			panic(fmt.Sprintf("lessor: record %+v is impossible: recover only records that Record returned", r))
		}
		le := &leaseState{id: r.ID, generation: r.Generation, ttl: r.TTL, cleared: r.Cleared}
		if r.Checkpointed {
			le.set(checkpointed)
			le.remaining, le.applied = r.Remaining, r.Applied
		}
		if r.Pinned {
			le.set(pinned)
		}
		if r.RenewalRefused {
			le.set(renewalRefused)
		}
		l.leases[r.ID] = le
		l.latest = max(l.latest, r.Cleared)
	}
}

// reset makes the lessor empty, as New does.
func (l *Lessor) reset() {
	l.leases, l.items, l.leaderships = map[ID]*leaseState{}, map[string]*node{}, leaderships{}
	l.latest = 0
	l.primary, l.term, l.extend, l.clears = false, 0, 0, nil
	for p := onRaw; p <= expiring; p++ {
		l.queues[p] = queue{place: p}
	}
}
