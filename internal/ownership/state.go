package ownership

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// State returns the state of a name. Holder is set if the owner's card is in memory.
func (g *Registry) State(view View, name string) State {
	q := g.queues[name]
	if q == nil {
		return State{Name: name}
	}
	s := g.stateWithoutCard(view, q)
	if q.current != nil && q.current.Token == s.Token {
		s.Holder, s.HolderKnown = q.current.Holder, true
	}
	return s
}

// stateWithoutCard returns the state of a queue's name, without the owner's card.
func (g *Registry) stateWithoutCard(view View, q *queue) State {
	s := State{Name: q.name, Token: q.last, Revision: q.revision, Pinned: q.pinned, Revoked: q.revoked}
	if q.owner == nil {
		return s
	}
	s.Held, s.Lease, s.Token, s.Waiting = true, q.owner.lease, q.owner.created, len(q.waiters)-1
	lease, _ := view.Leases.Lookup(s.Lease)
	s.TTL = lease.TTL
	if lease.RenewalRefused && s.Revoked == nil { // as the owner of another name
		note := g.RevocationNote(view.Leases, s.Lease)
		s.Revoked = &note
	}
	if left, err := view.Leases.Remaining(s.Lease, view.Now); err == nil {
		s.Left = left
	}
	return s
}

func (g *Registry) stateWithCard(view View, q *queue) (State, error) {
	s := g.stateWithoutCard(view, q)
	tenure, err := g.ownersTenure(view, q)
	if tenure != nil {
		s.Holder = tenure.Holder
	}
	return s, err
}

// Place returns a lease's place in the queue of a name, or [ErrLost] if it is not there or never owns the name.
func (g *Registry) Place(name string, lease lessor.ID) (Place, error) {
	q := g.queues[name]
	w := g.find(q, lease)
	if w == nil || slices.Contains(q.barred, w) {
		return Place{}, ErrLost
	}
	return Place{Token: w.created, Before: q.before(w)}, nil
}

// ClaimOf returns the name that the claim of a lease is for, if a claim made the lease.
func (g *Registry) ClaimOf(lease lessor.ID) (name string, ok bool) {
	if w := g.claims[lease]; w != nil {
		return w.queue.name, true
	}
	return "", false
}

// RecentlyEnded reports whether the claim of a lease is known to have ended.
func (g *Registry) RecentlyEnded(lease lessor.ID) bool {
	_, _, ok := g.ended.find(lease)
	return ok
}

// An EndedError is [lessor.ErrNotFound], [lessor.ErrRenewalRefused] or [ErrLost] of a lease that owned a name or waited for
// one, with the reason.
type EndedError struct {
	Kind error
	Why  Why
	Note string
}

func (e *EndedError) Error() string {
	if e.Note == "" {
		return e.Kind.Error()
	}
	return fmt.Sprintf("%v: %s", e.Kind, e.Note)
}

func (e *EndedError) Unwrap() error { return e.Kind }

// Explain adds the reason, if it is known, to the error of a renewal or to the loss of a place in a queue.
func (g *Registry) Explain(leases *lessor.Lessor, id lessor.ID, kind error) error {
	if errors.Is(kind, lessor.ErrRenewalRefused) {
		return &EndedError{kind, WhyRevoked, g.RevocationNote(leases, id)}
	}
	if why, note, ok := g.ended.find(id); ok {
		return &EndedError{kind, why, note}
	}
	return kind
}

// RevocationNote returns the note with which a lease was revoked as the owner of a name.
func (g *Registry) RevocationNote(leases *lessor.Lessor, id lessor.ID) string {
	if w := g.claims[id]; w != nil {
		if w.queue.revoked != nil {
			return *w.queue.revoked
		}
		return ""
	}
	for q := range g.ownedBy(leases, id) {
		if q.revoked != nil {
			return *q.revoked
		}
	}
	return ""
}

// Names returns the names that are known, sorted.
func (g *Registry) Names() []string { return slices.Sorted(maps.Keys(g.queues)) }

// Claims returns the leases that claims made, sorted.
func (g *Registry) Claims() []lessor.ID { return slices.Sorted(maps.Keys(g.claims)) }

// FreeNames returns the names without any waiter that are remembered, the longest free first.
func (g *Registry) FreeNames() []string {
	var names []string
	for e := g.free.Front(); e != nil; e = e.Next() {
		names = append(names, e.Value.(*queue).name)
	}
	return names
}

// Waiters returns the leases in the queue of a name: the owner and those that wait, in order, and those that never own
// the name. It is false if the name is not known.
func (g *Registry) Waiters(name string) (waiters, barred []lessor.ID, known bool) {
	q := g.queues[name]
	if q == nil {
		return nil, nil, false
	}
	return leasesOf(q.waiters), leasesOf(q.barred), true
}

func leasesOf(waiters []*waiter) []lessor.ID {
	var all []lessor.ID
	for _, w := range waiters {
		all = append(all, w.lease)
	}
	return all
}
