package lessor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Lessor owns leases. It is a plain value without locks: the one goroutine that applies the replicated log
// to it also asks it what is due. Every method that needs the time takes it.
type Lessor struct {
	config     Config
	deleter    RangeDeleter
	checkpoint Checkpointer

	leases      map[ID]*leaseState
	items       map[string]*node
	itemBuffer  []Item // memory for the items of the lease that ends; empty, cap ≤ maxItemBuffer
	leaderships leaderships
	latest      Position // of the grants and clears applied: cleared ≤ latest for every lease

	// What follows is meaningful only while primary.
	primary bool
	term    uint64
	extend  time.Duration
	queues  [expiring + 1]queue // on a primary every lease has exactly one entry in exactly one queue
	clears  []Ref               // leases whose renewal waits for a clear not yet handed out, oldest first
}

// lease is one lease. A million of them fit in some 200 MB, so a new field must earn its place.
type leaseState struct {
	id         ID
	generation Generation
	ttl        time.Duration

	// Replicated: the same on every member, but applied, which is by this member's clocks.
	cleared   Position // generation ≤ cleared
	remaining time.Duration
	applied   clock.Instant

	deadline clock.Instant // the primary's

	first *node // of its items
	count int32 // of its items
	index int32 // in its queue
	place place // which queue
	flags flags
}

type flags uint8

const (
	// checkpointed: remaining and applied are in force. Replicated, unlike the others.
	checkpointed flags = 1 << iota
	// inDoubt: since it was last cleared a command that would cut this lease has been handed out, so it may
	// be in the log, or may yet get there although it was reported as dropped. Until a clear is applied
	// behind it, a renewal must not be acknowledged.
	inDoubt
	// checkpointing: a checkpoint has been handed out and is neither applied nor dropped.
	checkpointing
	// clearQueued: it is in Lessor.clears, or was.
	clearQueued
	// clearSent: a clear has been handed out and is neither applied nor dropped.
	clearSent
	// extended: the deadline includes the extension given at Promote. No checkpoint passes it on.
	extended
	// pinned and renewalRefused: see Pin and RefuseRenewal. Replicated.
	pinned
	renewalRefused
)

const (
	clearing    = clearQueued | clearSent
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

// SetRangeDeleter installs what deletes the items of ended leases. Without one they are only detached.
func (l *Lessor) SetRangeDeleter(deleter RangeDeleter) { l.deleter = deleter }

// SetCheckpointer installs what proposes checkpoints, and thereby enables them. Without one every lease
// always counts as cleared and Promote gives full TTLs. Install it before the first lease is granted or
// recovered, on all members or on none. It is called only from Due, as the last thing Due does.
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

// Leases returns copies of all leases: on a primary the one that ends soonest first, elsewhere and among
// equals the one granted first.
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

// An End says when one lease may be ended; the deadline is zero where the lessor is not primary.
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

// Ends returns the ends of all leases in no particular order. It is for those who have very many leases and
// can sort them elsewhere, while renewals go on here.
func (l *Lessor) Ends() []End {
	all := make([]End, 0, len(l.leases))
	for _, le := range l.leases { // order: none is promised
		all = append(all, End{le.identity(), le.deadline})
	}
	return all
}

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

// find returns the lease that ref names, or nil if it has ended, however often its id was granted again.
func (l *Lessor) find(ref Ref) *leaseState {
	if le := l.leases[ref.ID]; le != nil && le.generation == ref.Generation {
		return le
	}
	return nil
}

// checkpointOf returns what a successor goes by: how much time the lease had left, and when this member
// learned that. A lease is checkpointed by a command of its own or, if that has not happened since it was
// last cleared, by the first entry of the first leader after.
func (l *Lessor) checkpointOf(le *leaseState) (remaining time.Duration, applied clock.Instant, ok bool) {
	switch leadership, led := l.leaderships.after(le.cleared); {
	case l.checkpoint == nil:
		return le.ttl, clock.Instant{}, false
	case le.has(checkpointed):
		return le.remaining, le.applied, true
	case led:
		return le.ttl, leadership.Applied, true
	}
	return le.ttl, clock.Instant{}, false
}

// Grant is a replicated command, applied by every member: it creates a lease that lasts ttl from now. With
// ErrExists it returns the lease that is there, so that the caller can recognise a repeated request. The
// id and the TTL were decided before the command was proposed; Grant clamps nothing.
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

// Revoke is a replicated command: it ends a lease, whatever its deadline, and deletes its items. It
// returns the lease as it was.
func (l *Lessor) Revoke(id ID) (Lease, error) {
	le, ok := l.leases[id]
	if !ok {
		return Lease{}, ErrNotFound
	}
	was := l.view(le)
	l.deleteLease(le)
	return was, nil
}

// Expire is a replicated command: it ends a lease whose time is up. It reports false, and has no effect,
// if the command is stale: if term, that of the log entry, is not the one it was decided in, if the lease
// it names has ended, or if that lease has been cleared since; or if it is pinned. A skipped expiry of this primary's own no
// longer stands in the way of renewals.
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

// Checkpoint is a replicated command: it remembers how much time a lease has left from now, which is when
// this member applies it. If it remembers another checkpoint, its own or that of a leader's first entry, since when nobody
// has renewed the lease, and by that one the lease ends earlier on both clocks, then it goes on to count from there: each
// of the two ends is late enough, and this one may be applied as late as by the next leader. It reports false, and has no
// effect, if it is stale in the sense of Expire.
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

// notLater reports whether an end has come, for a process that waits for it, whenever the other has.
func notLater(end, other clock.Instant) bool { return end.Raw <= other.Raw && end.Boot <= other.Boot }

// Clear is a replicated command: the holder was heard again, so the checkpoint is void, and so is every
// expiry and checkpoint decided before. It reports false, and has no effect, if term, that of the log
// entry, is not the one the command was decided in, or the lease it names has ended or is refused renewal. The renewals of this
// lease that were answered with ErrClearing may be acknowledged when it reports true, and only then.
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

// BeginLeadership is a replicated command, a leader's first entry: a checkpoint, with its full TTL, of every
// lease that was cleared until then. It takes constant time, amortised.
func (l *Lessor) BeginLeadership(at Position, now clock.Instant) {
	l.leaderships.begin(at, now)
	if l.leaderships.isTooLong() {
		l.leaderships.prune(l.leases)
	}
}

// mine reports whether a command of that term can be this primary's own.
func (l *Lessor) isOwnTerm(term uint64) bool { return l.primary && l.term == term }

// end removes a lease and deletes its items. It is gone from everything here before the store hears of it,
// so nothing can be attached to it, renewed or found while its items go.
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
