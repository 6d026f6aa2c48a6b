package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// Connections above the limit are closed at once. New ones are accepted as soon as others close.
func TestConnectionsAboveTheLimitAreClosed(t *testing.T) {
	var logged syncBuffer
	cfg := anyPort()
	cfg.MaxConnections = 2
	cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	f := startWith(t, cfg, nil)
	f.put("a", "")
	second := dial(t, f.server.Addr())
	_, err := pb.NewKVClient(second).Put(f.ctx(), &pb.PutRequest{Key: []byte("a")})
	wantOK(t, err)
	for range 3 {
		third, err := net.Dial("tcp", f.server.Addr())
		wantOK(t, err)
		third.SetReadDeadline(time.Now().Add(waitLimit))
		if n, err := third.Read(make([]byte, 1)); n > 0 || err == nil || status.Code(err) == codes.DeadlineExceeded {
			t.Errorf("read %d bytes and %v", n, err)
		}
		third.Close()
	}
	wantEqual(t, "refused", f.server.metrics.refused[reasonConnections].Load(), 3)
	wantEqual(t, "warnings", strings.Count(logged.String(), "--max-connections"), 1)
	if metrics := f.metrics(); !strings.Contains(metrics, `leasekeeper_connections{listener="grpc"} 2`) {
		t.Error("the metrics do not count 2 connections")
	}
	waiting := make(chan error, 1)
	ctx := f.ctx()
	go func() {
		_, err := pb.NewKVClient(dial(t, f.server.Addr())).Put(ctx, &pb.PutRequest{Key: []byte("a")}, grpc.WaitForReady(true))
		waiting <- err
	}()
	second.Close()
	wantOK(t, <-waiting)
	f.put("a", "") // earlier connections are not affected
}

// At the limit, a new client takes the place of the newest connection of the address that has most.
func TestAddressWithMostConnectionsMakesRoomForOthers(t *testing.T) {
	cfg := anyPort()
	cfg.MaxConnections = 4
	f := startWith(t, cfg, nil)
	put := func(conn *grpc.ClientConn) error {
		_, err := pb.NewKVClient(conn).Put(f.ctx(), &pb.PutRequest{Key: []byte("a")})
		return err
	}
	var crowd []*grpc.ClientConn
	for range cfg.MaxConnections {
		conn := dialFrom(t, "127.0.0.2", f.server.Addr())
		wantOK(t, put(conn))
		crowd = append(crowd, conn)
	}
	f.put("a", "")
	for _, conn := range crowd[:cfg.MaxConnections-1] {
		wantOK(t, put(conn))
	}
	wantCode(t, put(crowd[cfg.MaxConnections-1]), codes.Unavailable)
	f.put("a", "")
	wantEqual(t, "open connections", f.server.limits.connections[0].Open(), cfg.MaxConnections)
}

// metrics returns what Prometheus would scrape.
func (f *front) metrics() string {
	f.t.Helper()
	code, text := f.get("/metrics")
	wantEqual(f.t, "status of /metrics", code, 200)
	return text
}

// A request above the limit fails at once instead of waiting. Renewals continue.
func TestRequestsAboveTheLimitAreRefused(t *testing.T) {
	cfg := anyPort()
	cfg.MaxRequests = 3
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	f := startWith(t, cfg, func(n *node.Node) member {
		return &faulty{Node: n, put: func(context.Context) error {
			entered <- struct{}{}
			<-leave
			return replica.ErrTooLarge
		}}
	})
	f.grant(60, 1)
	k := f.keepAlive(f.ctx())
	var stuck sync.WaitGroup
	for range 3 {
		stuck.Go(func() { f.kv.Put(context.Background(), &pb.PutRequest{Key: []byte("a")}) })
		<-entered
	}
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a")})
	wantStatus(t, err, rpctypes.ErrGRPCRequestTooManyRequests)
	_, err = f.lease.LeaseGrant(f.ctx(), &pb.LeaseGrantRequest{TTL: 60})
	wantStatus(t, err, rpctypes.ErrGRPCRequestTooManyRequests)
	send(t, k, 1)
	renewed, err := k.Recv()
	wantOK(t, err)
	wantEqual(t, "TTL", renewed.TTL, 60)
	close(leave)
	stuck.Wait()
	wantEqual(t, "requests under way", f.server.limits.requests.Open(), 0)
	f.grant(60, 2)
}

// The watchers of all streams of one connection count together. Those of an ended stream no longer count.
func TestWatchersOfAConnectionAreBounded(t *testing.T) {
	cfg := anyPort()
	cfg.MaxWatchers = 3
	f := startWith(t, cfg, nil)
	ctx, cancel := context.WithCancel(f.ctx())
	first, second := f.openWatch(ctx), f.openWatch(f.ctx())
	a := &pb.WatchCreateRequest{Key: []byte("a")}
	first.create(a)
	first.create(a)
	first.want("0@1 created")
	first.want("1@1 created")
	second.create(a)
	second.want("0@1 created")
	refused := "-1@1 created canceled (" + "etcdserver: too many watchers on this connection" + ")"
	second.create(a)
	second.want(refused)
	first.create(&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")}) // an invalid watcher is refused for the bound too
	first.want(refused)

	other := &front{t: t, node: f.node, server: f.server, watch: pb.NewWatchClient(dial(t, f.server.Addr()))}
	third := other.openWatch(f.ctx())
	third.create(a)
	third.want("0@1 created")

	cancel()
	if _, err := first.Recv(); err == nil || err == io.EOF {
		t.Errorf("got %v", err)
	}
	eventually(t, "the first stream has left", func() bool {
		return f.server.limits.watchers.Open() == 2
	})
	second.create(a)
	second.want("1@1 created")
	second.create(&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")})
	second.next() // refused because it is invalid
	second.create(a)
	second.want("2@1 created")
	second.create(a)
	second.want(refused)
}

func TestLeasesAboveTheLimitAreRefused(t *testing.T) {
	node, err := node.Start(t.Context(), node.Config{Dir: t.TempDir(), MaxLeases: 2})
	wantOK(t, err)
	t.Cleanup(func() { node.Stop(limited(t, context.Background())) })
	<-node.Ready()
	f := startOn(t, anyPort(), node)
	f.grant(60, 1)
	f.grant(60, 2)
	_, err = f.lease.LeaseGrant(f.ctx(), &pb.LeaseGrantRequest{TTL: 60})
	wantCode(t, err, codes.ResourceExhausted)
	if text := status.Convert(err).Message(); !strings.Contains(text, "too many leases") || !strings.Contains(text, "--max-leases") {
		t.Errorf("received %q", text)
	}
	_, err = f.lease.LeaseGrant(f.ctx(), &pb.LeaseGrantRequest{TTL: 60, ID: 1})
	wantStatus(t, err, rpctypes.ErrGRPCLeaseExist)
	_, err = f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 1})
	wantOK(t, err)
	f.grant(60, 3)
}

// A small compressed message that becomes large is under the same limits as a large one.
func TestDecompressedRequestsAreBounded(t *testing.T) {
	f := startFront(t)
	put := func(size int) error {
		_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a"), Value: make([]byte, size)}, grpc.UseCompressor("gzip"))
		return err
	}
	wantOK(t, put(1<<20))
	wantStatus(t, put(1700<<10), rpctypes.ErrGRPCRequestTooLarge)
	wantCode(t, put(32<<20), codes.ResourceExhausted)
}
