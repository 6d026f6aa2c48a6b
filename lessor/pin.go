package lessor

import (
	"math"

	"github.com/leasekeeper/leasekeeper/clock"
)

// never is an instant that no clock reaches, and that one can still count from.
var never = clock.Instant{Raw: math.MaxInt64 / 2, Boot: math.MaxInt64 / 2}

// Pin is a replicated command: the lease does not expire until Unpin, however long nobody renews it. An
// expiry that was decided before is skipped. It can be revoked, and renewed like any other.
func (l *Lessor) Pin(id ID) error {
	le, ok := l.leases[id]
	switch {
	case !ok:
		return ErrNotFound
	case le.has(renewalRefused):
		return ErrRenewalRefused
	}
	le.set(pinned) // its entry is put right when it surfaces
	return nil
}

// Unpin is a replicated command: the lease expires again. As nobody knows how much of a deadline counts that
// did not for a while, it has its full TTL from now, like one that was just renewed and cleared: what was
// decided about it before is void.
func (l *Lessor) Unpin(id ID, at Position, now clock.Instant) error {
	le, ok := l.leases[id]
	if !ok {
		return ErrNotFound
	}
	if !le.has(pinned) {
		return nil
	}
	le.unset(pinned | checkpointed)
	le.remaining, le.applied = 0, clock.Instant{}
	le.cleared, l.latest = at, max(l.latest, at)
	if !l.primary {
		return nil
	}
	le.unset(inDoubt | checkpointing | clearing | extended)
	le.deadline = now.Add(le.ttl)
	if le.place == expiring {
		l.requeue(le)
	}
	l.bringForward(le)
	return nil
}

// RefuseRenewal is a replicated command: the lease is renewed no more, and expires when what its holder was promised
// has ended. That is its deadline on the primary; for a successor, which does not know that, its TTL from when
// it applied this, which no acknowledged renewal outlasts. Refusing it again changes nothing.
func (l *Lessor) RefuseRenewal(id ID, now clock.Instant) error {
	le, ok := l.leases[id]
	switch {
	case !ok:
		return ErrNotFound
	case le.has(renewalRefused):
		return nil
	}
	le.set(renewalRefused)
	if !le.has(checkpointed) {
		le.set(checkpointed)
		le.remaining, le.applied = le.ttl, now
	}
	l.bringForward(le)
	return nil
}
