package node

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/histogram"
)

// Timings are histograms of durations since the process started.
type Timings struct {
	// Late is the time from a lease's deadline until its expiry was applied here.
	Late histogram.Durations
	// Renewal is the time from the submission of a renewal to its answer, for each lease.
	Renewal histogram.Durations
	// Sync is the time of each synced write of the log. Changes wait for these.
	Sync histogram.Durations
	// Apply is the time of each Step that applied log entries. Nothing else is served meanwhile.
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

// liveBytes returns the size of the live data: of the files that the database still needs, and of the newest writes.
// It leaves out files that wait for their removal, and files that a compaction is writing, so that freeing space
// never looks like using it.
func liveBytes(m *pebble.Metrics) uint64 {
	return m.WAL.Size + m.Table.Local.LiveSize + m.BlobFiles.Local.LiveSize
}
