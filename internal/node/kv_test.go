package node

import (
	"context"
	"errors"
	"testing"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

func applied(n *Node) uint64 {
	index, _ := look(context.Background(), n, func(r *replica.Replica, _ clock.Instant) uint64 { return r.Applied() })
	return index
}

func TestTxnWithoutWritesTakesNoLogEntry(t *testing.T) {
	n, ctx := startNode(t, t.TempDir()), t.Context()
	key := []byte("k")
	put := keyspace.TxnRequest{
		Compare: []keyspace.Compare{{Target: keyspace.CompareCreate, Key: key}},
		Success: []keyspace.TxnOp{keyspace.PutRequest{Key: key, Value: []byte("1")}},
		Failure: []keyspace.TxnOp{keyspace.RangeRequest{Key: key}},
	}
	for i, want := range []bool{true, false} {
		h, res, err := n.Txn(ctx, put, false)
		if err != nil || res.Succeeded != want || res.Revision != 2 || h.Revision != 2 {
			t.Fatalf("%d: %+v, %+v, %v", i, h, res, err)
		}
	}
	before := applied(n)
	read := keyspace.TxnRequest{Compare: put.Compare, Success: put.Failure, Failure: put.Failure}
	for _, serializable := range []bool{false, true} {
		h, res, err := n.Txn(ctx, read, serializable)
		if err != nil || res.Succeeded || h.Revision != 2 || len(res.Results[0].(keyspace.RangeResult).KVs) != 1 {
			t.Errorf("%+v, %+v, %v", h, res, err)
		}
	}
	for _, c := range []struct {
		req  keyspace.TxnRequest
		want error
	}{
		{keyspace.TxnRequest{Success: []keyspace.TxnOp{put.Success[0], put.Success[0]}}, keyspace.ErrDuplicateKey},
		{keyspace.TxnRequest{Success: []keyspace.TxnOp{nil}}, keyspace.ErrKeyNotFound},
		{keyspace.TxnRequest{Success: []keyspace.TxnOp{
			keyspace.PutRequest{Key: key, Value: make([]byte, replica.DefaultMaxRequestBytes)}}}, replica.ErrTooLarge},
	} {
		if _, _, err := n.Txn(ctx, c.req, false); !errors.Is(err, c.want) {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	if after := applied(n); after != before {
		t.Errorf("reads and nonsense took %d log entries", after-before)
	}
}

func TestCompactedRevisionsAreUnreadable(t *testing.T) {
	n, ctx := startNode(t, t.TempDir()), t.Context()
	mustPut(t, n, "k", "1", 0)
	mustPut(t, n, "k", "2", 0)
	h, err := n.Compact(ctx, 3, true)
	if err != nil || h.Revision != 3 {
		t.Fatalf("%+v, %v", h, err)
	}
	old := keyspace.RangeRequest{Key: []byte("k"), Revision: 2}
	if _, _, err := n.Range(ctx, old, false); !errors.Is(err, keyspace.ErrCompacted) {
		t.Errorf("an old revision: %v", err)
	}
	for rev, want := range map[int64]error{3: keyspace.ErrCompacted, -1: keyspace.ErrCompacted, 4: keyspace.ErrFutureRevision} {
		for _, physical := range []bool{false, true} {
			if _, err := n.Compact(ctx, rev, physical); !errors.Is(err, want) {
				t.Errorf("compact %d: %v", rev, err)
			}
		}
	}
	if got := get(t, n, "k"); len(got) != 1 || string(got[0].Value) != "2" {
		t.Errorf("after all: %+v", got)
	}
}
