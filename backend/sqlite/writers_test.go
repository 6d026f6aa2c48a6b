package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// forgetWriterQueues makes the test begin without the queues of stores that other tests never closed. A new
// file may have the number of a deleted one, and would share its queue.
func forgetWriterQueues() {
	writerQueues.mu.Lock()
	defer writerQueues.mu.Unlock()
	writerQueues.all = nil
}

func linesNow() int {
	writerQueues.mu.Lock()
	defer writerQueues.mu.Unlock()
	return len(writerQueues.all)
}

// All stores of a process that write to one file, under whatever name, share one queue, which ends with the
// last of them. Stores of another file have another queue.
func TestStoresOfOneFileShareAWriterQueue(t *testing.T) {
	forgetWriterQueues()
	path, before := newPath(t), linesNow()
	a := opened(t, path, Config{})
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	b, c := opened(t, link, Config{Namespace: "b"}), opened(t, newPath(t), Config{})
	db := raw(t, path, durable)
	d, err := New(t.Context(), db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if a.file.writerSlot != b.file.writerSlot || a.file.writerSlot != d.file.writerSlot || a.file.writerSlot == c.file.writerSlot || linesNow() != before+2 {
		t.Errorf("the stores of two files stand in %d lines", linesNow()-before)
	}
	a.file.writerSlot <- struct{}{} // a writer is at it
	for _, s := range []*Store{b, d} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := s.Swap(ctx, claim.Swap{Record: record("x", 1)})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("out of its turn: %v", err)
		}
		if _, err := s.Get(t.Context(), "x"); err != nil {
			t.Errorf("a read waits for its turn to write: %v", err)
		}
	}
	mustSwap(t, c, claim.Op{}, record("x", 1)) // another file
	<-a.file.writerSlot
	for i, s := range []*Store{a, b, b, d, c} {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if want := before + []int{2, 2, 2, 1, 0}[i]; linesNow() != want {
			t.Errorf("after closing %d there are %d lines, want %d", i, linesNow(), want)
		}
	}
	if _, err := New(t.Context(), db, Config{Prefix: "!"}); err == nil || linesNow() != before {
		t.Errorf("who was refused stands in line: %v", err)
	}
}

// Writers of several stores do not lock each other out: none of their statements has to be repeated.
func TestWritersOfOneProcessNeverRetryForTheLock(t *testing.T) {
	path := newPath(t)
	var all sync.WaitGroup
	for n := range 6 {
		s := opened(t, path, Config{})
		name := string(rune('a' + n))
		all.Go(func() {
			last := claim.Record{}
			for i := range 30 {
				r := record(name, backend.Token(i+1))
				statement, args := s.file, claim.Swap{Old: last.Op, Record: r, Owner: true}
				if done, err := s.Swap(t.Context(), args); !done || err != nil {
					t.Errorf("%v: %v, %v", statement.path, done, err)
					return
				}
				last = r
			}
		})
	}
	all.Wait()
}

// Writes of several stores that opened one file themselves are one transaction. That one store is closed does not
// make a write of another fail. A store on a database of the caller, whose settings may differ, commits its own alone.
func TestStoresOfOneFileCommitTogether(t *testing.T) {
	forgetWriterQueues()
	path := newPath(t)
	a, b := opened(t, path, Config{}), opened(t, path, Config{Namespace: "b"})
	own, err := New(t.Context(), raw(t, path, durable), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if a.file.queue != b.file.queue || a.file.queue == own.file.queue {
		t.Fatal("the stores have the wrong queues")
	}
	var all sync.WaitGroup
	a.file.writerSlot <- struct{}{}
	for i, s := range []*Store{a, b, a, b} {
		all.Go(func() { mustSwap(t, s, claim.Op{}, record(string(rune('k'+i)), 1)) })
	}
	all.Go(func() { mustSwap(t, own, claim.Op{}, record("own", 1)) })
	waits := a.file.waiting(4)
	own.file.waiting(1)
	a.file.takeTurn(waits[0])
	for _, w := range waits {
		select {
		case <-w.done:
		default:
			t.Error("a write of the batch is not done")
		}
	}
	own.file.waiting(1)
	<-a.file.writerSlot
	all.Wait()

	a.file.writerSlot <- struct{}{}
	all.Go(func() { mustSwap(t, b, claim.Op{}, record("x", 1)) })
	all.Go(func() { mustSwap(t, b, claim.Op{}, record("y", 1)) })
	waits = a.file.waiting(2)
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	a.file.takeTurn(waits[0]) // its statements can no longer be prepared
	<-b.file.writerSlot
	all.Wait()
}
