package simulation

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// standstill is the rate of a clock that does not run.
const standstill = -1_000_000

// An oscillator is one clock: a reading, and a rate in parts per million beside that of real time.
type oscillator struct {
	base, since int64
	rate        int64
}

func (o *oscillator) read(now int64) int64 {
	passed := now - o.since
	return o.base + passed + passed/1000*o.rate/1000
}

func (o *oscillator) setRate(now, rate int64) {
	if rate != o.rate {
		o.base, o.since, o.rate = o.read(now), now, rate
	}
}

// clocks are those of one machine.
type clocks struct {
	raw, boot oscillator
	// The rates at which they run when nothing is wrong with them.
	rawRate, bootRate int64
	// calm is when something may be wrong again.
	calm int64
}

func newClocks(w *world) *clocks {
	c := &clocks{rawRate: w.anyRate(), bootRate: w.anyRate()}
	if w.rates > int64(w.drift) {
		c.bootRate = c.rawRate // what is assumed does not hold: neither of the two is right
	}
	c.raw = oscillator{base: int64(time.Hour) + w.dice.world.Int64N(1e12), rate: c.rawRate}
	c.boot = oscillator{base: int64(time.Hour) + w.dice.world.Int64N(1e12), rate: c.bootRate}
	return c
}

// anyRate returns the rate of a clock, often at the bound.
func (w *world) anyRate() int64 {
	bound := w.rates
	switch w.dice.world.IntN(4) {
	case 0:
		return bound
	case 1:
		return -bound
	case 2:
		return 0
	}
	return w.dice.world.Int64N(2*bound+1) - bound
}

func (c *clocks) now(w *world) clock.Instant {
	return clock.Instant{Raw: c.raw.read(w.now), Boot: c.boot.read(w.now)}
}

// real returns how long it really takes until a timer of that length goes off.
func (c *clocks) real(d time.Duration) time.Duration {
	if c.raw.rate == standstill {
		return d
	}
	return d * 1_000_000 / time.Duration(1_000_000+c.raw.rate)
}

func (c *clocks) heal(now int64) {
	c.raw.setRate(now, c.rawRate)
	c.boot.setRate(now, c.bootRate)
}
