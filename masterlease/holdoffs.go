package masterlease

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// MaxHoldOff bounds the vote hold-off that a member believes of another one.
const MaxHoldOff = time.Minute

// HoldOffs is what a member knows of the vote hold-offs of the others. A leader hands over to a member that may be
// elected at once. The zero value knows nothing. The answers are hints: no promise depends on them.
type HoldOffs struct{ ends map[uint64]clock.Instant }

// Hear notes how long a member, as it said itself, still neither votes nor campaigns.
func (h *HoldOffs) Hear(member uint64, left time.Duration, now clock.Instant) {
	if left <= 0 {
		delete(h.ends, member)
		return
	}
	if h.ends == nil {
		h.ends = make(map[uint64]clock.Instant)
	}
	h.ends[member] = now.Add(min(left, MaxHoldOff))
}

// Left returns how long the hold-off of a member still lasts; 0 if none is known.
func (h *HoldOffs) Left(member uint64, now clock.Instant) time.Duration {
	if end, ok := h.ends[member]; ok {
		return max(0, now.Until(end))
	}
	return 0
}
