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

// An answer to a write that exceeds AnswerBytes is dropped. The write still takes effect.
func TestHugeAnswersToWritesAreDropped(t *testing.T) {
	ctx := t.Context()
	n, err := Start(ctx, Config{Dir: "data", FS: vfs.NewCrashableMem(), AnswerBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(ctx)
	<-n.Ready()
	for i := range 8 {
		if _, _, err := n.Put(ctx, keyspace.PutRequest{Key: fmt.Appendf(nil, "k/%d", i), Value: make([]byte, 100<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	all := keyspace.RangeRequest{Key: []byte("k/"), End: []byte("k0")}
	write := func(key string, reads int) error {
		txn := keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.PutRequest{Key: []byte(key)}}}
		for range reads {
			txn.Success = append(txn.Success, all)
		}
		_, _, err := n.Txn(ctx, txn, false)
		return err
	}
	if err := write("small", 1); err != nil {
		t.Errorf("a txn whose answer fits: %v", err)
	}
	if err := write("huge", 2); !errors.Is(err, replica.ErrAnswerDropped) {
		t.Errorf("a txn whose answer does not fit: %v", err)
	}
	_, got, err := n.Range(ctx, keyspace.RangeRequest{Key: []byte("huge")}, false)
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
	_, deleted, err := n.DeleteRange(ctx, keyspace.DeleteRequest{Key: []byte("k/"), End: []byte("k0"), PrevKV: true})
	if err != nil || len(deleted.Prev) != 8 {
		t.Errorf("a delete whose answer fits: %d, %v", len(deleted.Prev), err)
	}
	for i := range 20 {
		if _, _, err := n.Put(ctx, keyspace.PutRequest{Key: fmt.Appendf(nil, "k/%d", i), Value: make([]byte, 100<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err = n.DeleteRange(ctx, keyspace.DeleteRequest{Key: []byte("k/"), End: []byte("k0"), PrevKV: true}); !errors.Is(err, replica.ErrAnswerDropped) {
		t.Errorf("a delete whose answer does not fit: %v", err)
	}
	if _, got, err = n.Range(ctx, all, false); err != nil || got.Count != 0 {
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
	n, err := Start(ctx, Config{Dir: "data", FS: vfs.NewCrashableMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(ctx)
	<-n.Ready()
	for i := range 8 {
		if _, _, err := n.Put(ctx, keyspace.PutRequest{Key: fmt.Appendf(nil, "k/%d", i), Value: make([]byte, 100<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	all := keyspace.RangeRequest{Key: []byte("k/"), End: []byte("k0")}
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
