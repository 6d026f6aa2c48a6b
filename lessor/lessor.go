package lessor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Lessor owns leases. It is a plain value without locks: one goroutine applies the replicated log to it and
// calls Due. Every method that needs the time takes it as an argument.
type Lessor struct {
	config     Config
	deleter    RangeDeleter
	checkpoint Checkpointer

	leases      map[ID]*leaseState
	items       map[string]*node
	itemBuffer  []Item // reused memory for the items of an ending lease; len 0, cap ≤ maxItemBuffer
	leaderships leaderships
	latest      Position // the last grant or clear applied: cleared ≤ latest for every lease

	// The following fields have a meaning only while this lessor is primary.
	primary bool
	term    uint64
	extend  time.Duration       // the extension that Promote added to deadlines
	queues  [expiring + 1]queue // by place; on a primary every lease has one entry in one queue
	clears  []Ref               // leases whose clear is not yet handed out, oldest first
}

// leaseState is one lease as the lessor keeps it. A million leases must fit in about 200 MB, so keep this
// struct small.
type leaseState struct {
	id         ID
	generation Generation
	ttl        time.Duration

	// cleared and remaining are replicated: they are the same on every member.
	cleared   Position      // last clear, or the grant; generation ≤ cleared
	remaining time.Duration // of the checkpoint; 0 without one
	applied   clock.Instant // when this member applied the checkpoint, on its own clocks

	deadline clock.Instant // zero unless primary

	first *node // first of the list of its items; nil without items
	count int32 // number of items
	index int32 // in its queue
	place place // the queue that holds its entry
	flags flags
}

// flags are the yes-or-no facts about one lease.
type flags uint8

const (
	// checkpointed: remaining and applied are in force. Replicated.
	checkpointed flags = 1 << iota
	// inDoubt: a checkpoint or expiry was handed out since the lease was last cleared. It may be in the log,
	// or may still get there although it was reported as dropped. Renewals wait until a clear is applied
	// behind it.
	inDoubt
	// checkpointing: a checkpoint was handed out and is neither applied nor dropped.
	checkpointing
	// clearQueued: the lease is in Lessor.clears and waits for Due to hand out its clear.
	clearQueued
	// clearSent: a clear was handed out and is neither applied nor dropped.
	clearSent
	// extended: the deadline includes the extension of Promote. Checkpoints do not include it.
	extended
	// pinned and renewalRefused: see Pin, RefuseRenewal and Retain. Replicated.
	pinned
	renewalRefused
)

const (
	// clearing: a renewal waits for a clear.
	clearing = clearQueued | clearSent
	// primaryOnly: these flags are set only on a primary.
	primaryOnly = ^(checkpointed | pinned | renewalRefused)
)

func (l *leaseState) has(f flags) bool { return l.flags&f != 0 }
func (l *leaseState) set(f flags)      { l.flags |= f }
func (l *leaseState) unset(f flags)    { l.flags &^= f }
func (l *leaseState) identity() Ref    { return Ref{l.id, l.generation} }

// New returns an empty lessor that is not primary. It panics if the configuration is not valid.
func New(config Config) *Lessor {
	if err := config.Validate(); err != nil {
		panic(err)
	}
	l := &Lessor{config: config.withDefaults()}
	l.reset()
	return l
}

// SetRangeDeleter installs the function that deletes the items of ended leases. Without it the lessor only
// detaches the items.
func (l *Lessor) SetRangeDeleter(deleter RangeDeleter) { l.deleter = deleter }

// SetCheckpointer installs the function that proposes checkpoints, and thereby enables them. Without it the
// lessor proposes none. Then a lease is checkpointed only by a Checkpoint command of the caller, a renewal
// voids that checkpoint at once, and Promote gives all other leases their full TTL.
//
// Install it on all members or on none, before the first lease is granted or recovered. Only Due calls it, as
// its last act.
func (l *Lessor) SetCheckpointer(checkpoint Checkpointer) {
	if l.primary {
		panic("lessor: SetCheckpointer on a primary lessor")
	}
	l.checkpoint = checkpoint
}

// Len returns the number of leases.
func (l *Lessor) Len() int { return len(l.leases) }

// Lookup returns a copy of the lease with this id.
func (l *Lessor) Lookup(id ID) (Lease, bool) {
	le, ok := l.leases[id]
	if !ok {
		return Lease{}, false
	}
	return l.view(le), true
}

// Leases returns copies of all leases. On a primary the lease with the earliest deadline comes first. Leases
// with equal deadlines, and all leases of a lessor that is not primary, are in the order of their grants.
func (l *Lessor) Leases() []Lease {
	all := make([]Lease, 0, len(l.leases))
	for _, le := range l.leases { // order: sorted below
		all = append(all, l.view(le))
	}
	slices.SortFunc(all, func(a, b Lease) int {
		return End{a.Ref(), a.Deadline}.Compare(End{b.Ref(), b.Deadline})
	})
	return all
}

// An End is the deadline of one lease. The deadline is zero if the lessor is not primary.
type End struct {
	Ref
	Deadline clock.Instant
}

// Compare orders ends as [Lessor.Leases] orders leases.
func (e End) Compare(other End) int {
	return cmp.Or(
		cmp.Compare(e.Deadline.Raw, other.Deadline.Raw),
		cmp.Compare(e.Deadline.Boot, other.Deadline.Boot),
		cmp.Compare(e.Generation, other.Generation),
		cmp.Compare(e.ID, other.ID),
	)
}

// Ends returns the ends of all leases in no particular order. A caller with very many leases can sort them on
// another goroutine, while this lessor handles renewals.
func (l *Lessor) Ends() []End {
	all := make([]End, 0, len(l.leases))
	for _, le := range l.leases { // order: none is promised
		all = append(all, End{le.identity(), le.deadline})
	}
	return all
}

// view returns a copy of a lease for callers.
func (l *Lessor) view(le *leaseState) Lease {
	remaining, _, isCheckpointed := l.checkpointOf(le)
	return Lease{
		ID:             le.id,
		Generation:     le.generation,
		TTL:            le.ttl,
		Items:          int(le.count),
		Cleared:        le.cleared,
		Checkpointed:   isCheckpointed,
		Remaining:      remaining,
		Deadline:       le.deadline,
		Pinned:         le.has(pinned),
		RenewalRefused: le.has(renewalRefused),
		Clearing:       le.has(clearing),
		Ending:         le.place == expiring,
	}
}

// find returns the lease that ref identifies. It returns nil if that lease has ended, even if its id was
// granted again.
func (l *Lessor) find(ref Ref) *leaseState {
	if le := l.leases[ref.ID]; le != nil && le.generation == ref.Generation {
		return le
	}
	return nil
}

// checkpointOf returns the checkpoint that a successor uses: the remaining time, and when this member applied
// the checkpoint. ok is false if the lease is cleared. A lease is checkpointed by a Checkpoint command.
// Without such a command since the last clear, the first leadership after that clear checkpoints the lease
// with its full TTL.
func (l *Lessor) checkpointOf(le *leaseState) (remaining time.Duration, applied clock.Instant, ok bool) {
	switch leadership, led := l.leaderships.after(le.cleared); {
	case le.has(checkpointed):
		return le.remaining, le.applied, true
	case led && l.checkpoint != nil:
		return le.ttl, leadership.Applied, true
	}
	return le.ttl, clock.Instant{}, false
}

// Grant is a replicated command: it creates a lease that lasts ttl from now. With ErrExists it returns the
// existing lease, so the caller can recognise a repeated request.
//
// The id and the TTL were decided before the command was proposed. Grant adjusts neither.
func (l *Lessor) Grant(id ID, ttl time.Duration, at Position, now clock.Instant) (Lease, error) {
	switch le := l.leases[id]; {
	case id == NoLease:
		return Lease{}, ErrNotFound
	case ttl > MaxTTL:
		return Lease{}, ErrTTLTooLarge
	case ttl <= 0:
		return Lease{}, ErrInvalidTTL
	case le != nil:
		return l.view(le), ErrExists
	}
	le := &leaseState{id: id, generation: at, ttl: ttl, cleared: at}
	l.leases[id] = le
	l.latest = max(l.latest, at)
	if l.primary {
		le.deadline = now.Add(ttl)
		l.queues[onRaw].push(le, l.nextDecision(le).Raw)
	}
	return l.view(le), nil
}

// Revoke is a replicated command: it ends a lease, whatever its deadline, and deletes its items. It returns
// the lease as it was before.
func (l *Lessor) Revoke(id ID) (Lease, error) {
	le, ok := l.leases[id]
	if !ok {
		return Lease{}, ErrNotFound
	}
	was := l.view(le)
	l.deleteLease(le)
	return was, nil
}

// Expire is a replicated command: it ends a lease whose time is over. It reports false, and ends nothing, if
// one of these holds:
//
//   - The term of the log entry (term) is not the term in which the expiry was decided.
//   - The lease that the expiry names has ended.
//   - The lease was cleared after the expiry was decided.
//   - The lease is pinned.
//
// If the primary skips its own expiry, the lease can be renewed again.
func (l *Lessor) Expire(e Expiry, term uint64) (Lease, bool) {
	le := l.find(e.Ref)
	if le == nil {
		return Lease{}, false
	}
	if e.Term != term || le.cleared > e.DecidedAt || le.has(pinned) {
		if l.isOwnTerm(e.Term) && le.place == expiring {
			l.requeue(le)
		}
		return Lease{}, false
	}
	was := l.view(le)
	l.deleteLease(le)
	return was, true
}

// Checkpoint is a replicated command: the lease has c.Remaining left from now, the time at which this member
// applies the command. It reports false, and changes nothing, if the command is stale: its term differs from
// term, the lease has ended, or the lease was cleared after the checkpoint was decided.
//
// A member may apply a checkpoint late, even as late as the next leader. An earlier checkpoint of the lease,
// by a command or by a leader's first entry, may then give an earlier end. If that end is not later on either
// clock, the member keeps it: the lease was not renewed in between, so both ends are late enough.
func (l *Lessor) Checkpoint(c Checkpoint, term uint64, now clock.Instant) bool {
	le := l.find(c.Ref)
	if le == nil {
		return false
	}
	if l.isOwnTerm(c.Term) {
		le.unset(checkpointing)
	}
	defer l.bringForward(le)
	if c.Term != term || le.cleared > c.DecidedAt {
		return false
	}
	remaining := max(0, min(c.Remaining, le.ttl))
	from := now
	if left, since, known := l.checkpointOf(le); known && notLater(since.Add(left), now.Add(remaining)) {
		from = since.Add(left - remaining)
	}
	le.set(checkpointed)
	le.remaining, le.applied = remaining, from
	return true
}

// notLater reports whether end is not later than other on either clock.
func notLater(end, other clock.Instant) bool { return end.Raw <= other.Raw && end.Boot <= other.Boot }

// Clear is a replicated command: the holder has renewed the lease, so its checkpoint is void. Every expiry
// and checkpoint that was decided before is void too. It reports false, and changes nothing, if one of these
// holds:
//
//   - The term of the log entry (term) is not the term in which the clear was decided.
//   - The lease that the clear names has ended.
//   - Renewal of the lease is refused.
//
// When Clear reports true, and only then, the caller may acknowledge the renewals of this lease that Renew
// answered with ErrClearing.
func (l *Lessor) Clear(c Cleared, term uint64, at Position) bool {
	le := l.find(c.Ref)
	if le == nil {
		return false
	}
	if c.Term != term {
		l.ClearsDropped([]Cleared{c})
		return false
	}
	if le.has(renewalRefused) {
		if l.isOwnTerm(c.Term) {
			le.unset(clearing)
		}
		l.bringForward(le)
		return false
	}
	if at < le.cleared {
		panic(fmt.Sprintf("lessor: broken invariant: lease %x was cleared at %v and again at %v", int64(le.id), le.cleared, at))
	}
	le.cleared, l.latest = at, max(l.latest, at)
	le.unset(checkpointed)
	le.remaining, le.applied = 0, clock.Instant{}
	if l.isOwnTerm(c.Term) {
		le.unset(inDoubt | checkpointing | clearing)
	}
	l.bringForward(le)
	return true
}

// BeginLeadership is a replicated command, the first entry of a leader. It checkpoints every lease that is
// cleared, with its full TTL. It takes amortised constant time.
func (l *Lessor) BeginLeadership(at Position, now clock.Instant) {
	l.leaderships.begin(at, now)
	if l.leaderships.isTooLong() {
		l.leaderships.prune(l.leases)
	}
}

// isOwnTerm reports whether this lessor is primary in the given term, so that a command of that term can be
// its own.
func (l *Lessor) isOwnTerm(term uint64) bool { return l.primary && l.term == term }

// deleteLease removes a lease and deletes its items. It removes the lease from this lessor before it calls
// the store. So no caller can attach to, renew or find the lease while the store deletes its items.
func (l *Lessor) deleteLease(le *leaseState) {
	if le.place != nowhere {
		l.queues[le.place].remove(le)
	}
	delete(l.leases, le.id)
	items := l.detachAll(le)
	if l.deleter != nil && len(items) > 0 {
		deleteItems(l.deleter(), le.identity(), items)
	}
	l.recycle(items)
}

// deleteItems deletes the items of one ended lease in txn, and commits txn.
func deleteItems(txn TxnDelete, ref Ref, items []Item) {
	if ender, ok := txn.(LeaseEnder); ok {
		ender.EndLease(ref, items)
	} else {
		for _, item := range items {
			txn.DeleteRange([]byte(item.Key), nil)
		}
	}
	txn.End()
}
