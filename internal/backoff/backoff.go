package backoff

import (
	"math/bits"
	"time"
)

// Doubled returns first, doubled once for each failure, and at most limit. No number of failures overflows it.
func Doubled(first, limit time.Duration, failures int) time.Duration {
	for d := first; ; d *= 2 {
		switch {
		case d >= limit || failures > 0 && d > limit/2:
			return limit
		case failures <= 0 || d <= 0:
			return d
		}
		failures--
	}
}

// Between returns a duration from least to most, both included, that the random bits choose evenly. It returns least
// if most is not above it.
func Between(least, most time.Duration, random uint64) time.Duration {
	if most <= least {
		return least
	}
	chosen, _ := bits.Mul64(uint64(most-least)+1, random)
	return least + time.Duration(chosen)
}

// Below returns a duration from the half of d to d.
func Below(d time.Duration, random uint64) time.Duration { return Between(d/2, d, random) }

// Around returns a duration that differs from d by a part of it at most: by the half for 2, by a quarter for 4.
func Around(d, part time.Duration, random uint64) time.Duration {
	return Between(d-d/part, d+d/part, random)
}
