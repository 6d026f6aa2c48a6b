package etcd_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
)

// isMethod reports whether a request is of a kind. A transaction is a Read or a Write.
func isMethod(kind, method string, req any) bool {
	last := method[strings.LastIndexByte(method, '/')+1:]
	if txn, ok := req.(*pb.TxnRequest); ok {
		last = "Read"
		for _, op := range txn.Success {
			if op.GetRequestPut() != nil || op.GetRequestDeleteRange() != nil {
				last = "Write"
			}
		}
	}
	return last == kind
}

// times returns a decision that injects a fault into the first n requests of a kind.
func times(n int32, what fault, kind string) func(string, any) fault {
	var done atomic.Int32
	return func(method string, req any) fault {
		if isMethod(kind, method, req) && done.Add(1) <= n {
			return what
		}
		return pass
	}
}

const always = 1 << 30

// A claim that failed has left nothing. A claim with an unknown outcome can be released or repeated. A claim that succeeded
// is one lease. That holds whichever answers are lost.
func TestClaimSurvivesLostAnswers(t *testing.T) {
	s := startStore(t)
	for _, kind := range []string{"Read", "Write", "LeaseGrant", "LeaseRevoke", "LeaseTimeToLive", "LeaseKeepAlive"} {
		for _, what := range []fault{lose, unsent} {
			for _, n := range []int32{1, 2, always} {
				for _, wait := range []bool{false, true} {
					for _, again := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s/%d/%d/%v/%v", kind, what, n, wait, again), func(t *testing.T) {
							t.Parallel()
							claimWithFaults(t, s, times(n, what, kind), wait, again)
						})
					}
				}
			}
		}
	}
}

func claimWithFaults(t *testing.T, s *store, decide func(string, any) fault, wait, again bool) {
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	claim := newClaim(unique("lost"), wait)
	if again {
		_, _, err := b.Claim(limited(t), claim)
		ok(t, err)
	}
	f.Set(decide)
	l, g, err := b.Claim(limited(t), claim)
	f.Set(nil)
	id := etcd.LeaseIDOf(claim.ID)
	switch {
	case err == nil:
		keys := s.Keys(claim.Name + "/")
		if !g.Held || len(keys) != 1 || keys[0].CreateRevision != int64(g.Token) || g.TTL != claim.TTL {
			t.Errorf("granted %+v, there is %v", g, keys)
		}
		ok(t, b.Release(limited(t), l))
	case errors.Is(err, backend.ErrUnknownOutcome):
		if l == nil {
			t.Fatal("an unknown outcome without a lease")
		}
		is(t, renew(t, b, l).Err, backend.ErrInvalid)
		// Releasing and claiming again both work.
		if l2, g, err := b.Claim(limited(t), claim); err != nil || !g.Held {
			t.Errorf("claimed again: %+v, %v", g, err)
		} else if again {
			ok(t, b.Release(limited(t), l2))
		}
		ok(t, b.Release(limited(t), l))
	default:
		is(t, err, backend.ErrUnavailable)
		if l != nil {
			t.Error("an error that says that nothing was changed comes with a lease")
		}
		if again {
			return // the earlier claim belongs to the caller
		}
	}
	s.None(claim.Name)
	if s.Alive(id) {
		t.Error("the lease is left")
	}
}

// A claim that finds its name held leaves nothing, or has an unknown outcome.
func TestClaimOfAHeldNameSurvivesLostAnswers(t *testing.T) {
	s := startStore(t)
	for _, kind := range []string{"Read", "Write", "LeaseRevoke", "LeaseTimeToLive"} {
		for _, n := range []int32{1, always} {
			t.Run(fmt.Sprint(kind, n), func(t *testing.T) {
				f := new(faults)
				b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
				name := unique("held")
				hold(t, b, name)
				claim := newClaim(name, true)
				stand := claim
				stand.Wait = false
				if _, _, err := b.Claim(limited(t), claim); err != nil {
					t.Fatal(err)
				}
				f.Set(times(n, lose, kind))
				l, _, err := b.Claim(limited(t), stand) // no longer wants to wait
				f.Set(nil)
				switch {
				case errors.Is(err, backend.ErrHeld):
					if errors.Is(err, backend.ErrUnknownOutcome) || l != nil || len(s.Keys(name+"/")) != 1 {
						t.Errorf("%v, %v: %v", l, err, s.Keys(name+"/"))
					}
				case errors.Is(err, backend.ErrUnknownOutcome):
					if l == nil {
						t.Fatal("no lease")
					}
					ok(t, b.Release(limited(t), l))
				default:
					is(t, err, backend.ErrUnavailable)
				}
			})
		}
	}
}

func TestReleaseSurvivesLostAnswers(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	for _, c := range []struct {
		what fault
		n    int32
		kind error
	}{{lose, 1, nil}, {lose, 3, nil}, {lose, always, backend.ErrUnknownOutcome}, {unsent, 1, nil}, {unsent, always, backend.ErrUnavailable}} {
		name := unique("release")
		l, _ := hold(t, b, name)
		f.Set(times(c.n, c.what, "LeaseRevoke"))
		err := b.Release(limited(t), l)
		f.Set(nil)
		if c.kind == nil {
			ok(t, err)
		} else {
			is(t, err, c.kind)
			for _, other := range []error{backend.ErrUnknownOutcome, backend.ErrUnavailable} {
				if other != c.kind && errors.Is(err, other) {
					t.Errorf("of two kinds: %v", err)
				}
			}
		}
		ok(t, b.Release(limited(t), l))
		s.None(name)
	}
}

func TestAnnounceAndRevokeSurviveLostAnswers(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	name := unique("announce")
	l, g := hold(t, b, name)
	f.Set(times(1, lose, "Write"))
	ok(t, b.Announce(limited(t), l, "one"))
	f.Set(times(always, lose, "Write"))
	is(t, b.Announce(limited(t), l, "two"), backend.ErrUnknownOutcome)
	f.Set(times(always, unsent, "Write"))
	is(t, b.Announce(limited(t), l, "three"), backend.ErrUnavailable)
	is(t, b.Revoke(limited(t), name, g.Token, "", true), backend.ErrUnavailable)
	f.Set(nil)
	info, err := b.Get(limited(t), name)
	ok(t, err)
	if info.Holder.Card.Text != "two" || info.Holder.Card.PID != 1 {
		t.Errorf("%+v", info)
	}
	f.Set(times(1, lose, "Write"))
	ok(t, b.Revoke(limited(t), name, g.Token, "", true))
	f.Set(nil)
	is(t, b.Announce(limited(t), l, "four"), backend.ErrLost)
	s.None(name)
}

// unusedAddress is an address on which no server listens.
func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestUnreachableEtcdIsUnavailable(t *testing.T) {
	b := open(t, unusedAddress(t), unusedAddress(t))
	l, _, err := b.Claim(limited(t), newClaim("x", true))
	if is(t, err, backend.ErrUnavailable); l != nil {
		t.Error("a lease without a server")
	}
	_, err = b.Get(limited(t), "x")
	is(t, err, backend.ErrUnavailable)
	_, err = b.List(limited(t), "", "", 1)
	is(t, err, backend.ErrUnavailable)
	is(t, b.Watch(limited(t), "", func(backend.Event) {}), backend.ErrUnavailable)
}

// One of two members cannot be reached, or is silent. The other one serves.
func TestRequestsGoToAnEndpointThatAnswers(t *testing.T) {
	s := startStore(t)
	p := startProxy(t, s.Addr)
	p.Stall(false)
	for _, dead := range []string{unusedAddress(t), p.Addr()} {
		b := openWith(t, etcd.Config{Endpoints: []string{dead, s.Addr}, RequestTimeout: 300 * time.Millisecond})
		l, _ := hold(t, b, unique("other"))
		if r := renew(t, b, l); r.Err != nil {
			t.Error(r.Err)
		}
	}
}

// If there is little time, an endpoint that does not answer does not take all of it.
func TestTimeIsLeftForTheOtherEndpoint(t *testing.T) {
	s := startStore(t)
	b, p, l := established(t, etcd.Config{Endpoints: []string{s.Addr}}, s)
	p.Stall(false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	info, err := b.Get(ctx, l.Name())
	if err != nil || !info.Held {
		t.Errorf("%+v, %v", info, err)
	}

	// A busy machine may be too slow once, but not each time.
	var failed error
	for range 10 {
		b, p, l = established(t, etcd.Config{Endpoints: []string{s.Addr}}, s)
		p.Stall(false)
		if failed = renewedWithin(t, b, l, 900*time.Millisecond); failed == nil { // less than the first stall
			return
		}
	}
	t.Error(failed)
}

// renewedWithin renews a lease and returns the error if that fails.
func renewedWithin(t *testing.T, b *etcd.Backend, l backend.Lease, limit time.Duration) (failed error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := b.Renew(ctx, []backend.Lease{l}, func(_ int, r backend.Renewal) { failed = r.Err })
	return errors.Join(err, failed)
}

// established returns a backend with a connection through a proxy.
func established(t *testing.T, cfg etcd.Config, s *store) (*etcd.Backend, *proxy, backend.Lease) {
	t.Helper()
	p := startProxy(t, s.Addr)
	cfg.Endpoints = append([]string{p.Addr()}, cfg.Endpoints...)
	b := openWith(t, cfg)
	l, _ := hold(t, b, unique("stalled"))
	return b, p, l
}

// The connection is silent, though the member is well. The outcome of a claim on it is unknown, and the claim can be
// repeated.
func TestClaimOnAStalledConnectionIsUnknown(t *testing.T) {
	s := startStore(t)
	b, p, _ := established(t, etcd.Config{}, s)
	p.Stall(false)
	claim := newClaim(unique("stuck"), true)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	l, _, err := b.Claim(ctx, claim)
	is(t, err, backend.ErrUnknownOutcome)
	is(t, err, context.DeadlineExceeded) // of the caller, and no limit of the backend
	if l == nil {
		t.Fatal("no lease")
	}
	is(t, b.Release(ctx, l), context.DeadlineExceeded)
	p.Resume()
	_, g, err := b.Claim(limited(t), claim)
	ok(t, err)
	if keys := s.Keys(claim.Name + "/"); !g.Held || len(keys) != 1 {
		t.Errorf("%+v: %v", g, keys)
	}
	ok(t, b.Release(limited(t), l))
	s.None(claim.Name)
}

// A connection drops everything, and a new one would not. Renew takes a new one within the same call if there is time.
func TestRenewLeavesADeadConnection(t *testing.T) {
	s := startStore(t)
	for name, others := range map[string][]string{"one endpoint": nil, "two": {s.Addr}} {
		t.Run(name, func(t *testing.T) {
			b, p, l := established(t, etcd.Config{Endpoints: others}, s)
			before := p.Connections()
			p.Stall(true)
			if r := renew(t, b, l); r.Err != nil {
				t.Error("with time for it:", r.Err)
			}
			if len(others) == 0 && p.Connections() == before {
				t.Error("there is no new connection")
			}
		})
	}
}

// The network drops everything for some time. A Renew whose context ends returns that, and the next one takes the other
// endpoint.
func TestRenewEndsWithItsContext(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b, p, l := established(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()}, s)
	p.Stall(false)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	err := b.Renew(ctx, []backend.Lease{l}, func(_ int, r backend.Renewal) { t.Errorf("reported %+v", r) })
	is(t, err, context.Canceled)
	f.Set(nil)
	if r := renew(t, b, l); r.Err != nil {
		t.Error(r.Err)
	}
	for method, n := range f.Calls() {
		if n != 1 {
			t.Errorf("%d requests %s: the dead endpoint was tried again", n, method)
		}
	}
}

// Connections are cut again and again. Renewals succeed, and waiting continues.
func TestRenewalsSurviveCutConnections(t *testing.T) {
	s := startStore(t)
	p := startProxy(t, s.Addr)
	b := open(t, p.Addr())
	name := unique("cut")
	holder := open(t, s.Addr)
	held, _ := hold(t, holder, name)
	l := enqueue(t, b, name)
	turn := make(chan error, 1)
	go func() {
		_, err := b.Await(limited(t), l)
		turn <- err
	}()
	for range 5 {
		time.Sleep(20 * time.Millisecond)
		p.Cut()
		if r := renew(t, b, l); r.Err != nil {
			t.Error(r.Err)
		}
	}
	ok(t, holder.Release(limited(t), held))
	ok(t, <-turn)
}

// intercepted returns a backend on the store. do carries out each request of a kind, by calling invoke or without it.
func intercepted(t *testing.T, s *store, kind string, do func(ctx context.Context, invoke func() error) error) *etcd.Backend {
	t.Helper()
	return openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			invoke := func() error { return next(ctx, method, req, reply, cc, opts...) }
			if !isMethod(kind, method, req) {
				return invoke()
			}
			return do(ctx, invoke)
		}),
	}})
}

// A member refuses a request for the moment, and then the caller's context ends. The error wraps that of the context and
// ErrUnavailable. Its outcome is known, because a refused request has no effect.
func TestCallCancelledAfterARefusalIsUnavailable(t *testing.T) {
	s := startStore(t)
	for kind, call := range map[string]func(context.Context, *etcd.Backend, backend.Lease) error{
		"Read": func(ctx context.Context, b *etcd.Backend, l backend.Lease) error {
			_, err := b.Get(ctx, l.Name())
			return err
		},
		"LeaseRevoke": func(ctx context.Context, b *etcd.Backend, l backend.Lease) error { return b.Release(ctx, l) },
	} {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithCancel(limited(t))
			defer cancel()
			var refuse atomic.Bool
			b := intercepted(t, s, kind, func(_ context.Context, invoke func() error) error {
				if !refuse.Load() {
					return invoke()
				}
				cancel()
				return rpctypes.ErrGRPCNoLeader
			})
			l, _ := hold(t, b, unique("refused"))
			refuse.Store(true)
			err := call(ctx, b, l)
			is(t, err, backend.ErrUnavailable)
			is(t, err, context.Canceled)
			if errors.Is(err, backend.ErrUnknownOutcome) || !strings.Contains(err.Error(), "no leader") {
				t.Errorf("the error does not show the refusal: %v", err)
			}
			refuse.Store(false)
			ok(t, b.Release(limited(t), l))
		})
	}
}

// Close cuts off a release that etcd has already carried out. The error wraps ErrUnknownOutcome and ErrClosed.
func TestReleaseCutOffByCloseIsUnknown(t *testing.T) {
	s := startStore(t)
	done := make(chan struct{})
	b := intercepted(t, s, "LeaseRevoke", func(ctx context.Context, invoke func() error) error {
		err := invoke()
		close(done)
		<-ctx.Done() // the answer does not arrive
		return cmp.Or(err, status.FromContextError(ctx.Err()).Err())
	})
	name := unique("closed")
	l, _ := hold(t, b, name)
	released := make(chan error, 1)
	go func() { released <- b.Release(limited(t), l) }()
	<-done
	ok(t, b.Close(limited(t)))
	err := <-released
	is(t, err, backend.ErrUnknownOutcome)
	is(t, err, backend.ErrClosed)
	s.None(name)
}
