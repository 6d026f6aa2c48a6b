package lessor

import (
	"math"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// SilenceThreshold returns how long a holder may be silent before its lease is checkpointed: at least 0.55
// of the TTL and a second more than a third of it, which is when holders usually renew, but at most 0.8.
func SilenceThreshold(ttl time.Duration) time.Duration {
	return min(ttl/5*4, max(ttl/20*11, ttl/3+time.Second))
}

// minCheckpointed is the remaining time below which a checkpointed lease is not checkpointed again: the
// most a failover can still save is half of it.
const minCheckpointed = time.Second

// Promote makes this lessor the primary of term, right after BeginLeadership for that term was applied. A lease
// that is checkpointed, which then every lease is that the previous leader kept, gets what the checkpoint
// left it, counted from when this member applied it; a cleared one gets its TTL from now. To both extend
// is added once; it is no part of what is replicated.
func (l *Lessor) Promote(extend time.Duration, now clock.Instant, term uint64) {
	l.Demote()
	l.primary, l.term, l.extend = true, term, max(0, extend)
	for _, le := range l.leases { // order: each by itself; the heap breaks ties by generation
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

// Demote ends being primary: deadlines, and what was on its way, are forgotten. The caller fails the
// renewals that wait for a clear or an expiry.
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

// Primary reports whether this lessor decides ends.
func (l *Lessor) Primary() bool { return l.primary }

// Renew moves the deadline of a lease to its TTL from now, in constant time, and returns the TTL. A lease
// whose time is up but which is on no expiry yet is renewed like any other. With a nil error the caller
// acknowledges, after checking that it still has the authority to. With ErrClearing it acknowledges when
// Clear reports true for this lease. With ErrEnding nothing has changed and nothing can be said until the
// expiry that is on its way is applied, skipped or dropped. With ErrRenewalRefused nothing has changed for good.
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

// clearIfNeeded returns nil if no successor can undercut a renewal of this lease. Otherwise it sees to it
// that a clear is on its way, one for all renewals until it is applied, and returns ErrClearing.
func (l *Lessor) clearIfNeeded(le *leaseState) error {
	if l.checkpoint == nil {
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

// Due decides what the time has come for. It returns the expiries to propose, each of a lease that is
// surely over and that from now on is renewed no more, and hands checkpoints and clears to the
// Checkpointer; all of them bear the same DecidedAt. Applied is the position up to which the log has been
// applied here. The work of one call is bounded: what did not fit is due at once, as NextDue then says.
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
		case now.After(le.deadline):
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

// surfaced returns a lease whose entry has surfaced, or nil.
func (l *Lessor) firstDue(now clock.Instant) *leaseState {
	if q := &l.queues[onRaw]; len(q.slots) > 0 && q.slots[0].key < now.Raw {
		return q.slots[0].lease
	}
	if q := &l.queues[onBoot]; len(q.slots) > 0 && q.slots[0].key < now.Boot {
		return q.slots[0].lease
	}
	return nil
}

// takeClears returns the oldest clears that are still wanted.
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

// NextDue returns how long after now Due should be called again, and false if nothing waits for it. Both
// clocks are needed; neither tells when the other has got there, so ask again after waiting.
func (l *Lessor) NextDue(now clock.Instant) (time.Duration, bool) {
	if len(l.clears) > 0 {
		return 0, true
	}
	raw, onAnyRaw := l.queues[onRaw].wait(now.Raw)
	boot, onAnyBoot := l.queues[onBoot].wait(now.Boot)
	return min(raw, boot), onAnyRaw || onAnyBoot
}

// ExpiryDropped takes back expiries whose proposal did not make it: the leases can be renewed again, and
// the next Due decides again. With a Checkpointer it need not be certain that they are lost, because a
// renewal is then acknowledged only behind a clear; without one it must be.
func (l *Lessor) ExpiryDropped(expiries []Expiry) {
	for _, e := range expiries {
		if le := l.find(e.Ref); le != nil && l.isOwnTerm(e.Term) && le.place == expiring {
			l.requeue(le)
		}
	}
}

// CheckpointsDropped takes back checkpoints whose proposal did not make it, or may not have: the next Due
// decides again.
func (l *Lessor) CheckpointsDropped(checkpoints []Checkpoint) {
	for _, c := range checkpoints {
		if le := l.find(c.Ref); le != nil && l.isOwnTerm(c.Term) {
			le.unset(checkpointing)
			l.bringForward(le)
		}
	}
}

// ClearsDropped takes back clears whose proposal did not make it, or may not have: the next Due hands them
// out again, so the renewals that wait go on waiting.
func (l *Lessor) ClearsDropped(cleared []Cleared) {
	for _, c := range cleared {
		if le := l.find(c.Ref); le != nil && l.isOwnTerm(c.Term) && le.has(clearSent) {
			le.unset(clearSent)
			le.set(clearQueued)
			l.clears = append(l.clears, le.identity())
		}
	}
}

// Remaining returns how much time a lease has left if it is not renewed, the extension of Promote not
// counted and never below zero.
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

// Overdue returns how many leases are over but not ended yet, and for how long the first has been. It
// takes time in proportion to their number.
func (l *Lessor) Overdue(now clock.Instant) (n int, oldest time.Duration) {
	count := func(le *leaseState) {
		if now.After(le.deadline) && !le.has(pinned) {
			n++
			oldest = max(oldest, -now.Until(le.deadline))
		}
	}
	l.queues[onRaw].forEachBelow(now.Raw, 0, count)
	l.queues[onBoot].forEachBelow(now.Boot, 0, count)
	l.queues[expiring].forEachBelow(math.MaxInt64, 0, count)
	return n, oldest
}

// Late returns how long ago the time of a lease was up; 0 if it is not, or if there is no such lease.
func (l *Lessor) Late(ref Ref, now clock.Instant) time.Duration {
	le := l.find(ref)
	if le == nil || !now.After(le.deadline) {
		return 0
	}
	return -now.Until(le.deadline)
}

// remaining is what the holder may still be counting on, and so neither scaled nor extended.
func (l *Lessor) timeLeft(le *leaseState, now clock.Instant) time.Duration {
	return max(0, now.Until(l.promised(le)))
}

// promised is the deadline without the extension of Promote.
func (l *Lessor) promised(le *leaseState) clock.Instant {
	if le.has(extended) {
		return le.deadline.Add(-l.extend)
	}
	return le.deadline
}

// wake returns the instant after which something is to be decided about a lease: its next checkpoint or
// its end. While a checkpoint or a clear is on its way there is no next checkpoint.
func (l *Lessor) nextDecision(le *leaseState) clock.Instant {
	if le.has(pinned) {
		return never
	}
	if l.checkpoint == nil || le.has(checkpointing|clearing) {
		return le.deadline
	}
	left := le.ttl - SilenceThreshold(le.ttl)
	if le.has(checkpointed) {
		if le.remaining < minCheckpointed {
			return le.deadline
		}
		left = le.remaining / 2
	}
	return l.promised(le).Add(-left)
}

// bringForward puts a lease's entry right if the lease is to be looked at earlier than the entry says. In the
// other direction nothing needs doing.
func (l *Lessor) bringForward(le *leaseState) {
	next := l.nextDecision(le)
	switch q := &l.queues[le.place]; {
	case le.place == onRaw && next.Raw < q.slots[le.index].key:
		q.rekey(int(le.index), next.Raw)
	case le.place == onBoot && next.Boot < q.slots[le.index].key:
		q.rekey(int(le.index), next.Boot)
	}
}

// requeue makes an expiry's lease wait like any other again.
func (l *Lessor) requeue(le *leaseState) { l.move(le, onRaw, l.nextDecision(le).Raw) }

// move gives a lease's one entry another place or key.
func (l *Lessor) move(le *leaseState, to place, key int64) {
	if le.place == to {
		l.queues[to].rekey(int(le.index), key)
		return
	}
	l.queues[le.place].remove(le)
	l.queues[to].push(le, key)
}
