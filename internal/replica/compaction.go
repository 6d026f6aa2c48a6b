package replica

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
)

// history is what this member knows of old revisions, for automatic compaction.
type history struct {
	revisions intake.Revisions
	proposed  int64 // the revision of this member's compaction in flight, or at most that of the last one
}

// retireHistory notes which revision is current. If it is due, it proposes to compact to the newest revision that was
// superseded long enough ago.
func (r *Replica) retireHistory() {
	if r.cfg.Retention <= 0 || r.halted {
		return
	}
	old, ok := r.history.revisions.Note(r.now, r.store.Revision(), r.cfg.Retention)
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
		err := r.clean(r.db.NewIndexedBatch(), func(w *keyspace.Writer) error {
			_, err := w.Trim(trimKeys)
			return err
		})
		if err != nil {
			r.haltWith(fmt.Errorf("the disk failed while compacted history was removed: %w", err))
			return
		}
	}
	for len(r.trims) > 0 && r.trims[0].revision <= r.store.Trimmed() {
		r.emit(Reply{ID: r.trims[0].id, Header: r.Header(), Authority: forever})
		r.trims = r.trims[1:]
	}
}

// sweep removes some keys of ended leases. They have been invisible since their lease ended.
func (r *Replica) sweep() {
	if !r.sweeping || r.halted || r.installing {
		return
	}
	if r.unswept++; r.full && r.unswept < sweepPatience {
		return
	}
	r.unswept = 0
	err := r.clean(r.db.NewBatch(), func(w *keyspace.Writer) (err error) { // not indexed: nothing is read from it
		r.sweeping, err = w.Sweep(sweepKeys)
		return err
	})
	if err != nil {
		r.haltWith(fmt.Errorf("the disk failed while keys of ended leases were removed: %w", err))
	}
}

// clean removes data that cannot be read any longer.
func (r *Replica) clean(batch *pebble.Batch, remove func(*keyspace.Writer) error) error {
	writer := r.store.Begin(batch)
	if err := remove(writer); err != nil {
		return err
	}
	if err := batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	r.store.Commit(writer)
	r.reuse(batch)
	return nil
}
