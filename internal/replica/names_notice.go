package replica

import (
	"fmt"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// What is remembered of the past. These bounds are part of the state: every member has the same.
const (
	// MaxPast is how many ended tenancies of one name are remembered.
	MaxPast = 16
	// maxFreeNames is of how many names that nobody holds something is remembered.
	maxFreeNames = 1 << 14
	// maxHolder is how much of what a holder says of itself is remembered: all, or nothing if it is longer.
	maxHolder = 32 << 10
)

// Why says why a tenancy ended. The numbers are on the disk.
type Why uint8

// Why a tenancy can end.
const (
	_ Why = iota
	WhyReleased
	WhyExpired
	WhyRevoked
	WhyTransferred
	WhyDeleted // the key that stood for it was deleted or overwritten
)

// A NameChange is what happened to a name, or to one who stands in line for it.
type NameChange struct {
	Kind  NameChangeKind
	Index uint64    // of the log entry that changed it
	State NameState // after it
	Lease lessor.ID // whose tenancy or place in line ended, 0 if none did
	Why   Why       // that ended
	Note  string
}

// NameChangeKind says what happened.
type NameChangeKind uint8

// What can happen.
const (
	_             NameChangeKind = iota
	NameAcquired                 // it has a new holder
	NameVacated                  // it has none any more
	NameAnnounced                // its holder says something else of itself
	NameChanged                  // it was pinned, unpinned, or its holder revoked
	LineLeft                     // one who waited does so no more; State only names the name
)

// notice has the names follow all changes of keys since it was called last. What ended did so for the given
// reason.
func (r *Replica) notice(why Why, note string) error {
	a := r.applying
	for changes := a.writer.Changes(); a.noticed < len(changes); changes = a.writer.Changes() {
		change := changes[a.noticed]
		a.noticed++
		n := &r.names
		n.follow(change)
		for i, l := range n.touched {
			l.touched = false
			if err := r.hand(l, change.Revision, uint32(i), why, note); err != nil {
				return err
			}
		}
		for _, c := range n.left {
			r.tell(NameChange{Kind: LineLeft, State: NameState{Name: c.line.name}, Lease: c.lease, Why: why, Note: note})
		}
		orphans := n.orphans
		n.touched, n.fresh, n.left, n.orphans = n.touched[:0], n.fresh[:0], n.left[:0], n.orphans[:0]
		for _, id := range orphans {
			r.orphaned(id, why, note)
		}
	}
	return nil
}

// orphaned ends a claim whose key is gone, unless it is its end that took the key along.
func (r *Replica) orphaned(id lessor.ID, why Why, note string) {
	if _, err := r.lessor.Revoke(id); err == nil {
		r.counts.Revoked++
		r.strike(leaseKey(id))
		r.applying.decided = append(r.applying.decided, id)
	}
	r.names.farewells.add(id, why, note)
}

// hand writes down who holds a name now, if that has changed.
func (r *Replica) hand(l *line, revision int64, order uint32, why Why, note string) error {
	head := l.head()
	if head == l.owner {
		return r.announced(l, revision)
	}
	current, err := r.tenancyOf(l)
	if err != nil {
		return err
	}
	change := NameChange{Kind: NameVacated}
	if old := l.owner; old != nil {
		change.Lease, change.Why, change.Note = old.lease, why, note
		r.endTenancy(l, current, why, note)
	}
	l.crown()
	l.revision, l.current, current = revision, nil, nil
	if head != nil {
		holder, err := r.holderOf(head)
		if err != nil {
			return err
		}
		current = &logpb.Tenancy{Token: head.created, Lease: int64(head.lease), Holder: holder, FromMs: r.applying.wall}
		r.names.remember(l, current)
		r.names.unfree(l)
		l.freed, l.freedOrder = 0, 0
		change.Kind = NameAcquired
	} else {
		l.freed, l.freedOrder = revision, order
	}
	r.writeName(l, current)
	if head == nil && len(l.shunned) == 0 {
		r.names.setFree(l)
		r.forget()
	}
	change.State = r.nameState(l)
	change.State.Holder = current.GetHolder()
	r.tell(change)
	return nil
}

// endTenancy moves what is known of the holder to the past.
func (r *Replica) endTenancy(l *line, tenancy *logpb.Tenancy, why Why, note string) {
	if tenancy == nil {
		tenancy = &logpb.Tenancy{Token: l.owner.created, Lease: int64(l.owner.lease)}
	}
	tenancy.ToMs, tenancy.Why, tenancy.Note = r.applying.wall, uint32(why), []byte(note)
	r.draft(pastKey(l.name, l.ended), tenancy, l.ended >= MaxPast)
	l.ended++
	l.last = l.owner.created
	pinned := l.pinned != nil
	l.pinned, l.revoked = nil, nil
	if pinned {
		r.unpinLease(l.owner.lease)
	}
}

// announced writes down what the holder of a name says of itself, if it has said something.
func (r *Replica) announced(l *line, revision int64) error {
	if l.owner == nil {
		if len(l.queue) == 0 && len(l.shunned) == 0 && l.place == nil {
			r.dropLine(l) // nobody owned it between coming and going
		}
		return nil
	}
	for _, f := range r.names.fresh {
		if f.contender != l.owner {
			continue
		}
		current, err := r.tenancyOf(l)
		if err != nil {
			return err
		}
		if current == nil {
			current = &logpb.Tenancy{Token: l.owner.created, Lease: int64(l.owner.lease)}
		}
		current.Holder = short(f.value)
		l.revision = revision
		r.writeName(l, current)
		change := NameChange{Kind: NameAnnounced, State: r.nameState(l)}
		change.State.Holder = current.Holder
		r.tell(change)
	}
	return nil
}

// dropLine forgets a line that nobody stands in, or puts it back among those that are remembered.
func (r *Replica) dropLine(l *line) {
	if l.ended > 0 {
		r.names.setFree(l)
		r.forget()
		return
	}
	delete(r.names.lines, l.name)
}

// holderOf returns what a contender says of itself.
func (r *Replica) holderOf(c *contender) ([]byte, error) {
	for _, f := range r.names.fresh {
		if f.contender == c {
			return short(f.value), nil
		}
	}
	kv, err := r.applying.writer.Get(OwnershipKey(c.line.name, c.lease))
	if err != nil {
		return nil, err
	}
	if kv == nil {
		return nil, fmt.Errorf("%w: lease %x stands in line for %q without its key", keyspace.ErrMisuse, uint64(c.lease), c.line.name)
	}
	return short(kv.Value), nil
}

func short(value []byte) []byte {
	if len(value) > maxHolder {
		return nil
	}
	return value
}

// tenancyOf returns what is remembered of the owner of a line, nil if it has none.
func (r *Replica) tenancyOf(l *line) (*logpb.Tenancy, error) {
	if l.owner == nil || l.current != nil {
		return l.current, nil
	}
	record := new(logpb.Name)
	_, err := r.read(nameKey(l.name), record)
	return record.Current, err
}

// writeName writes down what is remembered of a name.
func (r *Replica) writeName(l *line, current *logpb.Tenancy) {
	m := r.names.record
	m.Name = append(m.Name[:0], l.name...)
	m.Ended, m.Current, m.Last = l.ended, current, l.last
	m.Pinned, m.Revoked = optional(l.pinned), optional(l.revoked)
	m.Freed, m.FreedOrder, m.Revision = l.freed, l.freedOrder, l.revision
	r.draft(nameKey(l.name), m, true)
}

func optional(s *string) []byte {
	if s == nil {
		return nil
	}
	return append([]byte{}, *s...)
}

// forget removes what is known of the names that have been free longest, if they are too many.
func (r *Replica) forget() {
	for r.names.free.Len() > maxFreeNames {
		l := r.names.free.Front().Value.(*line)
		r.names.unfree(l)
		delete(r.names.lines, l.name)
		if l.last > r.names.forgotten {
			r.names.forgotten = l.last
			put(r.applying.writer.Batch(), keyForgotten, &logpb.Forgotten{Last: l.last})
		}
		r.strike(nameKey(l.name))
		for i := range min(l.ended, MaxPast) {
			r.strike(pastKey(l.name, i))
		}
	}
}

// tell has a change of a name told, if there may be somebody to tell.
func (r *Replica) tell(change NameChange) {
	if r.serving {
		change.Index = r.applied.index + 1
		r.applying.names = append(r.applying.names, change)
	}
}
