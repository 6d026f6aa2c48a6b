package ownership

import (
	"math"
	"slices"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// A claim that goes before others must have a lower token than they. Tokens only grow, so the others get new ones: the
// caller deletes their keys and creates them again, at later revisions. A waiter of etcd's own recipe knows its key, so it
// stays where it is, and what waits before it too.

// maxRequeued bounds the claims that one command queues again. It is part of the replicated state.
const maxRequeued = 256

// preferred is the priority of a claim that was preferred, above every other one.
const preferred = math.MaxInt32

// Overtaken returns the leases of the claims that a new claim overtakes, in their order. If there are some, the caller
// deletes their keys before it creates the key of the new claim. See [Registry.Requeue].
func (g *Registry) Overtaken(c Claim) (leases []lessor.ID) {
	q := g.queues[c.Name]
	if q == nil {
		return nil
	}
	first := len(q.waiters)
	for first > 1 && len(q.waiters)-first < maxRequeued {
		if w := q.waiters[first-1]; !w.claimed || w.priority >= c.Priority {
			break
		}
		first--
	}
	return leasesOf(q.waiters[first:])
}

// Prefer decides about a preference. The caller requeues the returned claims; see [Registry.Requeue].
func (g *Registry) Prefer(env *Env, op Prefer) (requeue []lessor.ID, err error) {
	w := g.claims[op.Lease]
	if w == nil || w.queue.name != op.Name {
		return nil, ErrNotWaiting
	}
	place := slices.Index(w.queue.waiters, w)
	if place <= 0 {
		return nil, ErrNotWaiting
	}
	for i, other := range w.queue.waiters {
		switch {
		case i == 0 || other == w:
		case other.claimed && place > 1:
			requeue = append(requeue, other.lease) // those behind w too, so that all keep their order
		case i < place:
			return nil, ErrNotOvertaken
		}
	}
	if len(requeue) > maxRequeued {
		return nil, ErrLongQueue
	}
	w.priority = preferred
	env.Effects.Leases = append(env.Effects.Leases, w.lease)
	return requeue, nil
}

// Requeue says that the caller deletes the keys of waiting claims, all at one revision, and then creates them again with
// the same values, each at a revision of its own and in the same order. It reports these changes of keys like others.
func (g *Registry) Requeue(env *Env, leases []lessor.ID) {
	for _, id := range leases {
		w := g.claims[id]
		w.requeued, w.overtaken = true, true
		env.Effects.Leases = append(env.Effects.Leases, id)
	}
}
