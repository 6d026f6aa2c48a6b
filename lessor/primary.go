package lessor

import (
	"math"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// SilenceThreshold returns how long a holder may be silent before the primary checkpoints its lease. Holders
// usually renew after a third of the TTL. The threshold is a third of the TTL plus a second, but at least
// 0.55 and at most 0.8 of the TTL.
func SilenceThreshold(ttl time.Duration) time.Duration {
	return min(ttl/5*4, max(ttl/20*11, ttl/3+time.Second))
}

// minCheckpointed is the shortest remaining time that is checkpointed again. Another checkpoint saves a
// failover at most half of the remaining time.
const minCheckpointed = time.Second

// Promote makes this lessor the primary of term. Call it right after BeginLeadership of that term was
// applied.
//
// A checkpointed lease gets the remaining time of its checkpoint, counted from when this member applied the
// checkpoint. BeginLeadership has checkpointed every lease, so that is the case of all leases if checkpoints
// are enabled. A cleared lease gets its TTL from now. Promote adds extend once to each deadline. The
// extension is not replicated.
func (l *Lessor) Promote(extend time.Duration, now clock.Instant, term uint64) {
	l.Demote()
	l.primary, l.term, l.extend = true, term, max(0, extend)
	for _, le := range l.leases { // order: each lease is independent, and the heap breaks ties by generation
		remaining, from, ok := l.checkpointOf(le)
		if !ok {
			from = now
		}
		le.deadline = from.Add(remaining).Add(l.extend)
		if l.extend > 0 {
			le.set(extended)
		}
		l.queues[onRaw].pushUnordered(le, l.nextDecision(le).Raw)
	}
	l.queues[onRaw].order()
}

// Demote makes this lessor not primary. It forgets deadlines, and the state of commands that were handed out.
// The caller must fail the renewals that wait for a clear or an expiry.
func (l *Lessor) Demote() {
	for p := onRaw; p <= expiring; p++ {
		for _, s := range l.queues[p].slots {
			s.lease.deadline = clock.Instant{}
			s.lease.place, s.lease.index = nowhere, 0
			s.lease.unset(primaryOnly)
		}
		l.queues[p].reset()
	}
	l.primary, l.term, l.extend, l.clears = false, 0, 0, nil
}

// Primary reports whether this lessor is the primary, which decides ends.
func (l *Lessor) Primary() bool { return l.primary }

// Renew moves the deadline of a lease to its TTL from now, in constant time, and returns the TTL. It also
// renews an overdue lease for which no expiry is handed out yet. The error decides what the caller does:
//
//   - nil: check that this member still has its authority, then acknowledge.
//   - ErrClearing: acknowledge once Clear reports true for this lease.
//   - ErrEnding: nothing has changed. Answer once the expiry is applied, skipped or dropped.
//   - ErrRenewalRefused: nothing has changed, and no later renewal will succeed.
func (l *Lessor) Renew(id ID, now clock.Instant) (time.Duration, error) {
	if !l.primary {
		return 0, ErrNotPrimary
	}
	le, ok := l.leases[id]
	if !ok {
		return 0, ErrNotFound
	}
	if le.has(renewalRefused) {
		return 0, ErrRenewalRefused
	}
	if le.place == expiring {
		return 0, ErrEnding
	}
	le.deadline = now.Add(le.ttl)
	le.unset(extended)
	err := l.clearIfNeeded(le)
	l.bringForward(le)
	return le.ttl, err
}

// clearIfNeeded returns nil if no successor can undercut a renewal of this lease. Otherwise it returns
// ErrClearing, and queues a clear unless one is on its way. All renewals of the lease share that clear.
//
// Without a Checkpointer nothing can propose a clear. Such a lessor is the only member of its log, so it voids
// the checkpoint itself.
func (l *Lessor) clearIfNeeded(le *leaseState) error {
	if l.checkpoint == nil {
		le.unset(checkpointed)
		le.remaining, le.applied = 0, clock.Instant{}
		return nil
	}
	if _, _, isCheckpointed := l.checkpointOf(le); !isCheckpointed && !le.has(inDoubt|clearing) {
		return nil
	}
	if !le.has(clearing) {
		le.set(clearQueued)
		l.clears = append(l.clears, le.identity())
	}
	return ErrClearing
}

// Due decides which leases are due now. It returns the expiries to propose, each of a lease whose time is
// over. From then on Renew refuses these leases. Due hands checkpoints and clears to the Checkpointer.
//
// applied is the position up to which this member has applied the log; it becomes the DecidedAt of every
// command. The work of one call is bounded by the [Config]. Whatever did not fit is due at once, as NextDue
// reports.
func (l *Lessor) Due(now clock.Instant, applied Position) []Expiry {
	if !l.primary {
		return nil
	}
	applied = max(applied, l.latest)
	var expiries []Expiry
	var checkpoints []Checkpoint
	for range l.config.MaxVisits {
		if len(expiries) == l.config.MaxExpiries || len(checkpoints) == l.config.MaxCheckpoints {
			break
		}
		le := l.firstDue(now)
		if le == nil {
			break
		}
		switch next := l.nextDecision(le); {
		case now.Raw <= next.Raw:
			l.move(le, onRaw, next.Raw)
		case now.Boot <= next.Boot:
			l.move(le, onBoot, next.Boot)
		case now.After(l.decidable(le)):
			l.move(le, expiring, le.deadline.Raw)
			le.set(inDoubt)
			expiries = append(expiries, Expiry{Ref: le.identity(), Term: l.term, DecidedAt: applied})
		default:
			le.set(inDoubt | checkpointing)
			l.move(le, onRaw, le.deadline.Raw)
			checkpoints = append(checkpoints, Checkpoint{
				Ref: le.identity(), Term: l.term, DecidedAt: applied, Remaining: l.timeLeft(le, now),
			})
		}
	}
	if cleared := l.takeClears(); len(checkpoints)+len(cleared) > 0 {
		l.checkpoint(checkpoints, cleared)
	}
	return expiries
}

// firstDue returns a lease whose queue entry is due now, or nil.
func (l *Lessor) firstDue(now clock.Instant) *leaseState {
	if q := &l.queues[onRaw]; len(q.slots) > 0 && q.slots[0].key < now.Raw {
		return q.slots[0].lease
	}
	if q := &l.queues[onBoot]; len(q.slots) > 0 && q.slots[0].key < now.Boot {
		return q.slots[0].lease
	}
	return nil
}

// takeClears returns the oldest queued clears that are still needed, at most MaxCheckpoints.
func (l *Lessor) takeClears() []Cleared {
	var cleared []Cleared
	for len(l.clears) > 0 && len(cleared) < l.config.MaxCheckpoints {
		le := l.find(l.clears[0])
		l.clears = l.clears[1:]
		if le == nil || !le.has(clearQueued) {
			continue
		}
		le.unset(clearQueued)
		le.set(clearSent)
		cleared = append(cleared, Cleared{Ref: le.identity(), Term: l.term})
	}
	if len(l.clears) == 0 {
		l.clears = nil
	}
	return cleared
}

// NextDue returns how long after now to call Due again. It reports false if no lease waits. The wait is for
// one of the two clocks; a lease may then have to wait for the other. So call NextDue again after each Due.
func (l *Lessor) NextDue(now clock.Instant) (time.Duration, bool) {
	if len(l.clears) > 0 {
		return 0, true
	}
	raw, onAnyRaw := l.queues[onRaw].wait(now.Raw)
	boot, onAnyBoot := l.queues[onBoot].wait(now.Boot)
	return min(raw, boot), onAnyRaw || onAnyBoot
}

// ExpiryDropped takes back expiries whose proposal failed. Their leases can be renewed again, and the next
// Due decides again. With a Checkpointer, the caller need not be certain that the proposals are lost, because
// a renewal then waits for a clear. Without a Checkpointer the caller must be certain.
func (l *Lessor) ExpiryDropped(expiries []Expiry) {
	for _, e := range expiries {
		if le := l.find(e.Ref); le != nil && l.isOwnTerm(e.Term) && le.place == expiring {
			l.requeue(le)
		}
	}
}

// CheckpointsDropped takes back checkpoints whose proposal failed or may have failed. The next Due decides
// again.
func (l *Lessor) CheckpointsDropped(checkpoints []Checkpoint) {
	for _, c := range checkpoints {
		if le := l.find(c.Ref); le != nil && l.isOwnTerm(c.Term) {
			le.unset(checkpointing)
			l.bringForward(le)
		}
	}
}

// ClearsDropped takes back clears whose proposal failed or may have failed. The next Due hands them out
// again, and renewals continue to wait.
func (l *Lessor) ClearsDropped(cleared []Cleared) {
	for _, c := range cleared {
		if le := l.find(c.Ref); le != nil && l.isOwnTerm(c.Term) && le.has(clearSent) {
			le.unset(clearSent)
			le.set(clearQueued)
			l.clears = append(l.clears, le.identity())
		}
	}
}

// Remaining returns how much time a lease has left if it is not renewed. It never returns less than zero, and
// does not count the extension of Promote.
func (l *Lessor) Remaining(id ID, now clock.Instant) (time.Duration, error) {
	if !l.primary {
		return 0, ErrNotPrimary
	}
	le, ok := l.leases[id]
	if !ok {
		return 0, ErrNotFound
	}
	return l.timeLeft(le, now), nil
}

// Overdue returns how many leases are over and not ended yet, and how long ago the first of them was over. It
// takes time in proportion to their number.
func (l *Lessor) Overdue(now clock.Instant) (n int, oldest time.Duration) {
	count := func(le *leaseState) {
		if end := l.decidable(le); now.After(end) && !le.has(pinned) {
			n++
			oldest = max(oldest, -now.Until(end))
		}
	}
	l.queues[onRaw].forEachBelow(now.Raw, 0, count)
	l.queues[onBoot].forEachBelow(now.Boot, 0, count)
	l.queues[expiring].forEachBelow(math.MaxInt64, 0, count)
	return n, oldest
}

// Late returns how long ago the deadline of a lease passed. It returns 0 if the deadline has not passed, or
// if there is no such lease.
func (l *Lessor) Late(ref Ref, now clock.Instant) time.Duration {
	le := l.find(ref)
	if le == nil || !now.After(l.decidable(le)) {
		return 0
	}
	return -now.Until(l.decidable(le))
}

// timeLeft returns how much time the holder may still count on. It is neither scaled for drift nor extended.
func (l *Lessor) timeLeft(le *leaseState, now clock.Instant) time.Duration {
	return max(0, now.Until(l.promised(le)))
}

// promised returns the deadline without the extension of Promote.
func (l *Lessor) promised(le *leaseState) clock.Instant {
	if le.has(extended) {
		return le.deadline.Add(-l.extend)
	}
	return le.deadline
}

// decidable returns the instant after which the primary may decide that a lease has ended: its deadline, but not
// before Config.NoEndBefore.
func (l *Lessor) decidable(le *leaseState) clock.Instant {
	if l.config.NoEndBefore == (clock.Instant{}) {
		return le.deadline
	}
	return le.deadline.Later(l.config.NoEndBefore)
}

// nextDecision returns the instant after which the primary has to decide about a lease: its next checkpoint
// or its end. There is no next checkpoint while a checkpoint or a clear is on its way.
func (l *Lessor) nextDecision(le *leaseState) clock.Instant {
	if le.has(pinned) {
		return never
	}
	if l.checkpoint == nil || le.has(checkpointing|clearing) {
		return l.decidable(le)
	}
	left := le.ttl - SilenceThreshold(le.ttl)
	if le.has(checkpointed) {
		if le.remaining < minCheckpointed {
			return l.decidable(le)
		}
		left = le.remaining / 2
	}
	return l.promised(le).Add(-left)
}

// bringForward corrects the queue entry of a lease if the next decision is earlier than the key of the entry.
// A later decision needs no correction, because Due moves the entry then.
func (l *Lessor) bringForward(le *leaseState) {
	next := l.nextDecision(le)
	switch q := &l.queues[le.place]; {
	case le.place == onRaw && next.Raw < q.slots[le.index].key:
		q.rekey(int(le.index), next.Raw)
	case le.place == onBoot && next.Boot < q.slots[le.index].key:
		q.rekey(int(le.index), next.Boot)
	}
}

// requeue moves an expiring lease back to the queue of waiting leases.
func (l *Lessor) requeue(le *leaseState) { l.move(le, onRaw, l.nextDecision(le).Raw) }

// move moves the entry of a lease to another queue, or changes its key.
func (l *Lessor) move(le *leaseState, to place, key int64) {
	if le.place == to {
		l.queues[to].rekey(int(le.index), key)
		return
	}
	l.queues[le.place].remove(le)
	l.queues[to].push(le, key)
}
