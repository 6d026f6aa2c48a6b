package clock

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Drift is the bound ρ on the deviation of a clock's rate from real time, in parts per million. Over each
// interval in which Leasekeeper counts time, at least one of the two readings must run at a rate within [1−ρ,
// 1+ρ].
type Drift uint32

const (
	// DefaultDrift is one per cent, about a hundred times the deviation of a healthy quartz. It covers a
	// clock that is slewed by the usual 500 ppm, and most virtual machines.
	DefaultDrift Drift = 10_000
	// MaxDrift is the largest bound that still leaves a useful length to rely on.
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

// RelyRemote returns how long this machine may rely, by its own clock, on a promise of length promised that
// another machine counts by its clock: promised·(1−ρ)/(1+ρ), rounded down.
func (d Drift) RelyRemote(promised time.Duration) time.Duration {
	return scaleDown(promised, million-uint64(d), million+uint64(d))
}

// WaitRemote returns how long this machine must wait, by its own clock, until the length promised has
// certainly passed on another machine's clock: promised·(1+ρ)/(1−ρ), rounded up.
func (d Drift) WaitRemote(promised time.Duration) time.Duration {
	return scaleUp(promised, million+uint64(d), million-uint64(d))
}

// GrantPromise returns how long a clock must keep a promise so that at least length of real time passes:
// length·(1+ρ), rounded up.
func (d Drift) GrantPromise(length time.Duration) time.Duration {
	return scaleUp(length, million+uint64(d), million)
}

// CountPromise returns how long a clock may count on a promise so that at most length of real time passes:
// length·(1−ρ), rounded down.
func (d Drift) CountPromise(length time.Duration) time.Duration {
	return scaleDown(length, million-uint64(d), million)
}

// scaleDown returns d·num/den rounded down. It returns 0 for d ≤ 0 and for num > den.
func scaleDown(d time.Duration, num, den uint64) time.Duration {
	if d <= 0 || num > den {
		return 0
	}
	hi, lo := bits.Mul64(uint64(d), num)
	quotient, _ := bits.Div64(hi, lo, den)
	return time.Duration(quotient)
}

// scaleUp returns d·num/den rounded up, at most the longest duration. It returns 0 for d ≤ 0.
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
