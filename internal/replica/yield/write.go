package yield

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// A write is slow after 1/slowPart of the election timeout if another member had it after 1/quickPart, and very slow after
// 1/verySlowPart.
const quickPart, slowPart, verySlowPart = 8, 4, 2

// Write is a write of the log that is in progress on the leader's disk.
type Write struct {
	Sequence uint64        // the number of the write; no two writes have the same one, and none has 0
	Since    clock.Instant // when the disk received it

	compared bool     // quick was looked up
	quick    []uint64 // the members that had the write's entries after 1/quickPart of the election timeout
}

// compare looks up which members have the write's entries, once and early. If the write is already slow, this process
// stood still, and how quick the others were is unknown.
func (w *Write) compare(age, timeout time.Duration, have func() []uint64) {
	if w.compared || age < timeout/quickPart {
		return
	}
	w.compared = true
	if age < timeout/slowPart {
		w.quick = have()
	}
}

// Compared reports whether the write was compared with what the other members have. That happens once.
func (w *Write) Compared() bool { return w.compared }
