package remote_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/backend/remote"
)

const holdMethod = leasekeeperv1.Leasekeeper_Hold_FullMethodName

// older returns a backend whose server does not have the method Hold.
func older(t testing.TB, s *store) (*remote.Backend, *faults) {
	t.Helper()
	f := new(faults)
	f.Lacks(holdMethod)
	return openWith(t, remote.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()}), f
}

// With a server that does not have Hold, the backend makes a request for each name.
func TestServerWithoutHoldIsUsedPerName(t *testing.T) {
	s := startStore(t)
	b, f := older(t, s)
	for range 3 {
		l, _ := hold(t, b, unique("older"))
		ok(t, b.Release(limited(t), l))
	}
	calls := f.Calls()
	// The first claim is sent twice, unless the server's refusal of the stream comes before the claim.
	acquired := calls[leasekeeperv1.Leasekeeper_Acquire_FullMethodName]
	if calls[holdMethod] != 1 || acquired < 3 || acquired > 4 || calls[leasekeeperv1.Leasekeeper_Release_FullMethodName] != 3 {
		t.Errorf("calls: %v", calls)
	}
	t.Run("behaviour", func(t *testing.T) {
		backendtest.Run(t, backendtest.Config{New: func(testing.TB) backendtest.Store {
			return backendtest.Store{
				Open:   func(t testing.TB) backend.Backend { b, _ := older(t, s); return b },
				Delete: func(_ testing.TB, name string) { s.DeleteOwner(name) },
			}
		}})
	})
	for _, what := range []fault{lose, unsent} {
		for _, n := range []int32{1, always} {
			b, f := older(t, s)
			claimOn(t, s, b, f, times(n, what, "Acquire"), true, false)
		}
	}
}

// Hundreds of claims wait on one stream, and each gets its turn.
func TestManyClaimsWaitOnOneStream(t *testing.T) {
	const many = 300
	s := startStore(t)
	b, f := faulty(t, s)
	f.Set(nil)
	name := unique("crowd")
	l, _ := hold(t, b, name)
	var all sync.WaitGroup
	var held atomic.Int32
	for range many {
		w := enqueue(t, b, name)
		all.Go(func() {
			_, err := b.Await(limited(t), w)
			ok(t, err)
			if held.Add(1) != 1 {
				t.Error("two hold it")
			}
			held.Add(-1)
			ok(t, b.Release(limited(t), w))
		})
	}
	ok(t, b.Release(limited(t), l))
	all.Wait()
	if n := f.Calls()[holdMethod]; n != 1 {
		t.Errorf("%d streams", n)
	}
	if n := remote.Unanswered(b); n != 0 {
		t.Errorf("%d are still waited for", n)
	}
	s.None(name)
}

// Requests that callers make while a message is being sent go into the next message together. A message names a holder once.
func TestConcurrentRequestsShareOneMessage(t *testing.T) {
	const many = 200
	s := startStore(t)
	b, f := faulty(t, s)
	hold(t, b, unique("first"))
	sending, let := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var messages, holders atomic.Int32
	f.Sends(func(_ string, msg any) error {
		r, ok := msg.(*leasekeeperv1.HoldRequest)
		if !ok {
			return nil
		}
		messages.Add(1)
		if r.Holder != nil {
			holders.Add(1)
		}
		for _, c := range r.Claims {
			if c.Holder != nil {
				holders.Add(1)
			}
		}
		once.Do(func() { close(sending); <-let })
		return nil
	})
	prefix := unique("together")
	var all sync.WaitGroup
	leases := make([]backend.Lease, many)
	claim := func(i int) {
		all.Go(func() {
			c := newClaim(fmt.Sprint(prefix, "/", i), true)
			l, g, err := b.Claim(limited(t), c)
			ok(t, err)
			if leases[i] = l; !g.Held {
				t.Errorf("%d: %+v", i, g)
			}
		})
	}
	claim(0)
	<-sending
	for i := range many - 1 {
		claim(i + 1)
	}
	eventually(t, "all wait to be sent", func() bool { return remote.Unsent(b) == many-1 })
	close(let)
	all.Wait()
	if messages.Load() != 2 {
		t.Errorf("%d messages", messages.Load())
	}
	if holders.Load() > many {
		t.Errorf("holders were said %d times", holders.Load())
	}
	for _, l := range leases {
		ok(t, b.Release(limited(t), l))
	}
}

// A caller whose context ends receives nothing more, the server is asked to forget the claim, and the stream continues.
func TestAbandonedClaimIsForgotten(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	hold(t, b, unique("before"))
	f.Set(nil)
	name := unique("left")
	hold(t, b, name)
	arrived, let := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var forgotten atomic.Int32
	f.Answers(func(_ string, msg any) {
		if _, ok := msg.(*leasekeeperv1.HoldResponse); ok {
			once.Do(func() { close(arrived); <-let })
		}
	})
	f.Sends(func(_ string, msg any) error {
		if r, ok := msg.(*leasekeeperv1.HoldRequest); ok {
			forgotten.Add(int32(len(r.Forget)))
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	l, _, err := b.Claim(ctx, newClaim(name, true))
	is(t, err, backend.ErrUnknownOutcome)
	is(t, err, context.Canceled)
	eventually(t, "it is forgotten", func() bool { return forgotten.Load() == 1 && remote.Unanswered(b) == 0 })
	close(let)
	ok(t, b.Release(limited(t), l))
	other, _ := hold(t, b, unique("after"))
	ok(t, b.Release(limited(t), other))
	if n := f.Calls()[holdMethod]; n != 0 {
		t.Errorf("%d more streams", n)
	}
	// A claim whose context has ended before never leaves.
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if l, _, err := b.Claim(done, newClaim(unique("never"), true)); l != nil || !errors.Is(err, context.Canceled) && !errors.Is(err, backend.ErrUnknownOutcome) {
		t.Errorf("%v, %v", l, err)
	}
}

// The stream breaks while some claims wait for an answer and others for their turn. Claims with an unknown outcome are
// repeated, and the others keep waiting.
func TestClaimsAndWaitersSurviveABrokenStream(t *testing.T) {
	s := startStore(t)
	p := startProxy(t, s.Addr)
	b := openWith(t, remote.Config{Endpoints: []string{p.Addr()}})
	direct := open(t, s.Addr)
	name := unique("breaks")
	l, _ := hold(t, direct, name)
	w := enqueue(t, b, name)
	turn := awaiting(t, b, w)
	p.Stall(false)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			c := newClaim(fmt.Sprint(unique("asked"), i), true)
			l, g, err := b.Claim(limited(t), c)
			for errors.Is(err, backend.ErrUnknownOutcome) {
				l, g, err = b.Claim(limited(t), c)
			}
			ok(t, err)
			if keys := s.Keys(c.Name + "/"); !g.Held || len(keys) != 1 {
				t.Errorf("%+v, %v", g, keys)
			}
			ok(t, b.Release(limited(t), l))
		})
	}
	time.AfterFunc(100*time.Millisecond, p.Resume)
	all.Wait()
	ok(t, direct.Release(limited(t), l))
	ok(t, <-turn)
	ok(t, b.Release(limited(t), w))
}

// If one caller finds that the stream is silent, all other callers on it try another endpoint too.
func TestStalledStreamEndsForAllCallers(t *testing.T) {
	s := startStore(t)
	b, p, l := established(t, remote.Config{Endpoints: []string{s.Addr}, RequestTimeout: 1200 * time.Millisecond}, s)
	w := enqueue(t, b, l.Name())
	turn := awaiting(t, b, w)
	eventually(t, "it is waited for", func() bool { return remote.Unanswered(b) == 1 })
	p.Stall(false)
	ok(t, open(t, s.Addr).Revoke(limited(t), l.Name(), 0, "x", true))
	claim, g, err := b.Claim(limited(t), newClaim(unique("another"), true))
	if ok(t, err); !g.Held {
		t.Errorf("%+v", g)
	}
	select {
	case err := <-turn:
		ok(t, err)
	case <-time.After(5 * time.Second): // gRPC's own pings would take longer
		t.Error("it is still listened to")
	}
	ok(t, b.Release(limited(t), claim))
	ok(t, b.Release(limited(t), w))
}
