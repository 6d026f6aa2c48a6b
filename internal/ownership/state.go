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
	s.Held, s.Lease, s.Token, s.Waiting, s.Finished = true, q.owner.lease, q.owner.created, len(q.waiters)-1, q.finished
	lease, _ := view.Leases.Lookup(s.Lease)
	s.TTL = lease.TTL
	if lease.RenewalRefused && s.Revoked == nil && !s.Finished { // revoked as the owner of another name
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

// Place returns a lease's position in the queue of a name. It returns [ErrLost] if the lease is not in the queue or
// never owns the name.
func (g *Registry) Place(name string, lease lessor.ID) (Place, error) {
	q := g.queues[name]
	w := g.find(q, lease)
	if w == nil || slices.Contains(q.barred, w) {
		return Place{}, ErrLost
	}
	return Place{Token: w.created, Before: q.before(w), Creator: w.creator}, nil
}

// StateAndQueue returns what [Registry.State] returns, with the first waiters: at most a number of them, without their cards.
func (g *Registry) StateAndQueue(view View, name string, most int) State {
	s := g.State(view, name)
	s.Queue = g.queues[name].firstWaiters(most)
	return s
}

// firstWaiters returns the first waiters of a queue, the next owner first. The queue may be nil.
func (q *queue) firstWaiters(most int) []Queued {
	if q == nil || q.owner == nil || most <= 0 {
		return nil
	}
	waiting := q.waiters[1:]
	found := make([]Queued, min(len(waiting), most))
	for i := range found {
		w := waiting[i]
		found[i] = Queued{Lease: w.lease, Token: w.created, Priority: w.priority, Claimed: w.claimed}
	}
	return found
}

// ClaimOf returns the name for which a claim made a lease; ok is false if no claim made it.
func (g *Registry) ClaimOf(lease lessor.ID) (name string, ok bool) {
	if w := g.claims[lease]; w != nil {
		return w.queue.name, true
	}
	return "", false
}

// CreatorOf returns the name for which a claim made a lease, and the user that claimed it; ok is false if no claim made it.
func (g *Registry) CreatorOf(lease lessor.ID) (name, creator string, ok bool) {
	if w := g.claims[lease]; w != nil {
		return w.queue.name, w.creator, true
	}
	return "", "", false
}

// RecentlyEnded reports whether the claim of a lease is known to have ended.
func (g *Registry) RecentlyEnded(lease lessor.ID) bool {
	_, _, ok := g.ended.find(lease)
	return ok
}

// An EndedError is [lessor.ErrNotFound], [lessor.ErrRenewalRefused] or [ErrLost] with the reason, for a lease that
// owned a name or waited for one.
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

// Explain adds the reason, if it is known, to the error of a renewal or of a lost position in a queue.
func (g *Registry) Explain(leases *lessor.Lessor, id lessor.ID, kind error) error {
	if errors.Is(kind, lessor.ErrRenewalRefused) && g.Finished(id) {
		return &EndedError{Kind: kind, Why: WhyReleased}
	}
	if errors.Is(kind, lessor.ErrRenewalRefused) {
		return &EndedError{kind, WhyRevoked, g.RevocationNote(leases, id)}
	}
	if why, note, ok := g.ended.find(id); ok {
		return &EndedError{kind, why, note}
	}
	return kind
}

// RevocationNote returns the note of a lease's revocation as the owner of a name.
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

// Names returns the known names, sorted.
func (g *Registry) Names() []string { return slices.Sorted(maps.Keys(g.queues)) }

// Claims returns the leases that claims made, sorted.
func (g *Registry) Claims() []lessor.ID { return slices.Sorted(maps.Keys(g.claims)) }

// FreeNames returns the remembered names without waiters, in the order in which they became free.
func (g *Registry) FreeNames() []string {
	var names []string
	for e := g.free.Front(); e != nil; e = e.Next() {
		names = append(names, e.Value.(*queue).name)
	}
	return names
}

// Waiters returns the leases in the queue of a name: the owner and the waiters in order, and the barred waiters.
// known is false if the name is not known.
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
