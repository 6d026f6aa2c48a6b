package keepalive

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// rules are the decisions that the validity of a lease and the attempts to renew it depend on. [strictRules] are the only
// correct ones. Tests replace one rule at a time by a wrong one, to show that the exploration finds the mistake.
type rules struct {
	// trusted returns for how long this process can rely on a TTL that runs on the store's clock. (C1, T2)
	trusted func(d clock.Drift, ttl time.Duration) time.Duration
	// from returns the instant from which an acknowledged request counts, given its first send and the arrival of its
	// answer. (C1, G2)
	from func(first, arrival clock.Instant) clock.Instant
	// counts reports whether the answer to message number decides the deadline, if message acknowledged was
	// acknowledged before. (G2)
	counts func(number, acknowledged uint64) bool
	// expired reports whether a deadline has passed. (T1)
	expired func(now, deadline clock.Instant) bool
	// fromQueue returns the deadline of a queued claim that was just granted. queued was the deadline of its place in
	// the queue. (C11)
	fromQueue func(queued, arrival clock.Instant, length time.Duration) clock.Instant
	// stays reports whether an overdue attempt goes on; hedge says whether it is a hedge.
	stays func(hedge bool) bool
	// superseded reports whether the acknowledgement of one message makes the attempt with a number useless.
	superseded func(number, acknowledged uint64) bool
}

// strictRules are the rules of every Renewer outside tests.
var strictRules = rules{
	trusted:   func(d clock.Drift, ttl time.Duration) time.Duration { return d.RelyRemote(ttl) },
	from:      func(first, _ clock.Instant) clock.Instant { return first },
	counts:    func(number, acknowledged uint64) bool { return number > acknowledged },
	expired:   func(now, deadline clock.Instant) bool { return !now.Before(deadline) },
	fromQueue: func(queued, _ clock.Instant, _ time.Duration) clock.Instant { return queued },

	stays:      func(hedge bool) bool { return !hedge },
	superseded: func(number, acknowledged uint64) bool { return number < acknowledged },
}
