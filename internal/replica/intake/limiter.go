package intake

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Ending a lease takes processor time: here, in the threads that notify watchers, in the database and at the clients. If
// thousands ended together, they would keep all of these busy until the last is gone. Every command of a client would
// wait, not for its turn in the log, but for a processor. So while clients write, the ends of leases leave most of the
// time to them. While no client writes, leases end as fast as they can.

// MaxExpiries is how many leases one entry ends at most: a few milliseconds of applying.
const MaxExpiries = 128

const (
	// Lull is how long no client's command has come when clients count as not writing.
	Lull = 100 * time.Millisecond
	// restFactor is how many times as long as the end of some leases took the rest after it is.
	restFactor = 8
	// MinRest and maxRest bound the rest for each lease that ended: at most 20 000 end in a second, and at least 5 000.
	MinRest, maxRest = time.Second / 20_000, time.Second / 5_000
)

// limiter limits the rate at which leases end while clients write. For each command of a client it lets one more lease
// end: so more can end than are granted, however fast that is.
type limiter struct {
	wrote  clock.Instant // when a client's command came, or was proposed, for the last time
	until  clock.Instant // when the rest is over
	rest   time.Duration // for each lease that ends, as measured last; 0 before the first measurement
	recent int           // clients' commands in the newest entry

	ended int           // leases that ended in the step at began and whose time is not measured yet
	began clock.Instant // ≤ now
}

// clientWrote notes that a client wants something written.
func (l *limiter) clientWrote(now clock.Instant) {
	if !l.clientsWrite(now) {
		l.recent = 0 // that entry was proposed long ago
	}
	l.wrote = now
}

// clientsWrite reports whether a client wrote within the last [Lull].
func (l *limiter) clientsWrite(now clock.Instant) bool { return now.Elapsed(l.wrote) < Lull }

// room returns below how many leases that wait to end the lessor is asked for more.
func (l *limiter) room(now clock.Instant) int {
	if l.clientsWrite(now) {
		return max(MaxExpiries, l.recent)
	}
	return MaxExpiries
}

// delay returns how long the rest still lasts. It is not positive if the rest is over.
func (l *limiter) delay(now clock.Instant) time.Duration {
	if l.clientsWrite(now) {
		return now.Until(l.until)
	}
	return 0
}

// decided notes that leases are about to end. Time without ends saves up nothing but the worth of one entry's commands.
func (l *limiter) decided(now clock.Instant, leases int) {
	each := max(l.rest, MinRest)
	left := max(now.Until(l.until), -time.Duration(l.recent)*each)
	l.until = now.Add(left + time.Duration(leases)*each)
}

// proposed notes an entry with that many clients' commands.
func (l *limiter) proposed(now clock.Instant, commands int) {
	if commands > 0 {
		l.clientWrote(now)
		l.until = l.until.Add(-time.Duration(commands) * max(l.rest, MinRest))
	}
	l.recent = commands
}

// applied notes that leases ended in the step at now.
func (l *limiter) applied(now clock.Instant, leases int) {
	if l.clientsWrite(now) {
		l.ended += leases
		l.began = now
	}
}

// measuring reports whether a step right after this one is wanted, so that the time of this one is measured.
func (l *limiter) measuring() bool { return l.ended > 0 }

// measure notes how long it took from the step in which leases ended until now, with what the driver did of it.
func (l *limiter) measure(now clock.Instant) {
	if l.ended == 0 {
		return
	}
	took := now.Elapsed(l.began) / time.Duration(l.ended)
	l.rest = min(max(MinRest, restFactor*took), maxRest)
	l.ended = 0
}
