package survey

import (
	"fmt"
	"math"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Missing stands for a figure that nobody observed. It is not a number, so compare it with [IsMissing].
var Missing = math.NaN()

// IsMissing reports whether v is [Missing].
func IsMissing(v float64) bool { return math.IsNaN(v) }

// Ring keeps one figure over time, in slots of equal length. It belongs to one goroutine.
type Ring struct {
	length time.Duration // of a slot
	slots  []slot        // slot n is at index n modulo their number
	began  clock.Instant // of slot 0
	newest int64         // the number of the newest slot
}

// slot is the figure of one length of time. It is missing unless known, or if it lacks a part.
type slot struct {
	value          float64
	known, lacking bool
}

func (s slot) figure() float64 {
	if !s.known || s.lacking {
		return Missing
	}
	return s.value
}

// NewRing returns a ring of slots of a length. All are missing.
func NewRing(began clock.Instant, length time.Duration, slots int) *Ring {
	if length <= 0 || slots < 2 {
		panic(fmt.Sprintf("survey: a ring of %d slots of %v", slots, length))
	}
	return &Ring{length: length, slots: make([]slot, slots), began: began}
}

// Set makes v the figure of the slot of now. A missing v changes nothing.
func (r *Ring) Set(now clock.Instant, v float64) {
	if s := r.slotOf(now); !IsMissing(v) {
		s.value, s.known = v, true
	}
}

// Add adds v to the figure of the slot of now. After a missing v the whole slot is missing, since its sum would be too
// small.
func (r *Ring) Add(now clock.Instant, v float64) {
	s := r.slotOf(now)
	s.known = true
	if IsMissing(v) {
		s.lacking = true
		return
	}
	s.value += v
}

// slotOf makes the slot of now the newest, and returns it. Slots that nobody observed in between are missing. The
// clocks of one process do not go back; if they seem to, the newest slot is that of now.
func (r *Ring) slotOf(now clock.Instant) *slot {
	number := int64(now.Elapsed(r.began) / r.length)
	n := int64(len(r.slots))
	for i := max(r.newest, number-n) + 1; i <= number; i++ {
		r.slots[i%n] = slot{}
	}
	r.newest = max(r.newest, number)
	return &r.slots[r.newest%n]
}

// Values returns the figures of the full slots, the oldest first. The slot of now is not full and is left out.
func (r *Ring) Values(now clock.Instant) []float64 {
	r.slotOf(now)
	n := int64(len(r.slots))
	all := make([]float64, 0, n-1)
	for i := r.newest + 1; i < r.newest+n; i++ {
		all = append(all, r.slots[i%n].figure())
	}
	return all
}
