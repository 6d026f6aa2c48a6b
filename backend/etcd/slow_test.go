package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
)

// stream is a stream of renewals.
type stream struct {
	call     string // the call of Renew that opens it
	endpoint string
	ctx      context.Context
	opened   bool // on a connection; before that, gRPC itself moves it to another
}

// witness records at which endpoint each stream of renewals is opened.
type witness struct {
	mu      sync.Mutex
	streams []stream
}

type callKey struct{}

// call marks the context of a call of Renew with a name, for the witness.
func call(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callKey{}, name)
}

func (w *witness) option() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		name, _ := ctx.Value(callKey{}).(string)
		w.mu.Lock()
		n := len(w.streams)
		w.streams = append(w.streams, stream{call: name, endpoint: cc.Target(), ctx: ctx})
		w.mu.Unlock()
		opened, err := open(ctx, desc, cc, method, opts...)
		w.mu.Lock()
		w.streams[n].opened = err == nil
		w.mu.Unlock()
		return opened, err
	})
}

// of returns the streams of a call, in order.
func (w *witness) of(name string) (streams []stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.streams {
		if s.call == name {
			streams = append(streams, s)
		}
	}
	return streams
}

// renewing starts a call of Renew, and returns a channel for its result.
func renewing(t *testing.T, ctx context.Context, b *etcd.Backend, l backend.Lease, name string) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		var failed error
		err := b.Renew(call(ctx, name), []backend.Lease{l}, func(_ int, r backend.Renewal) { failed = r.Err })
		if err == nil {
			err = failed
		}
		result <- err
	}()
	return result
}

// While etcd is silent, the backend tries other streams one after the other. The first stream continues, and its late answer
// counts.
func TestRenewalAcceptsALateAnswer(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	w := new(witness)
	b, p, l := established(t, etcd.Config{DialOptions: []grpc.DialOption{w.option()}}, s)
	p.Stall(false)
	renewed := renewing(t, limited(t), b, l, "first")
	eventually(t, "four streams", func() bool { return len(w.of("first")) == 4 })
	streams := w.of("first")
	eventually(t, "two of them are given up", func() bool { return streams[1].ctx.Err() != nil && streams[2].ctx.Err() != nil })
	if streams[0].ctx.Err() != nil {
		t.Error("the first is given up")
	}
	p.Resume()
	ok(t, <-renewed)
}

// A stream that breaks is replaced within the same call.
func TestDeadRenewalStreamIsReplaced(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	w := new(witness)
	b, p, l := established(t, etcd.Config{DialOptions: []grpc.DialOption{w.option()}}, s)
	p.Stall(true)
	renewed := renewing(t, limited(t), b, l, "first")
	eventually(t, "an open stream", func() bool {
		streams := w.of("first")
		return len(streams) > 0 && streams[0].opened
	})
	p.Cut()
	ok(t, <-renewed)
	if n := len(w.of("first")); n < 2 {
		t.Errorf("%d streams", n)
	}
}

// A hedge opens its stream at another endpoint than the call that it hedges.
func TestHedgeTakesAnotherEndpoint(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	for _, endpoints := range []int{2, 3} {
		t.Run(fmt.Sprint(endpoints), func(t *testing.T) {
			t.Parallel()
			w := new(witness)
			var proxies []*proxy
			var addrs []string
			for range endpoints {
				p := startProxy(t, s.Addr)
				proxies, addrs = append(proxies, p), append(addrs, p.Addr())
			}
			b := openWith(t, etcd.Config{Endpoints: addrs, DialOptions: []grpc.DialOption{w.option()}})
			l, _ := hold(t, b, unique("hedged"))
			for _, p := range proxies {
				p.Stall(false)
			}
			ctx, cancel := context.WithCancel(limited(t))
			defer cancel()
			first := renewing(t, ctx, b, l, "first")
			// By then the preferred endpoint has changed, with two endpoints to the first again.
			eventually(t, "three streams", func() bool { return len(w.of("first")) == 3 })
			hedge := renewing(t, backend.Hedge(ctx), b, l, "hedge")
			eventually(t, "a stream of the hedge", func() bool { return len(w.of("hedge")) > 0 })
			if one, other := w.of("first")[0].endpoint, w.of("hedge")[0].endpoint; one == other {
				t.Errorf("both began at %s", one)
			}
			cancel()
			is(t, <-first, context.Canceled)
			is(t, <-hedge, context.Canceled)
		})
	}
}

// An etcd whose answers take 0.4 of the TTL loses no lease. The proxy delays everything, so the delay is less than 3 s, after
// which a connection without an answer to a ping counts as dead.
func TestSlowEtcdLosesNoLease(t *testing.T) {
	t.Parallel()
	const ttl, tenures, many = 6 * time.Second, 4, 50 // more than fit into one check
	s := startStore(t)
	p := startProxy(t, s.Addr)
	b := openWith(t, etcd.Config{Endpoints: []string{p.Addr()}, RequestTimeout: time.Second})
	k, err := leasekeeper.New(b, leasekeeper.WithTTL(ttl))
	ok(t, err)
	leases := make([]*leasekeeper.Lease, many)
	prefix := unique("slow")
	for i := range leases {
		leases[i], err = k.Acquire(limited(t), fmt.Sprint(prefix, "/", i))
		ok(t, err)
	}
	p.Delay(ttl * 4 / 10)
	for end := time.Now().Add(tenures * ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		for _, l := range leases {
			if err := l.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.Delay(0)
	ok(t, k.Shutdown(limited(t)))
}
