package intake

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Revisions say which revision was current at which instant, for automatic compaction. They are a member's own and lost
// in a restart. After a restart all revisions count as written just before it.
type Revisions struct {
	samples []sample // oldest first; len ≤ RetentionSamples+2
}

// sample says that revision was the newest one at that instant.
type sample struct {
	at       clock.Instant
	revision int64
}

const (
	// RetentionSamples is how many samples are taken within the retention. So history is kept at most an eighth
	// longer, and compaction comes at most that often.
	RetentionSamples = 8
	// MinSampleInterval is the least time between two samples, however short the retention is.
	MinSampleInterval = time.Second
)

// Len returns the number of samples.
func (r *Revisions) Len() int { return len(r.samples) }

// Note takes a sample if it is time to, and returns the newest revision that was current at least retention ago. ok
// is false if no such revision is known.
func (r *Revisions) Note(now clock.Instant, revision int64, retention time.Duration) (old int64, ok bool) {
	interval := max(retention/RetentionSamples, MinSampleInterval)
	if n := len(r.samples); n == 0 || now.Elapsed(r.samples[n-1].at) >= interval {
		r.samples = append(r.samples, sample{now, revision})
	}
	for len(r.samples) > 1 && now.Elapsed(r.samples[1].at) >= retention {
		r.samples = r.samples[1:]
	}
	oldest := r.samples[0]
	return oldest.revision, now.Elapsed(oldest.at) >= retention
}
