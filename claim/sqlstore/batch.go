package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

const (
	// maxUnderWay is how many owner changes, or batches of them, may be under way before others wait for them.
	maxUnderWay = 2
	// enough is how many writes go together while another batch is under way. Fewer wait for its end.
	enough = 32
	// maxBatch is how many writes one batch commits, and batchLimit bounds how long that may take.
	maxBatch   = 64
	batchLimit = 5 * time.Second
	// longWait is how long a write waits for those under way. If they take longer, something is wrong with
	// them, and the write runs alongside them.
	longWait = 50 * time.Millisecond
)

// fate is how a write of an owner change is run.
type fate uint8

const (
	queued    fate = iota
	alone          // on its own, as one of those under way
	alongside      // on its own, in addition to those under way
	inBatch        // as part of a batch
)

// ownerWrite is a write that waits until those under way are done.
type ownerWrite struct {
	store     *Store
	name      string
	statement string // the variant that waits for no lock
	args      []any
	fate      fate          // guarded by the lock of the queue
	done      chan struct{} // closed when the write is to run on its own, or when rows and failed are set
	rows      [][]any
	failed    *Failure
}

// writeQueue lets a few writes run at the same time, each on its own, while the others wait. When one is done,
// the writes that have gathered run as one batch. While a batch is under way, all writes gather for the next one. So
// a single writer never waits, and many writers need neither a statement nor a commit each. Its zero value is ready to
// use.
type writeQueue struct {
	mu       sync.Mutex
	underWay int
	batching int // how many of those under way are batches
	waits    []*ownerWrite
}

// enter returns whether a write of a store runs at once. If it waits, enter returns its entry in the queue. If that
// makes enough writes for one more batch, it returns the batch too.
func (q *writeQueue) enter(s *Store, name, statement string, args []any) (f fate, w *ownerWrite, batch []*ownerWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case s.unqueued:
		return alongside, nil, nil
	case q.underWay < maxUnderWay && q.batching == 0 && len(q.waits) == 0:
		q.underWay++
		return alone, nil, nil
	}
	w = &ownerWrite{store: s, name: name, statement: statement, args: args, done: make(chan struct{})}
	q.waits = append(q.waits, w)
	if q.underWay < maxUnderWay && q.isEnough() {
		q.underWay++
		batch = q.startBatch(q.takeOldest())
	}
	return queued, w, batch
}

// isEnough reports whether the waiting writes need not gather any longer. The caller holds the lock.
func (q *writeQueue) isEnough() bool {
	return len(q.waits) > 0 && (q.batching == 0 || len(q.waits) >= enough)
}

// finish notes that a write, or a batch, is done. It returns the writes of the batch that takes its place, if
// there is one.
func (q *writeQueue) finish(batch bool) []*ownerWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	if batch {
		q.batching = max(0, q.batching-1)
	}
	if !q.isEnough() {
		q.underWay--
		return nil
	}
	return q.startBatch(q.takeOldest())
}

// startBatch starts writes as one of those under way. The caller holds the lock.
func (q *writeQueue) startBatch(batch []*ownerWrite) []*ownerWrite {
	if len(batch) == 1 {
		batch[0].fate = alone
		close(batch[0].done)
		return nil
	}
	q.batching++
	for _, w := range batch {
		w.fate = inBatch
	}
	batch[0].store.batches.Add(1)
	return batch
}

// takeOldest removes the writes that waited longest, at most one of each name. The caller holds the lock.
func (q *writeQueue) takeOldest() []*ownerWrite {
	var batch []*ownerWrite
	left := q.waits[:0]
	names := make(map[string]bool, len(q.waits))
	for _, w := range q.waits {
		if names[w.name] || len(batch) == maxBatch {
			left = append(left, w)
			continue
		}
		names[w.name] = true
		batch = append(batch, w)
	}
	clear(q.waits[len(left):])
	q.waits = left
	return batch
}

// withdraw removes w if it still waits, and returns its fate before that.
func (q *writeQueue) withdraw(w *ownerWrite) fate {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.waits {
		if other == w {
			q.waits = append(q.waits[:i], q.waits[i+1:]...)
			break
		}
	}
	return w.fate
}

// stopBatching notes that the writes under way take long, so no batch is to be waited for.
func (q *writeQueue) stopBatching() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.batching = 0
}

// turnOff makes the writes of a store run without waiting from now on.
func (q *writeQueue) turnOff(s *Store) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.unqueued = true
	q.waits = slices.DeleteFunc(q.waits, func(w *ownerWrite) bool {
		if w.store != s {
			return false
		}
		w.fate = alongside
		close(w.done)
		return true
	})
}

// await returns when w may run on its own, or its outcome is known.
func (q *writeQueue) await(ctx context.Context, w *ownerWrite) (fate, *Failure) {
	long := time.NewTimer(longWait)
	defer long.Stop()
	for {
		select {
		case <-w.done:
			return w.fate, w.failed
		case <-long.C:
			if q.withdraw(w) == queued {
				q.stopBatching()
				return alongside, nil
			}
		case <-ctx.Done():
			switch t := q.withdraw(w); t {
			case queued:
				return t, &Failure{Kind: backend.ErrUnavailable, Err: ctx.Err()}
			case inBatch: // the batch that is under way may or may not write it
				return t, &Failure{Kind: backend.ErrUnknownOutcome, Err: ctx.Err()}
			default:
				return t, nil // the statement finds that the context has ended
			}
		}
	}
}

// writeOwner runs the statement of a swap that changes the owner, on its own or in a batch with those of other
// names. now is the variant that writes nothing if the row is locked, instead of waiting for that lock. So it
// does not delay the rest of its batch; if it wrote nothing, the statement itself runs alongside the others.
func (s *Store) writeOwner(ctx context.Context, what, name, statement, now string, args []any) ([][]any, error) {
	turn, w, batch := s.queue.enter(s, name, now, args)
	run(batch)
	if turn == queued {
		var f *Failure
		if turn, f = s.queue.await(ctx, w); f != nil {
			return nil, fmt.Errorf("%s: %s: %w: %w", s.Scheme(), what, f.Kind, f.detail())
		}
	}
	switch turn {
	case inBatch:
		if len(w.rows) > 0 {
			return w.rows, nil
		}
	case alone:
		// No transaction locks a vacant row for long.
		if statement == s.statements.take || statement == s.statements.queue.take {
			now = statement
		}
		rows, err := s.writeAlone(ctx, what, now, args)
		if err != nil || len(rows) > 0 || now == statement {
			return rows, err
		}
	}
	return s.write(ctx, what, statement, args...)
}

// writeAlone runs one of the writes under way.
func (s *Store) writeAlone(ctx context.Context, what, statement string, args []any) ([][]any, error) {
	defer s.writeFinished(false)
	return s.write(ctx, what, statement, args...)
}

// writeFinished lets waiting writes take the place of a write, or batch, that is done.
func (s *Store) writeFinished(batch bool) {
	run(s.queue.finish(batch))
}

// run starts a batch, if there is one.
func run(batch []*ownerWrite) {
	if batch != nil {
		go batch[0].store.commitBatch(batch) // its Wait waits for it
	}
}

// commitBatch writes a batch with one statement. It may have writes of other stores of the same queue. A write that the batch has not written, for whatever reason, is tried
// again on its own, unless its outcome is unknown.
func (s *Store) commitBatch(batch []*ownerWrite) {
	defer s.batches.Done()
	ctx, cancel := context.WithTimeout(context.Background(), batchLimit)
	defer cancel()
	statement, args := s.statements.together, make([][]any, len(batch))
	for i, w := range batch {
		args[i] = s.statements.member(s.tables, w)
		if w.statement == s.statements.queue.takeNow {
			statement = s.statements.queue.together
		}
	}
	rows, err := s.db.Query(ctx, statement, s.dialect.togetherArgs(s.config, s.tables.columns(), args)...)
	s.writeFinished(true)
	var unknown *Failure
	if err != nil {
		if f := failureOf(err); errors.Is(f.Kind, backend.ErrUnknownOutcome) {
			unknown = f
		}
	}
	written := make(map[string][]any, len(rows))
	for _, row := range rows {
		if name, ok := row[0].(string); ok {
			written[name] = row[1:]
		}
	}
	for _, w := range batch {
		if row, did := written[w.name]; did {
			w.rows = [][]any{row}
		}
		w.failed = unknown
		close(w.done)
	}
}

// Wait returns when no batch is under way on this store's database: its callers may be gone by then. The owner of the
// database calls it when the store is closed.
func (s *Store) Wait() {
	s.queue.turnOff(s)
	s.batches.Wait()
}
