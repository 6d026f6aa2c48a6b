package clock

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Drift is the bound ρ on the deviation of any clock's rate from real time, in parts per million: over any
// interval that matters at least one of an instant's two readings runs at a rate within [1−ρ, 1+ρ].
type Drift uint32

const (
	// DefaultDrift is one per cent, some hundred times what a healthy quartz shows. It covers a clock that
	// is being slewed by the usual 500 ppm, and most virtual machines.
	DefaultDrift Drift = 10_000
	// MaxDrift is the largest bound with which the arithmetic below still leaves anything to rely on.
	MaxDrift Drift = 500_000

	million = 1_000_000
)

// Validate returns an error if d is larger than [MaxDrift].
func (d Drift) Validate() error {
	if d > MaxDrift {
		return fmt.Errorf("clock drift bound of %d ppm is out of range: use at most %d ppm", uint32(d), uint32(MaxDrift))
	}
	return nil
}

// RelyRemote returns how long a promise of length promised, counted exactly on another machine's clock,
// may be relied on by this machine's clock: promised·(1−ρ)/(1+ρ), rounded down.
func (d Drift) RelyRemote(promised time.Duration) time.Duration {
	return scaleDown(promised, million-uint64(d), million+uint64(d))
}

// WaitRemote returns how long this machine's clock must wait until a length of time promised, counted by
// another machine's clock, has surely passed there: promised·(1+ρ)/(1−ρ), rounded up.
func (d Drift) WaitRemote(promised time.Duration) time.Duration {
	return scaleUp(promised, million+uint64(d), million-uint64(d))
}

// GrantPromise returns how long a clock must keep a promise so that at least length of real time has
// passed: length·(1+ρ), rounded up.
func (d Drift) GrantPromise(length time.Duration) time.Duration {
	return scaleUp(length, million+uint64(d), million)
}

// CountPromise returns how long a clock may count on a promise so that at most length of real time has
// passed: length·(1−ρ), rounded down.
func (d Drift) CountPromise(length time.Duration) time.Duration {
	return scaleDown(length, million-uint64(d), million)
}

// scaleDown returns d·num/den rounded down for num ≤ den. A negative length leaves nothing to rely on.
func scaleDown(d time.Duration, num, den uint64) time.Duration {
	if d <= 0 || num > den {
		return 0
	}
	hi, lo := bits.Mul64(uint64(d), num)
	quotient, _ := bits.Div64(hi, lo, den)
	return time.Duration(quotient)
}

// scaleUp returns d·num/den rounded up, at most the longest duration there is.
func scaleUp(d time.Duration, num, den uint64) time.Duration {
	if d <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(d), num)
	if hi >= den {
		return math.MaxInt64
	}
	quotient, remainder := bits.Div64(hi, lo, den)
	if remainder > 0 {
		quotient++
	}
	if quotient > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(quotient)
}
