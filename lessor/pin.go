package lessor

import (
	"math"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// never is an instant that no clock reaches. Code can add a duration to it without overflow.
var never = clock.Instant{Raw: math.MaxInt64 / 2, Boot: math.MaxInt64 / 2}

// Pin is a replicated command: the lease does not expire until Unpin, even without renewals. Members skip an
// expiry that was decided before. A pinned lease can be renewed and revoked.
func (l *Lessor) Pin(id ID) error {
	le, ok := l.leases[id]
	switch {
	case !ok:
		return ErrNotFound
	case le.has(renewalRefused):
		return ErrRenewalRefused
	}
	le.set(pinned) // Due corrects its queue entry later
	return nil
}

// Unpin is a replicated command: the lease can expire again. It has its full TTL from now, because no
// deadline was kept while it was pinned. Like a renewed and cleared lease, it is not affected by anything
// that was decided before.
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

// RefuseRenewal is a replicated command: the lease is no longer renewed, and expires when the time promised
// to its holder has passed. On the primary that is the deadline. A successor does not know the deadline, so
// it counts the TTL from when it applied this command; no acknowledged renewal outlasts that. A second
// refusal changes nothing.
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

// Retain is a replicated command: the holder has finished, and the lease is kept for ttl from now. Like a lease
// whose renewal is refused, it is no longer renewed. Every expiry and checkpoint that was decided before is void.
// A pinned lease stays pinned.
//
// The TTL was decided before the command was proposed. A successor counts it from when it applied this command.
func (l *Lessor) Retain(id ID, ttl time.Duration, at Position, now clock.Instant) error {
	le, ok := l.leases[id]
	switch {
	case !ok:
		return ErrNotFound
	case ttl > MaxTTL:
		return ErrTTLTooLarge
	case ttl <= 0:
		return ErrInvalidTTL
	}
	le.set(renewalRefused | checkpointed)
	le.ttl, le.remaining, le.applied = ttl, ttl, now
	le.cleared, l.latest = at, max(l.latest, at)
	if !l.primary {
		return nil
	}
	le.unset(inDoubt | checkpointing | clearing | extended)
	le.deadline = now.Add(ttl)
	if le.place == expiring {
		l.requeue(le)
	}
	l.bringForward(le)
	return nil
}
