package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// NamesQuery is an [Inspection] of names. It is answered by their states, in the same order and without
// what the holders say of themselves, unless that is in memory.
type NamesQuery struct{ Names []string }

// PlaceQuery is an [Inspection] of one contender. It is answered by a [Place], or by [ErrLost] if it does not
// stand in line.
type PlaceQuery struct {
	Name  string
	Lease lessor.ID
}

// Place tells where a contender stands in line.
type Place struct {
	Token  int64
	Before int // 0: it holds the name
}

// NameState is what is known of a name.
type NameState struct {
	Name    string
	Held    bool
	Lease   lessor.ID // the holder's
	Token   int64     // the holder's, or that of the last one
	Holder  []byte    // what the holder says of itself, where that is asked for
	TTL     time.Duration
	Left    time.Duration // if the lease is not renewed
	Waiting int
	Pinned  *string // the reason
	Revoked *string // the reason, while the holder keeps the name because of what was promised to it
	// Revision is that of the newest change of who holds it, 0 if it is not known.
	Revision int64

	known bool // Holder is set, or there is none
}

// NameStates is the answer to a [NamesQuery]: how names are after the log entry of that index.
type NameStates struct {
	Names []NameState
	Index uint64
}

// Names returns how the names are that this member knows something of, in order, for looking at them between two steps.
func (r *Replica) Names() []NameState {
	return r.inspectNames(NamesQuery{slices.Sorted(maps.Keys(r.names.lines))}).Names
}

func (r *Replica) inspectNames(q NamesQuery) NameStates {
	all := make([]NameState, len(q.Names))
	for i, name := range q.Names {
		if l := r.names.lines[name]; l != nil {
			all[i] = r.nameState(l)
			r.addHolder(l, &all[i])
		} else {
			all[i] = NameState{Name: name}
		}
	}
	return NameStates{all, r.applied.index}
}

// addHolder adds what the holder says of itself, if that is in memory. If it is not, it is in its place on the disk.
func (r *Replica) addHolder(l *line, s *NameState) {
	current := l.current
	if key := nameKey(l.name); current == nil && r.names.drafts.of[string(key)] != nil {
		record := new(logpb.Name)
		if _, err := r.read(key, record); err == nil { // we have written it
			current = record.Current
		}
	}
	if current != nil && current.Token == s.Token {
		s.Holder, s.known = current.Holder, true
	}
}

func (r *Replica) place(q PlaceQuery) (Place, error) {
	l := r.names.lines[q.Name]
	c := r.names.find(l, q.Lease)
	if c == nil || slices.Contains(l.shunned, c) {
		return Place{}, ErrLost
	}
	return Place{Token: c.created, Before: l.before(c)}, nil
}

func (r *Replica) nameState(l *line) NameState {
	s := NameState{Name: l.name, Token: l.last, Revision: l.revision, Pinned: l.pinned, Revoked: l.revoked}
	if l.owner == nil {
		return s
	}
	s.Held, s.Lease, s.Token, s.Waiting = true, l.owner.lease, l.owner.created, len(l.queue)-1
	lease, _ := r.lessor.Lookup(s.Lease)
	s.TTL = lease.TTL
	if lease.Doomed && s.Revoked == nil { // as the holder of another name
		reason := r.revocationOf(s.Lease)
		s.Revoked = &reason
	}
	if left, err := r.lessor.Remaining(s.Lease, r.now); err == nil {
		s.Left = left
	}
	return s
}

func (r *Replica) nameStateWithHolder(l *line) (NameState, error) {
	s := r.nameState(l)
	record := new(logpb.Name)
	_, err := r.read(nameKey(l.name), record)
	s.Holder = record.GetCurrent().GetHolder()
	return s, err
}

// An EndedError is [lessor.ErrNotFound], [lessor.ErrDoomed] or [ErrLost] of a lease that held a name or stood in
// line for one, with the reason.
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

// whyNot adds to the refusal of a renewal, or the loss of a place in line, what is known of the reason.
func (r *Replica) whyNot(id lessor.ID, kind error) error {
	if errors.Is(kind, lessor.ErrDoomed) {
		return &EndedError{kind, WhyRevoked, r.revocationOf(id)}
	}
	if why, note, ok := r.names.farewells.to(id); ok {
		return &EndedError{kind, why, note}
	}
	return kind
}

// revocationOf returns the reason for which the holder of a name was revoked.
func (r *Replica) revocationOf(id lessor.ID) string {
	if c := r.names.claims[id]; c != nil {
		if c.line.revoked != nil {
			return *c.line.revoked
		}
		return ""
	}
	for l := range r.heldBy(id) {
		if l.revoked != nil {
			return *l.revoked
		}
	}
	return ""
}

// wallNow is the time of day, as far as it is known.
func (r *Replica) wallNow() int64 {
	if r.wall == 0 {
		return 0
	}
	return r.wall + r.now.Elapsed(r.walled).Milliseconds()
}
