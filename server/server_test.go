package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

func TestZeroConfigIsValid(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestConfigReportsAllProblems(t *testing.T) {
	err := Config{
		ListenClient: "nowhere", ListenHTTP: "127.0.0.1:port", Advertise: []string{"ftp://x:1", "0.0.0.0:2379", "http://host", "http://h:1/x"},
		RequestTimeout: -1, ProgressInterval: -1, MaxRequestBytes: -1, MaxTxnOps: TxnOpsLimit + 1, MaxStreams: -1, MaxRenewals: 1 << 30, MaxWatchers: -1,
		MaxConnections: -1, MaxRequests: -1,
	}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"nowhere", "127.0.0.1:port", "ftp://x:1", "0.0.0.0:2379", "http://host", "http://h:1/x",
		"RequestTimeout", "ProgressInterval", "MaxRequestBytes", "MaxTxnOps", "MaxStreams", "MaxRenewals", "MaxWatchers", "MaxConnections", "MaxRequests"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("does not speak of %s: %v", part, err)
		}
	}
}

func TestWildcardNeedsAdvertise(t *testing.T) {
	for _, addr := range []string{":2379", "0.0.0.0:2379", "[::]:2379"} {
		err := Config{ListenClient: addr}.Validate()
		if err == nil || !strings.Contains(err.Error(), "--advertise") || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v", addr, err)
		}
		wantOK(t, Config{ListenClient: addr, Advertise: []string{"here:2379"}}.Validate())
	}
	// Clients never use the HTTP address, so it may be a wildcard.
	wantOK(t, Config{ListenHTTP: ":2381"}.Validate())
}

func TestNewNeedsANode(t *testing.T) {
	if _, err := New(Config{}, nil); err == nil {
		t.Error("accepted")
	}
	if _, err := New(Config{ListenClient: "x"}, startNode(t)); err == nil {
		t.Error("accepted an invalid configuration")
	}
}

func TestStartReportsAPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	wantOK(t, err)
	defer taken.Close()
	addr := taken.Addr().String()
	node := startNode(t)
	for flag, cfg := range map[string]Config{
		"--listen": {ListenClient: addr, ListenHTTP: "127.0.0.1:0"},
		"--http":   {ListenClient: "127.0.0.1:0", ListenHTTP: addr},
	} {
		s, err := New(cfg, node)
		wantOK(t, err)
		err = s.Start()
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("got %v", err)
		}
		if text := err.Error(); !strings.Contains(text, addr) || !strings.Contains(text, flag) || strings.Contains(text, "\n") {
			t.Errorf("%q does not name %s and %s", text, addr, flag)
		}
		wantEqual(t, "addresses", s.Addr()+s.HTTPAddr(), "")
		wantOK(t, s.Stop(t.Context()))
	}
}

func TestStartReportsAForeignAddress(t *testing.T) {
	s, err := New(Config{ListenClient: "192.0.2.1:2379"}, startNode(t)) // an address reserved for documentation
	wantOK(t, err)
	err = s.Start()
	if err == nil || !strings.Contains(err.Error(), "192.0.2.1:2379") || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("got %v", err)
	}
	wantOK(t, s.Stop(t.Context()))
}

func TestHTTPCanBeOff(t *testing.T) {
	cfg := anyPort()
	cfg.ListenHTTP = HTTPOff
	f := startWith(t, cfg, nil)
	wantEqual(t, "HTTP address", f.server.HTTPAddr(), "")
	f.put("a", "")
}

func TestStartOnlyOnce(t *testing.T) {
	f := startFront(t)
	if f.server.Start() == nil {
		t.Error("started twice")
	}
	wantOK(t, f.server.Stop(f.ctx()))
	wantOK(t, f.server.Stop(f.ctx()))
	if f.server.Start() == nil {
		t.Error("started after Stop")
	}
}

// Stop works in order. Watchers of health are notified first, then streams end so that clients try other members, and
// nothing is cut off. TestMain checks that no goroutine remains.
func TestStopEndsLongStreams(t *testing.T) {
	f := startFront(t)
	w := f.openWatch(f.ctx())
	w.create(&pb.WatchCreateRequest{Key: []byte("a"), ProgressNotify: true})
	w.want("0@1 created")
	k := f.keepAlive(f.ctx())
	send(t, k, 1)
	_, err := k.Recv()
	wantOK(t, err)
	h, err := f.health.Watch(f.ctx(), &healthpb.HealthCheckRequest{})
	wantOK(t, err)
	first, err := h.Recv()
	wantOK(t, err)
	wantEqual(t, "status", first.Status, healthpb.HealthCheckResponse_SERVING)

	wantOK(t, f.server.Stop(f.ctx()))
	last, err := h.Recv()
	wantOK(t, err)
	wantEqual(t, "last status", last.Status, healthpb.HealthCheckResponse_NOT_SERVING)
	for name, recv := range map[string]func() error{
		"health": func() error { _, err := h.Recv(); return err },
		"watch":  func() error { _, err := w.Recv(); return err },
		"lease":  func() error { _, err := k.Recv(); return err },
	} {
		t.Log(name)
		wantStatus(t, recv(), rpctypes.ErrGRPCStopped)
	}
	if _, err := net.Dial("tcp", f.server.Addr()); err == nil {
		t.Error("still listening")
	}
}

// A server that will stop soon is not ready, and serves.
func TestServerThatAnnouncesItsStopIsNotReady(t *testing.T) {
	f := startFront(t)
	eventually(t, "the server is ready", func() bool { code, _ := f.get("/readyz"); return code == http.StatusOK })
	f.server.AnnounceStop()
	code, body := f.get("/readyz")
	wantEqual(t, "/readyz", code, http.StatusServiceUnavailable)
	if !strings.Contains(body, "the server is stopping") {
		t.Errorf("/readyz: %s", body)
	}
	resp, err := f.health.Check(f.ctx(), &healthpb.HealthCheckRequest{})
	wantOK(t, err)
	wantEqual(t, "status", resp.Status, healthpb.HealthCheckResponse_NOT_SERVING)
	f.put("a", "")
}

func TestStopCutsOffRequestsAtItsDeadline(t *testing.T) {
	entered := make(chan struct{}, 1)
	f := startWith(t, anyPort(), func(n *node.Node) member {
		return &faulty{Node: n, put: func(ctx context.Context) error {
			entered <- struct{}{}
			<-ctx.Done()
			return errors.Join(replica.ErrUnknownOutcome, ctx.Err())
		}}
	})
	failed := make(chan error, 1)
	go func() {
		_, err := f.kv.Put(context.Background(), &pb.PutRequest{Key: []byte("a")})
		failed <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.server.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that requests were cut off", err)
	}
	wantCode(t, <-failed, codes.Unavailable)
}

func TestStopLetsRequestsFinish(t *testing.T) {
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	f := startWith(t, anyPort(), func(n *node.Node) member {
		return &faulty{Node: n, put: func(context.Context) error {
			entered <- struct{}{}
			<-leave
			return replica.ErrTooLarge
		}}
	})
	failed := make(chan error, 1)
	go func() {
		_, err := f.kv.Put(context.Background(), &pb.PutRequest{Key: []byte("a")})
		failed <- err
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- f.server.Stop(f.ctx()) }()
	<-f.server.Done()
	close(leave)
	wantStatus(t, <-failed, rpctypes.ErrGRPCRequestTooLarge)
	wantOK(t, <-stopped)
}

func TestServeReturnsWhenTheContextEnds(t *testing.T) {
	s, err := New(anyPort(), startNode(t))
	wantOK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, time.Second) }()
	eventually(t, "it listens", func() bool { return s.Addr() != "" && s.HTTPAddr() != "" })
	cancel()
	wantOK(t, <-served)
}

// When the member ends by itself, long streams end, and the owner of the server learns of it.
func TestEndOfTheMemberEndsTheServer(t *testing.T) {
	var logged syncBuffer
	cfg := anyPort()
	cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	f := startWith(t, cfg, nil)
	w := f.openWatch(f.ctx())
	w.create(&pb.WatchCreateRequest{Key: []byte("a")})
	w.want("0@1 created")
	wantOK(t, f.node.Stop(f.ctx()))
	_, err := w.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCStopped)
	_, err = f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a")})
	wantCode(t, err, codes.Unavailable)
	<-f.server.Done()
	code, _ := f.get("/livez")
	wantEqual(t, "/livez", code, 503)
	code, _ = f.get("/metrics")
	wantEqual(t, "/metrics", code, 200)
	if !strings.Contains(logged.String(), "the member has ended") {
		t.Errorf("not in the log: %s", logged.String())
	}
}

func TestFailedListenerEndsTheServer(t *testing.T) {
	s, err := New(anyPort(), startNode(t))
	wantOK(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), time.Second) }()
	eventually(t, "it listens", func() bool { return s.Addr() != "" })
	s.grpcListener.Close()
	err = <-served
	if !errors.Is(err, net.ErrClosed) || !errors.Is(s.Err(), net.ErrClosed) {
		t.Errorf("Serve returned %v, Err %v", err, s.Err())
	}
}

// syncBuffer is a buffer for a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
