package keepalive

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// law is what a right rests on, in five questions, and what the attempts to renew it are, in two. There is one
// answer to each; the tests give others, one at a time, to show that the exploration notices.
type law struct {
	// relies: for how long may a TTL that the store counts be relied on here? (C1, T2)
	relies func(d clock.Drift, ttl time.Duration) time.Duration
	// from: which instant does an acknowledged request count from: its own first send, or a later one?
	// (C1, G2)
	from func(first, arrival clock.Instant) clock.Instant
	// counts: does the answer to a message decide the deadline, if a message was acknowledged before? (G2)
	counts func(number, acknowledged uint64) bool
	// over: has a deadline come? (T1)
	over func(now, deadline clock.Instant) bool
	// yours: until when is a lease relied on that stood in line until line, when its turn has come? (C11)
	yours func(line, arrival clock.Instant, length time.Duration) clock.Instant
	// stays: does an attempt that is overdue go on, if it is no hedge?
	stays func(hedge bool) bool
	// overtaken: has an acknowledged message made an attempt useless?
	overtaken func(number, acknowledged uint64) bool
}

var careful = law{
	relies: func(d clock.Drift, ttl time.Duration) time.Duration { return d.RelyRemote(ttl) },
	from:   func(first, _ clock.Instant) clock.Instant { return first },
	counts: func(number, acknowledged uint64) bool { return number > acknowledged },
	over:   func(now, deadline clock.Instant) bool { return !now.Before(deadline) },
	yours:  func(line, _ clock.Instant, _ time.Duration) clock.Instant { return line },

	stays:     func(hedge bool) bool { return !hedge },
	overtaken: func(number, acknowledged uint64) bool { return number < acknowledged },
}
