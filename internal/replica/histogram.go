package replica

import (
	"math/bits"
	"time"
)

// histogramFirst is the least bound of a Histogram; each further one is twice the one before.
const (
	histogramFirst   = 100 * time.Microsecond
	histogramBuckets = 20 // the last bound is 52 s
)

// Histogram counts durations by size. It is a value: a copy is a snapshot.
type Histogram struct {
	counts [histogramBuckets + 1]uint64 // the last is for what is above every bound
	sum    time.Duration
}

// Observe counts n durations of one size. Less than nothing counts as nothing.
func (h *Histogram) Observe(d time.Duration, n uint64) {
	d = max(d, 0)
	bucket := 0
	if d > 0 {
		bucket = min(bits.Len64(uint64((d-1)/histogramFirst)), histogramBuckets)
	}
	h.counts[bucket] += n
	h.sum += d * time.Duration(n)
}

// Count returns how many durations were counted.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.counts {
		n += c
	}
	return n
}

// Sum returns the sum of the durations.
func (h *Histogram) Sum() time.Duration { return h.sum }

// Cumulative calls yield for each bound with the number of durations up to it.
func (h *Histogram) Cumulative(yield func(bound time.Duration, n uint64)) {
	var n uint64
	for i, c := range h.counts[:histogramBuckets] {
		n += c
		yield(histogramFirst<<i, n)
	}
}
