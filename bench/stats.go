package main

import (
	"math"
	"slices"
	"time"
)

// percentile returns the smallest of the values that at least p percent of them do not exceed (nearest
// rank). It sorts the values. There must be at least one.
func percentile[T int64 | float64 | time.Duration](values []T, p float64) T {
	slices.Sort(values)
	rank := int(math.Ceil(p / 100 * float64(len(values))))
	return values[min(max(rank, 1), len(values))-1]
}

// median of several rounds is the one in the middle, the lower one if there are two.
func median(values []float64) float64 { return percentile(slices.Clone(values), 50) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
