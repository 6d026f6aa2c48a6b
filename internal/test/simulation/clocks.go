package simulation

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// standstill is the rate of a clock that does not run.
const standstill = -1_000_000

// An oscillator is one clock: a reading, and the error of its rate in parts per million.
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

// clockPair holds the two clocks of one machine.
type clockPair struct {
	raw, boot oscillator
	// The rates of the clocks while they are not disturbed.
	rawRate, bootRate int64
	// calm is the earliest real time of the next disturbance.
	calm int64
}

func newClocks(w *world) *clockPair {
	c := &clockPair{rawRate: w.anyRate(), bootRate: w.anyRate()}
	if w.rates > int64(w.drift) {
		c.bootRate = c.rawRate // this world breaks the assumption that one of the two is right
	}
	c.raw = oscillator{base: int64(time.Hour) + w.dice.world.Int64N(1e12), rate: c.rawRate}
	c.boot = oscillator{base: int64(time.Hour) + w.dice.world.Int64N(1e12), rate: c.bootRate}
	return c
}

// anyRate draws the rate of a clock, often at the bound.
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

func (c *clockPair) now(w *world) clock.Instant {
	return clock.Instant{Raw: c.raw.read(w.now), Boot: c.boot.read(w.now)}
}

// real returns the real time that a timer of length d takes.
func (c *clockPair) real(d time.Duration) time.Duration {
	if c.raw.rate == standstill {
		return d
	}
	return d * 1_000_000 / time.Duration(1_000_000+c.raw.rate)
}

func (c *clockPair) heal(now int64) {
	c.raw.setRate(now, c.rawRate)
	c.boot.setRate(now, c.bootRate)
}
