package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceparent = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// logInto makes a configuration log into a buffer.
func logInto(cfg *Config) *syncBuffer {
	logged := new(syncBuffer)
	cfg.Logger = slog.New(slog.NewTextHandler(logged, nil))
	return logged
}

// failing makes puts and claims fail with an error that the server does not expect.
func failing(n *node.Node) *faulty {
	fail := func(context.Context) error { return errors.New("out of the blue") }
	return &faulty{Node: n, put: fail, claim: fail}
}

// unexpected returns the lines about unexpected errors.
func unexpected(logged *syncBuffer) (lines []string) {
	for line := range strings.Lines(logged.String()) {
		if strings.Contains(line, "out of the blue") {
			lines = append(lines, line)
		}
	}
	return lines
}

// wantTraced fails the test unless the last of n lines has the trace id, or none if traced is false.
func wantTraced(t *testing.T, lines []string, n int, traced bool) {
	t.Helper()
	if len(lines) != n {
		t.Fatalf("%d lines, want %d: %q", len(lines), n, lines)
	}
	if has := strings.Contains(lines[n-1], "trace_id="+traceID); has != traced || strings.Contains(lines[n-1], "trace_id") != traced {
		t.Errorf("traced: %v, and the line is %q", traced, lines[n-1])
	}
}

func TestUnexpectedErrorIsLoggedWithTheTraceOfTheRequest(t *testing.T) {
	cfg := anyPort()
	logged := logInto(&cfg)
	f := startWith(t, cfg, func(n *node.Node) member { return failing(n) })
	n := 0
	for _, c := range []struct {
		headers []string
		traced  bool
	}{
		{nil, false},
		{[]string{traceparent}, true},
		{[]string{traceparent + "0"}, false},
		{[]string{strings.ToUpper(traceparent)}, false},
		{[]string{traceparent, traceparent}, false},
	} {
		ctx := f.ctx()
		for _, h := range c.headers {
			ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", h)
		}
		_, err := f.kv.Put(ctx, &pb.PutRequest{Key: []byte("k")})
		wantCode(t, err, codes.Internal)
		n++
		wantTraced(t, unexpected(logged), n, c.traced)

		r, err := http.NewRequestWithContext(f.ctx(), http.MethodPost, "http://"+f.server.HTTPAddr()+"/v1/acquire",
			strings.NewReader(`{"name": "n", "lease": "1", "ttlMs": "60000", "holder": {"id": "me"}}`))
		wantOK(t, err)
		r.Header.Set("Content-Type", "application/json")
		for _, h := range c.headers {
			r.Header.Add("Traceparent", h)
		}
		resp, err := http.DefaultClient.Do(r)
		wantOK(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		wantOK(t, err)
		resp.Body.Close()
		n++
		wantTraced(t, unexpected(logged), n, c.traced)
	}
	http.DefaultClient.CloseIdleConnections()
}

// The leader logs the trace of a request that a follower forwards, whether it is unary or a stream.
func TestForwardedRequestKeepsItsTrace(t *testing.T) {
	var logged [2]*syncBuffer
	i := 0
	p := startPairWith(t, func(cfg *Config) { logged[i] = logInto(cfg); i++ })
	fail := failing(nil)
	p.nodes[0].put, p.nodes[0].claim = fail.put, fail.claim
	follower := p.fronts[1]
	ctx := metadata.AppendToOutgoingContext(follower.ctx(), "traceparent", traceparent)
	_, err := follower.kv.Put(ctx, &pb.PutRequest{Key: []byte("k")})
	wantCode(t, err, codes.Internal)
	wantTraced(t, unexpected(logged[0]), 1, true)
	stream, err := leasekeeperv1.NewLeasekeeperClient(follower.conn).Acquire(ctx, &leasekeeperv1.AcquireRequest{
		Name: "n", Lease: 1, TtlMs: 60_000, Holder: &leasekeeperv1.Holder{Id: "me"},
	})
	wantOK(t, err)
	_, err = stream.Recv()
	wantCode(t, err, codes.Internal)
	wantTraced(t, unexpected(logged[0]), 2, true)
	_, err = follower.kv.Put(follower.ctx(), &pb.PutRequest{Key: []byte("k")})
	wantCode(t, err, codes.Internal)
	wantTraced(t, unexpected(logged[0]), 3, false)
}

// brokenHolder fails with an error that the server does not expect.
type brokenHolder struct{ *node.Node }

func (brokenHolder) Hold(context.Context, *node.NameWatch, []entry.Command, func([]node.HoldAnswer)) error {
	return errors.New("out of the blue")
}

func TestHeaderOfAStreamCountsForAllItsRequests(t *testing.T) {
	cfg := anyPort()
	logged := logInto(&cfg)
	f := startWith(t, cfg, func(n *node.Node) member { return brokenHolder{n} })
	for n, headers := range []metadata.MD{metadata.Pairs("traceparent", traceparent), nil} {
		stream, err := f.names().Hold(metadata.NewOutgoingContext(f.ctx(), headers))
		wantOK(t, err)
		for i := range 2 {
			wantOK(t, stream.Send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{{Number: uint64(i + 1), Name: "n", Lease: 7}}}))
			_, err := stream.Recv()
			wantOK(t, err)
			wantTraced(t, unexpected(logged), 2*n+i+1, headers != nil)
		}
		wantOK(t, stream.CloseSend())
	}
}

// A request with a valid header of its own has that trace, and another one that of its stream.
func TestClaimOnAStreamHasATraceOfItsOwn(t *testing.T) {
	cfg := anyPort()
	logged := logInto(&cfg)
	f := startWith(t, cfg, func(n *node.Node) member { return brokenHolder{n} })
	const other = "00-0123456789abcdef0123456789abcdef-00f067aa0ba902b7-01"
	for _, c := range []struct {
		own, ofStream string
		traced        bool
	}{
		{traceparent, "", true},
		{traceparent, other, true},
		{traceparent + "0", "", false},
		{traceparent + "0", traceparent, true},
		{"", "", false},
	} {
		ctx := f.ctx()
		if c.ofStream != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", c.ofStream)
		}
		stream, err := f.names().Hold(ctx)
		wantOK(t, err)
		before := len(unexpected(logged))
		wantOK(t, stream.Send(&leasekeeperv1.HoldRequest{
			Holder: &leasekeeperv1.Holder{Id: "me"},
			Claims: []*leasekeeperv1.HoldClaim{{Number: 1, Name: "n", Lease: 7, TtlMs: 60_000, Traceparent: c.own}},
		}))
		_, err = stream.Recv()
		wantOK(t, err)
		wantTraced(t, unexpected(logged), before+1, c.traced)
		wantOK(t, stream.Send(&leasekeeperv1.HoldRequest{
			Releases: []*leasekeeperv1.HoldRelease{{Number: 2, Name: "n", Lease: 7, Traceparent: c.own}},
		}))
		_, err = stream.Recv()
		wantOK(t, err)
		wantTraced(t, unexpected(logged), before+2, c.traced)
		wantOK(t, stream.CloseSend())
	}
}

// A follower relays the Hold stream with the traces of its requests. Only the leader logs them.
func TestForwardedClaimOnAStreamKeepsItsTrace(t *testing.T) {
	var logged [2]*syncBuffer
	i := 0
	p := startPairWith(t, func(cfg *Config) { logged[i] = logInto(cfg); i++ }, func(s *Server) { s.slow.after = 0 })
	follower := p.fronts[1]
	stream, err := leasekeeperv1.NewLeasekeeperClient(follower.conn).Hold(follower.ctx())
	wantOK(t, err)
	wantOK(t, stream.Send(&leasekeeperv1.HoldRequest{
		Holder: &leasekeeperv1.Holder{Id: "me"},
		Claims: []*leasekeeperv1.HoldClaim{
			{Number: 1, Name: "n", Lease: 7, TtlMs: 60_000},
			{Number: 2, Name: "m", Lease: 8, TtlMs: 60_000, Traceparent: traceparent},
		},
	}))
	for answers := 0; answers < 2; {
		resp, err := stream.Recv()
		wantOK(t, err)
		answers += len(resp.Answers)
	}
	wantTraced(t, slowLines(logged[0]), 1, true)
	wantEqual(t, "lines of the follower", len(slowLines(logged[1])), 0)
	if line := slowLines(logged[0])[0]; !strings.Contains(line, "method="+leasekeeperv1.Leasekeeper_Acquire_FullMethodName) {
		t.Errorf("the line is %q", line)
	}
}

// slowLines returns the lines about slow requests.
func slowLines(logged *syncBuffer) (lines []string) {
	for line := range strings.Lines(logged.String()) {
		if strings.Contains(line, "a traced request was slow") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Every request counts as slow here. The server logs those that are traced, and at most one in each interval.
func TestSlowRequestIsLoggedIfItsClientTracesIt(t *testing.T) {
	cfg := anyPort()
	logged := logInto(&cfg)
	node := startNode(t)
	s, err := newServer(cfg, node)
	wantOK(t, err)
	wantEqual(t, "slow from", s.slow.after, time.Second)
	s.slow.after = 0
	f := startServer(t, s, node)
	slow := func() []string { return slowLines(logged) }
	f.put("untraced", "")
	ctx := metadata.AppendToOutgoingContext(f.ctx(), "traceparent", traceparent)
	put := func() {
		t.Helper()
		_, err := f.kv.Put(ctx, &pb.PutRequest{Key: []byte("k")})
		wantOK(t, err)
	}
	locked, err := v3lockpb.NewLockClient(f.conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("waits")})
	wantOK(t, err)
	wantEqual(t, "lines before a traced request", len(slow()), 0)
	put()
	wantTraced(t, slow(), 1, true)
	if line := slow()[0]; !strings.Contains(line, "method="+pb.KV_Put_FullMethodName) || strings.Contains(line, "left_out") {
		t.Errorf("the line is %q", line)
	}
	s.slow.last.Store(time.Now().Add(time.Hour).UnixNano())
	put()
	put()
	wantEqual(t, "lines within an interval", len(slow()), 1)
	s.slow.last.Store(0)
	_, err = v3lockpb.NewLockClient(f.conn).Unlock(ctx, &v3lockpb.UnlockRequest{Key: locked.Key})
	wantOK(t, err)
	wantTraced(t, slow(), 2, true)
	if line := slow()[1]; !strings.Contains(line, "left_out=2") {
		t.Errorf("the line is %q", line)
	}
}
