package replica

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Ending a lease takes the processor's time here, in the threads that tell watchers, in the database and at the
// clients. Thousands that end together would keep all of them busy until the last is gone, and every command of a
// client would wait, not for its turn in the log, but for a processor. So while clients write, leases end at a pace
// that leaves most of the time to them. While nobody does, they end as fast as they can.
const (
	// lull is for how long no client's command has come when nobody writes any more.
	lull = TickInterval
	// restFactor is how many times as long as ending some leases took the rest after it is.
	restFactor = 8
	// minRest and maxRest bound the rest, for each lease that ended: at most so many end in a second, and at least.
	minRest, maxRest = time.Second / 20_000, time.Second / 5_000
)

// pace says when leases may end while clients write. To the pace comes one lease for each command: so more can end
// than are granted, however fast that is.
type pace struct {
	asked  clock.Instant // when a client's command came, or was proposed, for the last time
	until  clock.Instant // when the rest is over
	rest   time.Duration // for each lease that ends, as measured last; 0 if it never was
	recent int           // clients' commands in the newest entry

	ended int           // leases that ended in the Step at began, of which it is not known how long it took
	began clock.Instant // ≤ now
}

// heard takes note that a client wants something written.
func (p *pace) heard(now clock.Instant) {
	if !p.crowded(now) {
		p.recent = 0 // that entry was proposed long ago
	}
	p.asked = now
}

// crowded reports whether clients write.
func (p *pace) crowded(now clock.Instant) bool { return now.Elapsed(p.asked) < lull }

// room is how many leases may wait to be ended by the next entry when the lessor is asked for more.
func (p *pace) room(now clock.Instant) int {
	if p.crowded(now) {
		return max(maxExpiries, p.recent)
	}
	return maxExpiries
}

// wait returns how long the rest is still to last; not positive if it is over.
func (p *pace) wait(now clock.Instant) time.Duration {
	if p.crowded(now) {
		return now.Until(p.until)
	}
	return 0
}

// decided takes note that leases are about to end. Nothing is saved up for them while none do, but what the commands
// of one entry are worth.
func (p *pace) decided(now clock.Instant, leases int) {
	each := max(p.rest, minRest)
	left := max(now.Until(p.until), -time.Duration(p.recent)*each)
	p.until = now.Add(left + time.Duration(leases)*each)
}

// proposed takes note of an entry with so many clients' commands.
func (p *pace) proposed(now clock.Instant, commands int) {
	if commands > 0 {
		p.heard(now)
		p.until = p.until.Add(-time.Duration(commands) * max(p.rest, minRest))
	}
	p.recent = commands
}

// applied takes note that leases ended in the Step at now.
func (p *pace) applied(now clock.Instant, leases int) {
	if p.crowded(now) {
		p.ended += leases
		p.began = now
	}
}

// measuring reports whether a Step right after this one is wanted, to see how long this one took.
func (p *pace) measuring() bool { return p.ended > 0 }

// measure sees how long the Step took in which leases ended, and the driver with what came of it.
func (p *pace) measure(now clock.Instant) {
	if p.ended == 0 {
		return
	}
	took := now.Elapsed(p.began) / time.Duration(p.ended)
	p.rest = min(max(minRest, restFactor*took), maxRest)
	p.ended = 0
}
