package server

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// While other requests use all turns of bulk work, large ranges, hashes and reads of history wait. Renewals, claims, puts, and
// reads of single keys do not.
func TestBulkWorkDoesNotDelaySmallRequests(t *testing.T) {
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
	inside := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: whole}}}}
	for what, ask := range map[string]func(context.Context) error{
		"a range of any number of keys":   func(ctx context.Context) error { _, err := f.kv.Range(ctx, whole); return err },
		"a transaction with such a range": func(ctx context.Context) error { _, err := f.kv.Txn(ctx, inside); return err },
		"a hash of the keys": func(ctx context.Context) error {
			_, err := f.maintenance.HashKV(ctx, &pb.HashKVRequest{})
			return err
		},
		"a hash of the history": func(ctx context.Context) error {
			_, err := f.maintenance.Hash(ctx, &pb.HashRequest{})
			return err
		},
	} {
		short, cancel := context.WithTimeout(f.ctx(), 200*time.Millisecond) // for each its own: an expired one would fail at once
		if err := ask(short); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s did not wait for its turn: %v", what, err)
		}
		cancel()
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
	_, err = f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b"), Limit: entry.SmallRange})
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
	received, err := watch.Recv()
	wantOK(t, err)
	wantEqual(t, "events from the history", len(received.Events), 1)
}

// While other requests use all turns, a watcher and a reader wait for a large value, but not for a small one.
func TestLargeMessagesWaitForATurn(t *testing.T) {
	f := startFront(t)
	f.put("large", strings.Repeat("v", 2*largeAnswer))
	watch := f.openWatch(f.ctx())
	for _, key := range []string{"large", "small"} {
		wantOK(t, watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte(key)}}}))
		_, err := watch.Recv()
		wantOK(t, err)
	}
	var gives []func()
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		give, err := keyspace.TakeTurn(keyspace.InTurn(f.ctx(), f.server.bulk, "another"))
		wantOK(t, err)
		gives = append(gives, give)
	}
	f.put("small", "v")
	received, err := watch.Recv()
	wantOK(t, err)
	wantEqual(t, "the key of the event", string(received.Events[0].Kv.Key), "small")
	short, cancel := context.WithTimeout(f.ctx(), 200*time.Millisecond)
	defer cancel()
	if _, err := f.kv.Range(short, &pb.RangeRequest{Key: []byte("large")}); err == nil {
		t.Error("a large answer did not wait for its turn")
	}
	f.put("large", strings.Repeat("v", largeMessage))
	f.put("small", "v") // follows the large value on the stream
	events := make(chan *pb.WatchResponse, 1)
	go func() {
		received, _ := watch.Recv() // nil if it fails
		events <- received
	}()
	select {
	case received := <-events:
		t.Errorf("a large message did not wait for its turn: %v", received.GetEvents()[0].GetKv().GetModRevision())
	case <-time.After(200 * time.Millisecond):
	}
	for _, give := range gives {
		give()
	}
	if received := <-events; string(received.GetEvents()[0].GetKv().GetKey()) != "large" {
		t.Errorf("got %v", received)
	}
}

// The client has reset the request before the server begins it.
func TestResetRequestIsNotServed(t *testing.T) {
	f := startFront(t)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := f.server.runBounded(gone, &pb.RangeRequest{Key: []byte("a")}, time.Minute, func(context.Context, any) (any, error) {
		t.Error("it is carried out")
		return nil, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
