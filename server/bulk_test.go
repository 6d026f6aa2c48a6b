package server

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// While others have all turns of bulk work, ranges of any number of keys and reads of history wait. Renewals, claims,
// puts, and reads of single keys do not.
func TestBulkWorkKeepsNobodyElseWaiting(t *testing.T) {
	f := startFront(t)
	f.put("a", "1")
	f.grant(60, 7)
	var gives []func()
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		give, err := keyspace.TakeTurn(keyspace.InTurn(f.ctx(), f.server.bulk, "another"))
		wantOK(t, err)
		gives = append(gives, give)
	}
	whole := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b")}
	short, cancel := context.WithTimeout(f.ctx(), 200*time.Millisecond)
	defer cancel()
	if _, err := f.kv.Range(short, whole); err == nil {
		t.Error("a range of any number of keys did not wait for its turn")
	}
	watch := f.openWatch(f.ctx())
	wantOK(t, watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 1}}}))
	created, err := watch.Recv()
	wantOK(t, err)
	wantEqual(t, "created", created.Created, true)

	f.put("b", "2")
	_, err = f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a")})
	wantOK(t, err)
	_, err = f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b"), Limit: smallRange})
	wantOK(t, err)
	f.hold("name", 8, 60_000)
	renewing := f.keepAlive(f.ctx())
	wantOK(t, renewing.Send(&pb.LeaseKeepAliveRequest{ID: 7}))
	renewed, err := renewing.Recv()
	wantOK(t, err)
	wantEqual(t, "ttl", renewed.TTL, 60)

	for _, give := range gives {
		give()
	}
	_, err = f.kv.Range(f.ctx(), whole)
	wantOK(t, err)
	told, err := watch.Recv()
	wantOK(t, err)
	wantEqual(t, "events from the history", len(told.Events), 1)
}

// A request whose client has gone before it is begun does nothing.
func TestResetRequestsCostNothing(t *testing.T) {
	f := startFront(t)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := f.server.bounded(gone, &pb.RangeRequest{Key: []byte("a")}, time.Minute, func(context.Context, any) (any, error) {
		t.Error("it is carried out")
		return nil, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
