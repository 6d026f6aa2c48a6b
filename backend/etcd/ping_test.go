package etcd_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"

	"github.com/leasekeeper/leasekeeper/backend/etcd"
)

// front forwards requests to a store and delays the answers. Its transport answers pings at once, like that of an etcd
// whose disk or leader is slow.
type front struct {
	to    *grpc.ClientConn
	late  atomic.Int64 // delay of each answer, in nanoseconds
	ended atomic.Int32 // number of client connections that ended
}

func startFront(t *testing.T, to string) (f *front, addr string) {
	t.Helper()
	conn, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()))
	ok(t, err)
	f = &front{to: conn}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	// etcd enforces the same policy.
	s := grpc.NewServer(grpc.UnknownServiceHandler(f.relay), grpc.ForceServerCodec(rawCodec{}), grpc.StatsHandler(f), grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		ok(t, <-served)
		ok(t, conn.Close())
	})
	return f, l.Addr().String()
}

func (f *front) relay(_ any, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	ctx, cancel := context.WithCancel(in.Context())
	defer cancel()
	out, err := f.to.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return err
	}
	go func() {
		var message []byte
		for in.RecvMsg(&message) == nil && out.SendMsg(&message) == nil {
		}
		_ = out.CloseSend() // RecvMsg returns why it fails
	}()
	for {
		var message []byte
		if err := out.RecvMsg(&message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		select {
		case <-time.After(time.Duration(f.late.Load())):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := in.SendMsg(&message); err != nil {
			return err
		}
	}
}

// The methods of [stats.Handler].
func (f *front) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (f *front) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (f *front) HandleRPC(context.Context, stats.RPCStats)                         {}
func (f *front) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, end := s.(*stats.ConnEnd); end {
		f.ended.Add(1)
	}
}

// rawCodec passes encoded messages on unchanged.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// The client renews after a silence of more than ten seconds, so it sends a ping with the renewal. The answer comes after
// 4 s. If only answers are late, the store answers the ping in time and the connection stays. If every byte is late, so is
// the answer to the ping, and the connection counts as dead.
func TestLateAnswersEndNoConnectionThatAnswersPings(t *testing.T) {
	t.Parallel()
	const silence, late = 11 * time.Second, 4 * time.Second
	for _, c := range []struct {
		name string
		slow func(*front, *proxy)
		ends bool
	}{
		{"late answers", func(f *front, _ *proxy) { f.late.Store(int64(late)) }, false},
		{"late bytes", func(_ *front, p *proxy) { p.Delay(late) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startStore(t)
			f, addr := startFront(t, s.Addr)
			p := startProxy(t, addr)
			b := openWith(t, etcd.Config{Endpoints: []string{p.Addr()}})
			l, _ := hold(t, b, unique("pinged"))
			time.Sleep(silence)
			c.slow(f, p)
			ctx, cancel := context.WithCancel(limited(t))
			defer cancel()
			renewed := renewing(t, ctx, b, l, "first")
			if c.ends {
				eventually(t, "the connection counts as dead", func() bool { return f.ended.Load() > 0 })
				cancel()
				<-renewed // however that ended
			} else {
				ok(t, <-renewed)
				if n := f.ended.Load(); n > 0 {
					t.Errorf("%d connections ended, although all pings were answered", n)
				}
			}
			f.late.Store(0)
			p.Delay(0)
		})
	}
}
