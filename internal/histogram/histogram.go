package histogram

import (
	"math/bits"
	"time"
)

const (
	// firstBound is the least bound. Each further one is twice the one before.
	firstBound = 100 * time.Microsecond
	// buckets is the number of bounds; the last is 52 s.
	buckets = 20
)

// Durations counts durations by size. It is a value: a copy is a snapshot.
type Durations struct {
	counts [buckets + 1]uint64 // by bound; the last counts durations above every bound
	sum    time.Duration
}

// Observe counts n durations of one size. A negative duration counts as zero.
func (h *Durations) Observe(d time.Duration, n uint64) {
	d = max(d, 0)
	bucket := 0
	if d > 0 {
		bucket = min(bits.Len64(uint64((d-1)/firstBound)), buckets)
	}
	h.counts[bucket] += n
	h.sum += d * time.Duration(n)
}

// Count returns how many durations were counted.
func (h *Durations) Count() uint64 {
	var n uint64
	for _, c := range h.counts {
		n += c
	}
	return n
}

// Sum returns the sum of the durations.
func (h *Durations) Sum() time.Duration { return h.sum }

// Cumulative calls yield for each bound with the number of durations up to it.
func (h *Durations) Cumulative(yield func(bound time.Duration, n uint64)) {
	var n uint64
	for i, c := range h.counts[:buckets] {
		n += c
		yield(firstBound<<i, n)
	}
}
