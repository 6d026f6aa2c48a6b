package node

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/histogram"
)

// Timings say how long things took since the process started.
type Timings struct {
	// Late is from the deadline of a lease to when its end was applied here.
	Late histogram.Durations
	// Renewal is from when a renewal was handed to the member to its answer, for each lease.
	Renewal histogram.Durations
	// Sync is of synced writes of the log, every one of which changes wait for.
	Sync histogram.Durations
	// Apply is of steps of the member in which log entries were applied, and nothing else was served.
	Apply histogram.Durations
}

// sharedHistogram is a histogram that several goroutines share.
type sharedHistogram struct {
	mu sync.Mutex
	h  histogram.Durations
}

func (s *sharedHistogram) observe(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.h.Observe(d, 1)
}

func (s *sharedHistogram) snapshot() histogram.Durations {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.h
}

// liveBytes is the size of the data: of the files that hold what was not overwritten or deleted yet, and of
// the newest writes. Files that only wait for their removal, and those that a compaction is just writing,
// do not count, so that making room never looks like taking it.
func liveBytes(m *pebble.Metrics) uint64 {
	return m.WAL.Size + m.Table.Local.LiveSize + m.BlobFiles.Local.LiveSize
}
