package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/server"
)

// times returns a decision that injects a fault into the first n requests of a method.
func times(n int32, what fault, method string) func(string, any) fault {
	var done atomic.Int32
	return func(called string, _ any) fault {
		if strings.HasSuffix(called, "/"+method) && done.Add(1) <= n {
			return what
		}
		return pass
	}
}

const always = 1 << 30

// faulty returns a backend with faults.
func faulty(t testing.TB, s *store) (*remote.Backend, *faults) {
	t.Helper()
	f := new(faults)
	return openWith(t, remote.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()}), f
}

// A claim that failed has left nothing. A claim with an unknown outcome can be released or repeated. A claim that succeeded
// is one lease. That holds whichever answers are lost.
func TestClaimSurvivesLostAnswers(t *testing.T) {
	s := startStore(t)
	for _, what := range []fault{lose, unsent} {
		for _, n := range []int32{1, 2, always} {
			for _, wait := range []bool{false, true} {
				for _, again := range []bool{false, true} {
					t.Run(fmt.Sprintf("%d/%d/%v/%v", what, n, wait, again), func(t *testing.T) {
						t.Parallel()
						claimWithFaults(t, s, times(n, what, "Acquire"), wait, again)
					})
				}
			}
		}
	}
}

func claimWithFaults(t *testing.T, s *store, decide func(string, any) fault, wait, again bool) {
	b, f := faulty(t, s)
	claimOn(t, s, b, f, decide, wait, again)
}

func claimOn(t *testing.T, s *store, b *remote.Backend, f *faults, decide func(string, any) fault, wait, again bool) {
	claim := newClaim(unique("lost"), wait)
	if again {
		_, _, err := b.Claim(limited(t), claim)
		ok(t, err)
	}
	f.Set(decide)
	l, g, err := b.Claim(limited(t), claim)
	f.Set(nil)
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
		_, err := b.Await(limited(t), l)
		is(t, err, backend.ErrInvalid)
		// Releasing and claiming again both work.
		if _, g, err := b.Claim(limited(t), claim); err != nil || !g.Held {
			t.Errorf("claimed again: %+v, %v", g, err)
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
	if s.Alive(remote.LeaseIDOf(claim.ID)) {
		t.Error("the lease is left")
	}
}

// An attempt whose answer was lost may still be under way when the next attempt is refused. When it arrives, it has no
// effect.
func TestLateClaimHasNoEffectAfterARefusal(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	name := unique("late")
	l, _ := hold(t, b, name)
	claim := newClaim(name, false)
	for _, c := range []struct {
		releases fault
		kind     error
	}{{pass, backend.ErrHeld}, {lose, backend.ErrUnknownOutcome}} {
		claim.ID[3]++
		lost := times(1, lose, "Acquire")
		f.Set(func(method string, req any) fault {
			if strings.HasSuffix(method, "/Release") {
				return c.releases
			}
			return lost(method, req)
		})
		left, _, err := b.Claim(limited(t), claim)
		f.Set(nil)
		is(t, err, c.kind)
		if errors.Is(err, backend.ErrHeld) == errors.Is(err, backend.ErrUnknownOutcome) || (left != nil) != errors.Is(err, backend.ErrUnknownOutcome) {
			t.Errorf("%v, %v", left, err)
		}
		if left != nil {
			ok(t, b.Release(limited(t), left))
		}
	}
	ok(t, b.Release(limited(t), l))
	// Now the attempt arrives, and the name is free.
	claim.ID[3]--
	_, _, err := b.Claim(limited(t), claim)
	is(t, err, backend.ErrLost)
	s.None(name)
}

// A change whose answer is lost once takes effect, and succeeds. If all its answers are lost, its outcome is unknown. If it
// never left, nothing has changed.
func TestChangesSurviveLostAnswers(t *testing.T) {
	s := startStore(t)
	for _, c := range []struct {
		method string
		change func(b *remote.Backend, l backend.Lease, g backend.Grant) error
		done   error // the error of the same change again, after it has taken effect
	}{
		{"Release", func(b *remote.Backend, l backend.Lease, _ backend.Grant) error { return b.Release(limited(t), l) }, nil},
		{"Announce", func(b *remote.Backend, l backend.Lease, _ backend.Grant) error { return b.Announce(limited(t), l, "x") }, nil},
		{"Revoke", func(b *remote.Backend, l backend.Lease, g backend.Grant) error {
			return b.Revoke(limited(t), l.Name(), g.Token, "x", true)
		}, backend.ErrLost},
		{"Revoke", func(b *remote.Backend, l backend.Lease, _ backend.Grant) error {
			return b.Revoke(limited(t), l.Name(), 0, "x", false)
		}, nil},
		{"Pin", func(b *remote.Backend, l backend.Lease, _ backend.Grant) error {
			return b.Pin(limited(t), l.Name(), "x")
		}, nil},
		{"Unpin", func(b *remote.Backend, l backend.Lease, _ backend.Grant) error { return b.Unpin(limited(t), l.Name()) }, nil},
		{"Transfer", func(b *remote.Backend, l backend.Lease, _ backend.Grant) error { return b.Transfer(limited(t), l) }, backend.ErrLost},
		{"Finish", func(b *remote.Backend, l backend.Lease, _ backend.Grant) error {
			return b.Finish(limited(t), l, backend.Finish{Tick: backend.TickNumber(1)})
		}, nil},
		{"Finish", func(b *remote.Backend, l backend.Lease, _ backend.Grant) error {
			return b.Finish(limited(t), l, backend.Finish{Hold: time.Second})
		}, nil},
		{"RaiseMark", func(b *remote.Backend, l backend.Lease, _ backend.Grant) error {
			return b.RaiseMark(limited(t), l, backend.TickNumber(1))
		}, nil},
		{"ReplaceMark", func(b *remote.Backend, l backend.Lease, _ backend.Grant) error {
			done, err := b.ReplaceMark(limited(t), l.Name(), backend.Mark{}, backend.Mark{Tick: backend.TickNumber(1)})
			if err == nil && !done {
				if m, _ := b.Mark(limited(t), l.Name()); m.Tick != backend.TickNumber(1) {
					t.Errorf("not replaced: the mark is %+v", m)
				}
			}
			return err
		}, nil},
	} {
		t.Run(c.method, func(t *testing.T) {
			for _, n := range []int32{1, 3, always} {
				for _, what := range []fault{lose, unsent} {
					b, f := faulty(t, s)
					name := unique("change")
					l, g := hold(t, b, name)
					next := enqueue(t, b, name)
					f.Set(times(n, what, c.method))
					err := c.change(b, l, g)
					f.Set(nil)
					again := c.change(b, l, g)
					switch {
					case n != always:
						ok(t, err)
						is(t, again, c.done)
					case what == lose:
						is(t, err, backend.ErrUnknownOutcome)
						is(t, again, c.done)
					default:
						is(t, err, backend.ErrUnavailable)
						ok(t, again)
					}
					if errors.Is(err, backend.ErrUnavailable) && errors.Is(err, backend.ErrUnknownOutcome) {
						t.Errorf("of two kinds: %v", err)
					}
					ok(t, b.Unpin(limited(t), name))
					ok(t, b.Release(limited(t), l))
					_, err = b.Await(limited(t), next)
					ok(t, err)
					ok(t, b.Release(limited(t), next))
				}
			}
		})
	}
}

// A revocation of the present holder ends one tenure, however often it is sent.
func TestRepeatedRevokeEndsOneTenure(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	name := unique("one")
	_, _ = hold(t, b, name)
	next := enqueue(t, b, name)
	f.Set(times(2, lose, "Revoke"))
	ok(t, b.Revoke(limited(t), name, 0, "x", true))
	f.Set(nil)
	_, err := b.Await(limited(t), next)
	ok(t, err)
	ok(t, renew(t, b, next).Err)
}

// A lease that was revoked before its transfer was carried out is lost, although the answer to the transfer was lost too.
func TestTransferOfARevokedLeaseIsLost(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	name := unique("revoked")
	l, g := hold(t, b, name)
	first := true
	f.Set(func(method string, _ any) fault {
		if strings.HasSuffix(method, "/Transfer") && first {
			first = false
			ok(t, open(t, s.Addr).Revoke(limited(t), name, g.Token, "x", true))
			return lose
		}
		return pass
	})
	is(t, b.Transfer(limited(t), l), backend.ErrLost)
	f.Set(times(1, lose, "Transfer"))
	is(t, b.Transfer(limited(t), l), backend.ErrLost)
}

// If a later holder, or a person, has raised the mark since, nothing shows whether an earlier attempt had raised it. A lower
// mark, or one of an earlier holder, shows that no attempt of a lost lease changed anything.
func TestRaiseIsOfUnknownOutcomeAfterALaterMark(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	other := open(t, s.Addr)
	for what, c := range map[string]struct {
		tick  int64
		token int // relative to that of the lease; 0: none
		want  error
	}{
		"later":             {5, 1, backend.ErrUnknownOutcome},
		"person":            {5, 0, backend.ErrUnknownOutcome},
		"earlier":           {5, -1, backend.ErrLost},
		"later, but lower":  {4, 1, backend.ErrLost},
		"other kind, later": {-1, 1, backend.ErrLost},
	} {
		name := unique("later")
		l, g := hold(t, b, name)
		m := backend.Mark{Tick: backend.TickNumber(c.tick)}
		if c.token != 0 {
			m.Token = backend.Token(int(g.Token) + c.token)
		}
		if c.tick < 0 {
			m.Tick = backend.TickAt(time.Unix(9, 0))
		}
		f.Set(times(1, lose, "RaiseMark"))
		_, err := other.ReplaceMark(limited(t), name, backend.Mark{}, m)
		ok(t, err)
		ok(t, other.Revoke(limited(t), name, g.Token, "x", true))
		for range 2 { // the repeated call is in doubt, too
			if err := b.RaiseMark(limited(t), l, backend.TickNumber(5)); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		f.Set(nil)
	}
	l, g := hold(t, b, unique("later"))
	_, err := other.ReplaceMark(limited(t), l.Name(), backend.Mark{}, backend.Mark{Tick: backend.TickNumber(5), Token: g.Token + 1})
	ok(t, err)
	ok(t, other.Revoke(limited(t), l.Name(), g.Token, "x", true))
	is(t, b.RaiseMark(limited(t), l, backend.TickNumber(5)), backend.ErrLost) // no attempt was made before
}

// A lease that was revoked before its finish was carried out is lost, although an answer to the finish was lost too. If the
// mark was raised before, that is not an error.
func TestFinishOfARevokedLeaseIsLost(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	for what, c := range map[string]struct {
		method string
		raise  bool // the mark is raised to 1 under the token of the lease
		change func(l backend.Lease) error
		want   error
	}{
		"finish": {"Finish", false, func(l backend.Lease) error {
			return b.Finish(limited(t), l, backend.Finish{Tick: backend.TickNumber(1)})
		}, backend.ErrLost},
		"finish without":   {"Finish", true, func(l backend.Lease) error { return b.Finish(limited(t), l, backend.Finish{}) }, backend.ErrLost},
		"raise":            {"RaiseMark", false, func(l backend.Lease) error { return b.RaiseMark(limited(t), l, backend.TickNumber(1)) }, backend.ErrLost},
		"raise, was lower": {"RaiseMark", true, func(l backend.Lease) error { return b.RaiseMark(limited(t), l, backend.TickNumber(2)) }, backend.ErrLost},
		"raise, was done":  {"RaiseMark", true, func(l backend.Lease) error { return b.RaiseMark(limited(t), l, backend.TickNumber(1)) }, nil},
	} {
		name := unique("revoked")
		l, g := hold(t, b, name)
		first := true
		f.Set(func(method string, _ any) fault {
			if strings.HasSuffix(method, "/"+c.method) && first {
				first = false
				other := open(t, s.Addr)
				if c.raise {
					_, err := other.ReplaceMark(limited(t), name, backend.Mark{}, backend.Mark{Tick: backend.TickNumber(1), Token: g.Token})
					ok(t, err)
				}
				ok(t, other.Revoke(limited(t), name, g.Token, "x", true))
				return lose
			}
			return pass
		})
		if err := c.change(l); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", what, err)
		}
		f.Set(nil)
	}
}

// The leader refuses a finish because of a member of an older version. That is definite, so no caller repeats it until its
// lease runs out, and so it is after an attempt whose answer was lost.
func TestOldMemberMakesMarksUnsupported(t *testing.T) {
	s := startStore(t)
	st, err := status.New(codes.FailedPrecondition, "too new").WithDetails(&errdetails.ErrorInfo{Domain: "leasekeeper", Reason: "UNSUPPORTED"})
	ok(t, err)
	var refusing atomic.Bool
	refuse := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
		if refusing.Load() {
			return st.Err()
		}
		return next(ctx, method, req, reply, cc, o...)
	})
	f := new(faults)
	b := openWith(t, remote.Config{Endpoints: []string{s.Addr}, DialOptions: append(f.Options(), refuse)})
	l, _ := hold(t, b, unique("old"))
	refusing.Store(true)
	defer refusing.Store(false)
	for method, change := range map[string]func() error{
		"GetMark":   func() error { _, err := b.Mark(limited(t), l.Name()); return err },
		"RaiseMark": func() error { return b.RaiseMark(limited(t), l, backend.TickNumber(1)) },
		"Finish":    func() error { return b.Finish(limited(t), l, backend.Finish{Tick: backend.TickNumber(1)}) },
		"Prefer":    func() error { return b.Prefer(limited(t), l.Name(), "x") },
	} {
		err := change()
		is(t, err, backend.ErrUnsupported)
		if u := (*backend.UnsupportedError)(nil); !errors.As(err, &u) || !strings.Contains(u.Instead, "all members") {
			t.Errorf("%s: %v", method, err)
		}
		f.Set(times(1, lose, method))
		is(t, change(), backend.ErrUnsupported)
		f.Set(nil)
	}
}

func TestReadsSurviveLostAnswers(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	name := unique("questions")
	_, g := hold(t, b, name)
	for method, ask := range map[string]func() error{
		"Get":     func() error { _, err := b.Get(limited(t), name); return err },
		"List":    func() error { _, err := b.List(limited(t), name, "", 3); return err },
		"GetMark": func() error { _, err := b.Mark(limited(t), name); return err },
		"History": func() error { _, err := b.History(limited(t), name, 3); return err },
		"Txn": func() error {
			_, _, err := b.Resume(limited(t), name, g.Token, backend.Holder{ID: fmt.Sprint(time.Now().UnixNano())})
			return err
		},
	} {
		f.Set(times(2, lose, method))
		ok(t, ask())
		f.Set(times(always, lose, method))
		if err := ask(); method == "Txn" {
			is(t, err, backend.ErrUnknownOutcome)
		} else {
			is(t, err, backend.ErrUnavailable)
		}
		f.Set(times(always, unsent, method))
		is(t, ask(), backend.ErrUnavailable)
	}
}

// unusedAddress is an address on which no server listens.
func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestUnreachableServerIsUnavailable(t *testing.T) {
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
		b := openWith(t, remote.Config{Endpoints: []string{dead, s.Addr}, RequestTimeout: 300 * time.Millisecond})
		l, _ := hold(t, b, unique("other"))
		ok(t, renew(t, b, l).Err)
	}
}

// established returns a backend with a connection through a proxy.
func established(t *testing.T, cfg remote.Config, s *store) (*remote.Backend, *proxy, backend.Lease) {
	t.Helper()
	p := startProxy(t, s.Addr)
	cfg.Endpoints = append([]string{p.Addr()}, cfg.Endpoints...)
	b := openWith(t, cfg)
	l, _ := hold(t, b, unique("stalled"))
	return b, p, l
}

// The connection is silent, though the server is well. The outcome of a claim on it is unknown, and the claim can be
// repeated.
func TestClaimOnAStalledConnectionIsUnknown(t *testing.T) {
	s := startStore(t)
	b, p, _ := established(t, remote.Config{}, s)
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

// While a server restarts, calls fail as unavailable or succeed. Renewals, waiting and watches continue after it.
func TestCallsContinueAfterARestart(t *testing.T) {
	dir := t.TempDir()
	addr, stop, err := endpointstest.Serve("127.0.0.1:0", dir, server.Config{})
	ok(t, err)
	b := open(t, addr)
	name := unique("restart")
	l, g := hold(t, b, name)
	w := enqueue(t, b, name)
	turn := make(chan error, 1)
	go func() {
		_, err := b.Await(limited(t), w)
		turn <- err
	}()
	seen := make(chan backend.Event, 100)
	watched := make(chan error, 1)
	watching, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { watched <- b.Watch(watching, name, func(e backend.Event) { seen <- e }) }()
	if e := <-seen; e.Kind != backend.Resync || e.Info.Token != g.Token {
		t.Errorf("%+v", e)
	}
	ok(t, stop())
	err = b.Renew(limited(t), []backend.Lease{l}, func(_ int, r backend.Renewal) { t.Errorf("the server is stopped: %+v", r) })
	is(t, err, backend.ErrUnavailable)
	_, stop, err = endpointstest.Serve(addr, dir, server.Config{})
	ok(t, err)
	defer func() { ok(t, stop()) }()
	eventually(t, "renewals", func() bool {
		renewed := false
		err := b.Renew(limited(t), []backend.Lease{l, w}, func(_ int, r backend.Renewal) { renewed = r.Err == nil })
		return err == nil && renewed
	})
	if e := <-seen; e.Kind != backend.Resync || e.Info.Token != g.Token {
		t.Errorf("after the restart: %+v", e)
	}
	ok(t, b.Release(limited(t), l))
	ok(t, <-turn)
	e := <-seen
	for e.Kind == backend.Resync && e.Info.Token == g.Token {
		e = <-seen // the watch changed its endpoint again, because another call had left it
	}
	if e.Kind != backend.Acquired && e.Kind != backend.Resync || e.Info.Token <= g.Token {
		t.Errorf("a new holder: %+v", e)
	}
	cancel()
	is(t, <-watched, context.Canceled)
	ok(t, b.Release(limited(t), w))
}
