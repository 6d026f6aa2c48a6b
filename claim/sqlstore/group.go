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
	maxGroup   = 64
	groupLimit = 5 * time.Second
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
type Grouper interface {
	// Group runs statements as one transaction, in their order, and returns the rows of each when that is committed.
	// An error is a [*Failure] of all of them. Its kind is [backend.ErrUnsupported] if this database never can.
	Group(ctx context.Context, statements []Statement) ([][][]any, error)
}

// turn is what becomes of a write that may be one of a group.
type turn uint8

const (
	waits  turn = iota
	goes        // by itself, as one of those that are under way
	beside      // by itself, beside them
	joined      // in a group
)

// write is one that waits until others are no longer under way.
type write struct {
	name      string
	statement Statement
	turn      turn          // guarded by the lock of the queue
	done      chan struct{} // closed when it goes by itself, or what follows is known
	rows      [][]any
	failed    *Failure
}

// queue has a few writes go at once, each by itself, and the others wait: what has gathered when one of those is done
// goes together, and what comes then gathers until the group is done. So who writes alone never waits, and many do not
// take one commit each. Its zero value is ready.
type queue struct {
	mu       sync.Mutex
	underWay int
	group    bool // one of those under way is a group
	waits    []*write
	off      bool // nothing waits any more: the database cannot commit several at once, or the store was closed
	groups   sync.WaitGroup
}

// enter returns whether a write goes at once; if it waits, as what.
func (q *queue) enter(name string, s Statement) (turn, *write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.off:
		return beside, nil
	case q.underWay < maxUnderWay && len(q.waits) == 0:
		q.underWay++
		return goes, nil
	}
	w := &write{name: name, statement: s, done: make(chan struct{})}
	q.waits = append(q.waits, w)
	return waits, w
}

// next is told that one is no longer under way, and whether that was a group. It returns those that go together in its
// place, if there are any.
func (q *queue) next(group bool) []*write {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.group = q.group && !group
	if q.group || len(q.waits) == 0 {
		q.underWay--
		return nil
	}
	return q.start(q.take())
}

// start has writes go in the place of one that is no longer under way. The lock is held.
func (q *queue) start(group []*write) []*write {
	if len(group) == 1 {
		group[0].turn = goes
		close(group[0].done)
		return nil
	}
	q.group = true
	for _, w := range group {
		w.turn = joined
	}
	q.groups.Add(1)
	return group
}

// take takes out those that waited longest, but only one of each name. The lock is held.
func (q *queue) take() []*write {
	var group []*write
	left := q.waits[:0]
	names := make(map[string]bool, len(q.waits))
	for _, w := range q.waits {
		if names[w.name] || len(group) == maxGroup {
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
func (q *queue) withdraw(w *write) turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.waits {
		if other == w {
			q.waits = append(q.waits[:i], q.waits[i+1:]...)
			break
		}
	}
	return w.turn
}

// hangs notes that what is under way takes long, and no group is to be waited for.
func (q *queue) hangs() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.group = false
}

// end has nothing wait any more.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.off = true
	for _, w := range q.waits {
		w.turn = beside
		close(w.done)
	}
	q.waits = nil
}

// await returns when it is the turn of w, or what became of it is known.
func (q *queue) await(ctx context.Context, w *write) (turn, *Failure) {
	long := time.NewTimer(longWait)
	defer long.Stop()
	for {
		select {
		case <-w.done:
			return w.turn, w.failed
		case <-long.C:
			if q.withdraw(w) == waits {
				q.hangs()
				return beside, nil
			}
		case <-ctx.Done():
			switch t := q.withdraw(w); t {
			case waits:
				return t, &Failure{Kind: backend.ErrUnavailable, Err: ctx.Err()}
			case joined: // and it is written, or not
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
	if turn == waits {
		var f *Failure
		if turn, f = s.queue.await(ctx, w); f != nil {
			return nil, fmt.Errorf("%s: %s: %w: %w", s.Scheme(), what, f.Kind, f.detail())
		}
	}
	switch turn {
	case joined:
		if len(w.rows) > 0 {
			return w.rows, nil
		}
	case goes:
		if statement == s.statements.take || statement == s.statements.queue.take { // nobody has locked what is vacant for long
			now = statement
		}
		rows, err := s.writeInTurn(ctx, what, now, args)
		if err != nil || len(rows) > 0 || now == statement {
			return rows, err
		}
	}
	return s.write(ctx, what, statement, args...)
}

// writeInTurn writes as one of those that are under way.
func (s *Store) writeInTurn(ctx context.Context, what, statement string, args []any) ([][]any, error) {
	defer s.pass(false)
	return s.write(ctx, what, statement, args...)
}

// pass has those that wait go in the place of one write, or of a group, that is no longer under way.
func (s *Store) pass(group bool) {
	if group := s.queue.next(group); group != nil {
		go s.together(group) // Wait waits for that
	}
}

// together writes a group. Who is in it and was not written, for whichever reason, tries by himself; unless it is not
// known whether it was.
func (s *Store) together(group []*write) {
	defer s.queue.groups.Done()
	ctx, cancel := context.WithTimeout(context.Background(), groupLimit)
	defer cancel()
	statements := make([]Statement, len(group))
	for i, w := range group {
		statements[i] = w.statement
	}
	rows, err := s.grouper.Group(ctx, statements)
	var f *Failure
	if err != nil {
		f = failure(err)
	}
	if f != nil && errors.Is(f.Kind, backend.ErrUnsupported) {
		s.queue.end()
	}
	s.pass(true)
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
	s.queue.end()
	s.queue.groups.Wait()
}
