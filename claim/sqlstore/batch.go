package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

const (
	// maxUnderWay is how many writes that change an owner are under way before others wait for them.
	maxUnderWay = 2
	// maxGroup is how many are committed at once, and groupLimit bounds how long that may take.
	maxBatch   = 64
	batchLimit = 5 * time.Second
	// longWait is how long one waits for those that are under way. If they take longer there is something the matter
	// with them, and it goes beside them.
	longWait = 50 * time.Millisecond
)

// Statement is one with its arguments.
type Statement struct {
	Text string
	Args []any
}

// Grouper is a DB that can commit several statements at once, which costs hardly more than to commit one.
type BatchCommitter interface {
	// Group runs statements as one transaction, in their order, and returns the rows of each when that is committed.
	// An error is a [*Failure] of all of them. Its kind is [backend.ErrUnsupported] if this database never can.
	CommitBatch(ctx context.Context, statements []Statement) ([][][]any, error)
}

// turn is what becomes of a write that may be one of a group.
type fate uint8

const (
	queued    fate = iota
	alone          // by itself, as one of those that are under way
	alongside      // by itself, beside them
	inBatch        // in a group
)

// write is one that waits until others are no longer under way.
type ownerWrite struct {
	name      string
	statement Statement
	fate      fate          // guarded by the lock of the queue
	done      chan struct{} // closed when it goes by itself, or what follows is known
	rows      [][]any
	failed    *Failure
}

// queue has a few writes go at once, each by itself, and the others wait: what has gathered when one of those is done
// goes together, and what comes then gathers until the group is done. So who writes alone never waits, and many do not
// take one commit each. Its zero value is ready.
type writeQueue struct {
	mu       sync.Mutex
	underWay int
	batching bool // one of those under way is a group
	waits    []*ownerWrite
	off      bool // nothing waits any more: the database cannot commit several at once, or the store was closed
	batches  sync.WaitGroup
}

// enter returns whether a write goes at once; if it waits, as what.
func (q *writeQueue) enter(name string, s Statement) (fate, *ownerWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.off:
		return alongside, nil
	case q.underWay < maxUnderWay && len(q.waits) == 0:
		q.underWay++
		return alone, nil
	}
	w := &ownerWrite{name: name, statement: s, done: make(chan struct{})}
	q.waits = append(q.waits, w)
	return queued, w
}

// next is told that one is no longer under way, and whether that was a group. It returns those that go together in its
// place, if there are any.
func (q *writeQueue) finish(group bool) []*ownerWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.batching = q.batching && !group
	if q.batching || len(q.waits) == 0 {
		q.underWay--
		return nil
	}
	return q.startBatch(q.takeOldest())
}

// start has writes go in the place of one that is no longer under way. The lock is held.
func (q *writeQueue) startBatch(group []*ownerWrite) []*ownerWrite {
	if len(group) == 1 {
		group[0].fate = alone
		close(group[0].done)
		return nil
	}
	q.batching = true
	for _, w := range group {
		w.fate = inBatch
	}
	q.batches.Add(1)
	return group
}

// take takes out those that waited longest, but only one of each name. The lock is held.
func (q *writeQueue) takeOldest() []*ownerWrite {
	var group []*ownerWrite
	left := q.waits[:0]
	names := make(map[string]bool, len(q.waits))
	for _, w := range q.waits {
		if names[w.name] || len(group) == maxBatch {
			left = append(left, w)
			continue
		}
		names[w.name] = true
		group = append(group, w)
	}
	clear(q.waits[len(left):])
	q.waits = left
	return group
}

// withdraw takes w out, if it still waits, and returns what has become of it before.
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

// hangs notes that what is under way takes long, and no group is to be waited for.
func (q *writeQueue) stopBatching() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.batching = false
}

// end has nothing wait any more.
func (q *writeQueue) turnOff() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.off = true
	for _, w := range q.waits {
		w.fate = alongside
		close(w.done)
	}
	q.waits = nil
}

// await returns when it is the turn of w, or what became of it is known.
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
			case inBatch: // and it is written, or not
				return t, &Failure{Kind: backend.ErrUnknownOutcome, Err: ctx.Err()}
			default:
				return t, nil // the statement finds out
			}
		}
	}
}

// writeOwner runs the statement of a swap that changes the owner, alone or together with those of other names. now is
// the one that writes nothing where it would have to wait for somebody who has locked the row: it must not hold up
// others, and the statement itself is run beside them then.
func (s *Store) writeOwner(ctx context.Context, what, name, statement, now string, args []any) ([][]any, error) {
	turn, w := s.queue.enter(name, Statement{now, args})
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
		if statement == s.statements.take || statement == s.statements.queue.take { // nobody has locked what is vacant for long
			now = statement
		}
		rows, err := s.writeAlone(ctx, what, now, args)
		if err != nil || len(rows) > 0 || now == statement {
			return rows, err
		}
	}
	return s.write(ctx, what, statement, args...)
}

// writeInTurn writes as one of those that are under way.
func (s *Store) writeAlone(ctx context.Context, what, statement string, args []any) ([][]any, error) {
	defer s.writeFinished(false)
	return s.write(ctx, what, statement, args...)
}

// pass has those that wait go in the place of one write, or of a group, that is no longer under way.
func (s *Store) writeFinished(group bool) {
	if group := s.queue.finish(group); group != nil {
		go s.commitBatch(group) // Wait waits for that
	}
}

// together writes a group. Who is in it and was not written, for whichever reason, tries by himself; unless it is not
// known whether it was.
func (s *Store) commitBatch(group []*ownerWrite) {
	defer s.queue.batches.Done()
	ctx, cancel := context.WithTimeout(context.Background(), batchLimit)
	defer cancel()
	statements := make([]Statement, len(group))
	for i, w := range group {
		statements[i] = w.statement
	}
	rows, err := s.committer.CommitBatch(ctx, statements)
	var f *Failure
	if err != nil {
		f = failureOf(err)
	}
	if f != nil && errors.Is(f.Kind, backend.ErrUnsupported) {
		s.queue.turnOff()
	}
	s.writeFinished(true)
	for i, w := range group {
		switch {
		case f == nil:
			w.rows = rows[i]
		case errors.Is(f.Kind, backend.ErrUnknownOutcome):
			w.failed = f
		}
		close(w.done)
	}
}

// Wait returns when nothing is under way any more that was begun for several callers, who may have gone since. It is
// for the owner of the database, when the store is closed.
func (s *Store) Wait() {
	s.queue.turnOff()
	s.queue.batches.Wait()
}
