package replica

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// history says which revision was current at which instant, for automatic compaction. It is this member's own and
// lost in a restart. After a restart all revisions count as written just before it.
type history struct {
	samples  []sample // oldest first; len ≤ retentionSamples+2
	proposed int64    // the revision of this member's compaction in flight, or at most that of the last one
}

// sample says that revision was the newest one at that instant.
type sample struct {
	at       clock.Instant
	revision int64
}

const (
	// retentionSamples is how many samples are taken within the retention. So history is kept at most an eighth
	// longer, and compaction comes at most that often.
	retentionSamples = 8
	// minSampleInterval is the least time between two samples, however short the retention is.
	minSampleInterval = time.Second
)

// retireHistory notes which revision is current. If it is due, it proposes to compact to the newest revision that was
// superseded long enough ago.
func (r *Replica) retireHistory() {
	if r.cfg.Retention <= 0 || r.halted {
		return
	}
	old, ok := r.history.note(r.now, r.store.Revision(), r.cfg.Retention)
	if !ok || !r.serving {
		return
	}
	// One compaction at a time, and not before the keyspace has removed what the last one compacted.
	compacted := r.store.CompactRevision()
	if old <= max(compacted, r.history.proposed) || r.store.Trimmed() < compacted || old <= emptyRevision {
		return
	}
	r.history.proposed = old
	r.intake.AddOwn(entry.Compact{Revision: old})
}

// emptyRevision is the revision of a keyspace that was never written.
const emptyRevision = 1

// note takes a sample if it is time to, and returns the newest revision that was current at least retention ago. ok
// is false if no such revision is known.
func (h *history) note(now clock.Instant, revision int64, retention time.Duration) (old int64, ok bool) {
	interval := max(retention/retentionSamples, minSampleInterval)
	if n := len(h.samples); n == 0 || now.Elapsed(h.samples[n-1].at) >= interval {
		h.samples = append(h.samples, sample{now, revision})
	}
	for len(h.samples) > 1 && now.Elapsed(h.samples[1].at) >= retention {
		h.samples = h.samples[1:]
	}
	oldest := h.samples[0]
	return oldest.revision, now.Elapsed(oldest.at) >= retention
}

// waitingTrim is the answer to a physical [entry.Compact], which waits until all revisions up to its own are removed.
type waitingTrim struct {
	revision int64
	id       uint64 // of the Request
}

// trim removes some of the compacted revisions, which can no longer be read, and answers compactions that waited for
// that.
func (r *Replica) trim() {
	if r.halted {
		return
	}
	if r.store.Trimmable() {
		if err := r.trimSome(); err != nil {
			r.haltWith(fmt.Errorf("the disk failed while compacted history was removed: %w", err))
			return
		}
	}
	for len(r.trims) > 0 && r.trims[0].revision <= r.store.Trimmed() {
		r.emit(Reply{ID: r.trims[0].id, Header: r.Header(), Authority: forever})
		r.trims = r.trims[1:]
	}
}

func (r *Replica) trimSome() error {
	batch := r.db.NewIndexedBatch()
	writer := r.store.Begin(batch)
	if _, err := writer.Trim(trimKeys); err != nil {
		return err
	}
	if err := batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	r.store.Commit(writer)
	r.reuse(batch)
	return nil
}
