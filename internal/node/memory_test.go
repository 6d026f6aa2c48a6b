package node

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// withValues starts a member whose answers to writes may take 16 MiB in all, with n values of 100 KiB under "k/".
func withValues(t *testing.T, n int) *Node {
	t.Helper()
	member, err := Start(t.Context(), Config{Dir: "data", FS: vfs.NewCrashableMem(), AnswerBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { member.Stop(context.WithoutCancel(t.Context())) })
	<-member.Ready()
	for i := range n {
		if _, _, err := member.Put(t.Context(), keyspace.PutRequest{Key: fmt.Appendf(nil, "k/%d", i), Value: make([]byte, 100<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	return member
}

var (
	allValues    = keyspace.RangeRequest{Key: []byte("k/"), End: []byte("k0")}
	deleteValues = keyspace.DeleteRequest{Key: []byte("k/"), End: []byte("k0"), PrevKV: true}
)

// An answer to a write that exceeds AnswerBytes is dropped. The write still takes effect.
func TestHugeAnswersToWritesAreDropped(t *testing.T) {
	n := withValues(t, 8)
	write := func(key string, reads int) error {
		txn := keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.PutRequest{Key: []byte(key)}}}
		for range reads {
			txn.Success = append(txn.Success, allValues)
		}
		_, _, err := n.Txn(t.Context(), txn, false)
		return err
	}
	if err := write("small", 1); err != nil {
		t.Errorf("a txn whose answer fits: %v", err)
	}
	if err := write("huge", 2); !errors.Is(err, replica.ErrAnswerDropped) {
		t.Errorf("a txn whose answer does not fit: %v", err)
	}
	_, got, err := n.Range(t.Context(), keyspace.RangeRequest{Key: []byte("huge")}, false)
	if err != nil || got.Count != 1 {
		t.Errorf("the txn was not carried out: %v", err)
	}
	// Answers count until the garbage collector frees them.
	for range 30 {
		for err = write("again", 1); errors.Is(err, replica.ErrAnswerDropped); err = write("again", 1) {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnswerToADeleteFits(t *testing.T) {
	n := withValues(t, 8)
	_, deleted, err := n.DeleteRange(t.Context(), deleteValues)
	if err != nil || len(deleted.Prev) != 8 {
		t.Errorf("%d deleted values, %v", len(deleted.Prev), err)
	}
}

func TestHugeAnswerToADeleteIsDropped(t *testing.T) {
	n := withValues(t, 20)
	if _, _, err := n.DeleteRange(t.Context(), deleteValues); !errors.Is(err, replica.ErrAnswerDropped) {
		t.Errorf("a delete whose answer does not fit: %v", err)
	}
	if _, got, err := n.Range(t.Context(), allValues, false); err != nil || got.Count != 0 {
		t.Errorf("the delete was not carried out: %d keys are left, %v", got.Count, err)
	}
}

// countedRoom is a [keyspace.Room] for a fixed number of bytes.
type countedRoom struct{ left int } // bytes

func (r *countedRoom) Take(bytes int) error {
	if bytes > r.left {
		return keyspace.ErrNoRoom
	}
	r.left -= bytes
	return nil
}

func (r *countedRoom) Give(bytes int) { r.left += bytes }

// A read reserves memory before it builds its answer, and fails if there is too little.
func TestReadsReserveMemoryBeforeBuilding(t *testing.T) {
	ctx := t.Context()
	n, all := withValues(t, 8), allValues
	counted, last := all, all
	counted.CountOnly = true
	last.Limit, last.SortOrder = 1, keyspace.SortDescend
	const value = 100 << 10
	for _, c := range []struct {
		name        string
		do          func(ctx context.Context) error
		room, takes int // in values
		err         error
	}{
		{"all, in enough room", rangeIn(n, all), 9, 8, nil},
		{"all, in too little", rangeIn(n, all), 7, 0, keyspace.ErrNoRoom},
		{"the count alone", rangeIn(n, counted), 0, 0, nil},
		{"one of all, by an order that must see all", rangeIn(n, last), 3, 1, nil},
		{"a txn that reads twice", func(ctx context.Context) error {
			_, _, err := n.Txn(ctx, keyspace.TxnRequest{Success: []keyspace.TxnOp{all, all}}, false)
			return err
		}, 15, 0, keyspace.ErrNoRoom},
	} {
		room := &countedRoom{c.room * value}
		if err := c.do(keyspace.WithRoom(ctx, room)); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
		if took := (c.room*value - room.left + value/2) / value; c.err == nil && took != c.takes {
			t.Errorf("%s: it took room for %d values, want %d", c.name, took, c.takes)
		}
	}
}

func rangeIn(n *Node, req keyspace.RangeRequest) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, _, err := n.Range(ctx, req, false)
		return err
	}
}
