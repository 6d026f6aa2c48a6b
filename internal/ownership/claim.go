package ownership

import (
	"iter"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// Claim decides about a claim. If create is set, the caller grants the lease, puts the key [Key] with the holder's
// card, attached to the lease, and reports that change of a key. It then calls Created for the answer.
func (g *Registry) Claim(view View, c Claim) (answer Claimed, create bool, err error) {
	if c.Name == "" || c.Lease <= 0 || c.TTL <= 0 || c.TTL > lessor.MaxTTL {
		return Claimed{}, false, ErrInvalidClaim
	}
	if g.claims[c.Lease] == nil {
		if _, exists := view.Leases.Lookup(c.Lease); exists {
			return Claimed{}, false, ErrLeaseTaken
		}
	}
	answer, done, err := g.ClaimUnchanged(view, c)
	return answer, !done && err == nil, err
}

// ClaimUnchanged answers a valid claim that changes nothing: a repeated one, and one that does not wait for a held
// name. For other claims done is false.
func (g *Registry) ClaimUnchanged(view View, c Claim) (answer Claimed, done bool, err error) {
	if w := g.claims[c.Lease]; w != nil {
		answer, err = g.repeated(view, w, c)
		return answer, true, err
	}
	if q := g.queues[c.Name]; q != nil && q.owner != nil && !c.Wait {
		current, err := g.stateWithCard(view, q)
		if err != nil {
			return Claimed{}, false, err
		}
		return Claimed{Current: &current}, true, nil
	}
	return Claimed{}, false, nil
}

// Created answers a claim whose lease and key the caller has just created.
func (g *Registry) Created(view View, c Claim) (Claimed, error) {
	w := g.find(g.queues[c.Name], c.Lease)
	w.claimed, w.priority, w.creator = true, c.Priority, c.Creator
	g.claims[c.Lease] = w
	return g.answerClaim(view, w, c.Holder)
}

// answerClaim answers the claim that made a waiter. holder is the value of the waiter's key.
func (g *Registry) answerClaim(view View, w *waiter, holder []byte) (Claimed, error) {
	lease, _ := view.Leases.Lookup(w.lease)
	answer := Claimed{Lease: w.lease, TTL: lease.TTL, Token: w.created, Before: w.queue.before(w), Holder: holder, Overtaken: w.overtaken}
	if answer.Before == 0 {
		return answer, nil
	}
	current, err := g.stateWithCard(view, w.queue)
	answer.Current = &current
	return answer, err
}

// repeated answers a claim whose lease already has a waiter.
func (g *Registry) repeated(view View, w *waiter, c Claim) (Claimed, error) {
	if lease, _ := view.Leases.Lookup(w.lease); w.queue.name != c.Name || lease.TTL != c.TTL {
		return Claimed{}, ErrLeaseTaken
	}
	card, err := view.Stored.Card(c.Name, w.lease)
	if err != nil {
		return Claimed{}, err
	}
	return g.answerClaim(view, w, card)
}

// Release decides about a release. If end is set, the caller ends the lease because it was released.
func (g *Registry) Release(leases *lessor.Lessor, op Release) (end bool, err error) {
	w := g.claims[op.Lease]
	if w == nil {
		if _, exists := leases.Lookup(op.Lease); exists {
			return false, ErrLeaseTaken
		}
		g.ended.add(op.Lease, WhyReleased, "") // the claim may still arrive
		return false, nil
	}
	if w.queue.name != op.Name {
		return false, ErrLeaseTaken
	}
	return !w.finished(), nil
}

// Revoke revokes a name's owner. If end is not 0, the caller ends that lease because it was revoked.
func (g *Registry) Revoke(env *Env, op Revoke) (answer Revoked, end lessor.ID, err error) {
	q := g.queues[op.Name]
	switch {
	case q == nil || q.owner == nil:
		return Revoked{}, lessor.NoLease, ErrNotHeld
	case op.Token != 0 && op.Token != q.owner.created:
		return Revoked{}, lessor.NoLease, ErrOtherToken
	case q.pinned != nil || g.ownsPinned(env.Leases, q.owner.lease):
		return Revoked{}, lessor.NoLease, ErrPinned
	}
	id := q.owner.lease
	answer.Token = q.owner.created
	if op.Now {
		return answer, id, nil
	}
	note := op.Note
	q.revoked = &note
	if err := env.Leases.RefuseRenewal(id, env.Now); err != nil {
		return Revoked{}, lessor.NoLease, err
	}
	env.Effects.leaseChanged(id)
	if left, err := env.Leases.Remaining(id, env.Now); err == nil {
		answer.Left = left
	}
	return answer, lessor.NoLease, g.statusChanged(env, q)
}

// statusChanged records and publishes a name that keeps its owner.
func (g *Registry) statusChanged(env *Env, q *queue) error {
	current, err := g.ownersTenure(env.View, q)
	if err != nil {
		return err
	}
	g.storeRecord(env, q, current)
	g.publish(env, q, current, Change{Kind: StatusChanged})
	return nil
}

// Transfer decides about a transfer. Without an error the caller ends the lease because the name was transferred; next
// is the token of the next owner.
func (g *Registry) Transfer(op Transfer) (next int64, err error) {
	w := g.claims[op.Lease]
	switch {
	case w == nil || w.queue.name != op.Name || w.queue.owner != w || w.finished():
		return 0, ErrLost
	case w.queue.pinned != nil:
		return 0, ErrPinned
	case len(w.queue.waiters) < 2:
		return 0, ErrNobodyWaits
	}
	return w.queue.waiters[1].created, nil
}

// Pin pins a name to its owner.
func (g *Registry) Pin(env *Env, op Pin) error {
	q := g.queues[op.Name]
	if q == nil || q.owner == nil {
		return ErrNotHeld
	}
	if err := env.Leases.Pin(q.owner.lease); err != nil {
		return ErrNotHeld // the owner was revoked, and a pin does not change that
	}
	q.pinned = &op.Reason
	env.Effects.Leases = append(env.Effects.Leases, q.owner.lease)
	return g.statusChanged(env, q)
}

// Unpin removes the pin of a name, if it has one.
func (g *Registry) Unpin(env *Env, op Unpin) error {
	q := g.queues[op.Name]
	if q == nil || q.pinned == nil {
		return nil
	}
	q.pinned = nil
	g.unpinLease(env, q.owner.lease)
	return g.statusChanged(env, q)
}

// ownsPinned reports whether a lease owns a pinned name.
func (g *Registry) ownsPinned(leases *lessor.Lessor, id lessor.ID) bool {
	if lease, exists := leases.Lookup(id); !exists || !lease.Pinned {
		return false
	}
	for q := range g.ownedBy(leases, id) {
		if q.pinned != nil {
			return true
		}
	}
	return false
}

// ownedBy yields the queues of the names that a lease owns. A client of etcd's API can own many with one lease.
func (g *Registry) ownedBy(leases *lessor.Lessor, id lessor.ID) iter.Seq[*queue] {
	return func(yield func(*queue) bool) {
		for _, item := range leases.Items(id) {
			name, of, ok := parseKey([]byte(item.Key))
			if !ok || of != id {
				continue
			}
			if q := g.queues[string(name)]; q != nil && q.owner != nil && q.owner.lease == id && !yield(q) {
				return
			}
		}
	}
}
