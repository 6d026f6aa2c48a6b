package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func queuedClaim(name string, id byte) backend.Claim {
	return backend.Claim{ID: backend.ID{id}, Name: name, Holder: backend.Holder{ID: fmt.Sprint("h", id)}, TTL: time.Minute}
}

// calls are all methods of a backend, by the names of faults. Each returns its error.
func calls(ctx context.Context, b *memory.Backend, l backend.Lease) map[memory.Op]func() error {
	return map[memory.Op]func() error{
		memory.Claim: func() error { _, _, err := b.Claim(ctx, queuedClaim("other", 9)); return err },
		memory.Await: func() error { _, err := b.Await(ctx, l); return err },
		memory.Renew: func() error { return b.Renew(ctx, []backend.Lease{l}, func(int, backend.Renewal) {}) },
		memory.Get:   func() error { _, err := b.Get(ctx, "x"); return err },
		memory.List:  func() error { _, err := b.List(ctx, "", "", 1); return err },
		memory.Watch: func() error {
			ctx, cancel := context.WithCancel(ctx)
			err := b.Watch(ctx, "", func(backend.Event) { cancel() })
			if errors.Is(err, context.Canceled) && ctx.Err() != nil {
				return nil // the watch began
			}
			return err
		},
		memory.History:  func() error { _, err := b.History(ctx, "x", 1); return err },
		memory.Announce: func() error { return b.Announce(ctx, l, "text") },
		memory.Resume:   func() error { _, _, err := b.Resume(ctx, "x", 1, backend.Holder{ID: "b"}); return err },
		memory.Pin:      func() error { return b.Pin(ctx, "x", "why") },
		memory.Transfer: func() error { return b.Transfer(ctx, l) },
		memory.Revoke:   func() error { return b.Revoke(ctx, "x", 1, "why", false) },
		memory.Release:  func() error { return b.Release(ctx, l) },
	}
}

func bubble(t *testing.T, test func(t *testing.T, s *memory.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, memory.New(memory.WithClock(memory.NewRunningClock()))) })
}

func TestFaultsHitEveryMethod(t *testing.T) {
	reads := []memory.Op{memory.Await, memory.Get, memory.List, memory.Watch, memory.History}
	for _, kind := range []memory.Kind{memory.LoseRequest, memory.LoseAnswer, memory.HoldRequest, memory.Stall, memory.StallAnswer, memory.Refuse} {
		bubble(t, func(t *testing.T, s *memory.Store) {
			b := s.Backend()
			l, _, err := b.Claim(t.Context(), queuedClaim("x", 1))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for op, call := range calls(ctx, b, l) {
				remove := b.Inject(memory.Fault{Kind: kind, Op: op})
				want := backend.ErrUnknownOutcome
				if slices.Contains(reads, op) || kind == memory.Refuse {
					want = backend.ErrUnavailable
				}
				if err := call(); !errors.Is(err, want) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("kind %d of %s: %v", kind, op, err)
				}
				if kind == memory.Stall || kind == memory.StallAnswer {
					<-ctx.Done()
				}
				remove()
				remove() // a second call does nothing
			}
		})
	}
}

func TestEachKindOfFaultHasItsEffect(t *testing.T) {
	for _, c := range []struct {
		kind           memory.Kind
		before, after  bool // whether the store has the change before and after the fault is removed
		waits, answers bool
	}{
		{memory.LoseRequest, false, false, false, false},
		{memory.LoseAnswer, true, true, false, false},
		{memory.HoldRequest, false, true, false, false},
		{memory.Stall, false, false, true, false},
		{memory.StallAnswer, true, true, true, false},
		{memory.DelayRequest, false, true, true, true},
		{memory.DelayAnswer, true, true, true, true},
		{memory.Refuse, false, false, false, false},
	} {
		t.Run(fmt.Sprint(c.kind), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) {
				b, eye := s.Backend(), s.Backend()
				held := func() bool {
					i, err := eye.Get(t.Context(), "x")
					return err == nil && i.Held
				}
				remove := b.Inject(memory.Fault{Kind: c.kind, Op: memory.Claim, Delay: time.Second})
				done := make(chan error, 1)
				go func() {
					l, _, err := b.Claim(t.Context(), queuedClaim("x", 1))
					if errors.Is(err, backend.ErrUnknownOutcome) != (err != nil && l != nil) {
						t.Errorf("%v, %v", l, err)
					}
					done <- err
				}()
				synctest.Wait()
				if got := held(); got != c.before {
					t.Errorf("held at first: %v", got)
				}
				if waits := len(done) == 0; waits != c.waits {
					t.Errorf("waits: %v", waits)
				}
				time.Sleep(time.Second)
				remove()
				if err := <-done; (err == nil) != c.answers {
					t.Errorf("answer: %v", err)
				}
				if got := held(); got != c.after {
					t.Errorf("held at last: %v", got)
				}
			})
		})
	}
}

func TestClaimThatArrivesAfterItsReleaseIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		b := s.Backend()
		remove := b.Inject(memory.Fault{Kind: memory.HoldRequest, Op: memory.Claim})
		l, _, err := b.Claim(t.Context(), queuedClaim("x", 1))
		if !errors.Is(err, backend.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		if err := b.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		remove()
		if i, err := b.Get(t.Context(), "x"); err != nil || i.Held {
			t.Errorf("%+v, %v", i, err)
		}
		// The memory of the store is bounded.
		for n := range 10_000 {
			c := queuedClaim("y", 2)
			c.ID[1], c.ID[2] = byte(n), byte(n>>8)
			l, _, err := b.Claim(t.Context(), c)
			if err != nil || b.Release(t.Context(), l) != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := b.Claim(t.Context(), queuedClaim("x", 1)); err != nil {
			t.Error(err)
		}
	})
}

func TestFaultsHitOnlyMatchingCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		b, other := s.Backend(), s.Backend()
		var errs []bool
		get := func(b *memory.Backend, name string) {
			_, err := b.Get(t.Context(), name)
			errs = append(errs, errors.Is(err, backend.ErrContention))
		}
		remove := b.Inject(memory.Fault{Kind: memory.Refuse, Name: "x", Skip: 1, Times: 2, Err: backend.ErrContention})
		for range 4 {
			get(b, "x")
		}
		get(b, "y")
		get(other, "x")
		remove()
		defer s.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Get, Err: backend.ErrContention})()
		get(other, "x")
		if want := []bool{false, true, true, false, false, false, true}; !slices.Equal(errs, want) {
			t.Errorf("%v, and not %v", errs, want)
		}
		defer func() {
			if recover() == nil {
				t.Error("a fault of no kind did not panic")
			}
		}()
		b.Inject(memory.Fault{})
	})
}

func TestFaultOfOneLeaseDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		b := s.Backend()
		var leases []backend.Lease
		for i, name := range []string{"bad", "good"} {
			l, _, err := b.Claim(t.Context(), queuedClaim(name, byte(i+1)))
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, l)
		}
		remove := b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew, Name: "bad"})
		defer remove()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var got []int
		err := b.Renew(ctx, leases, func(i int, r backend.Renewal) {
			if r.Err != nil || ctx.Err() != nil {
				t.Errorf("%d: %+v", i, r)
			}
			got = append(got, i)
		})
		if !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(got, []int{1}) {
			t.Errorf("reported %v, then %v", got, err)
		}
		defer b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Renew, Name: "good"})()
		remove()
		var errs [2]error
		if err := b.Renew(t.Context(), leases, func(i int, r backend.Renewal) { errs[i] = r.Err }); err != nil {
			t.Error(err)
		}
		if errs[0] != nil || !errors.Is(errs[1], backend.ErrUnavailable) {
			t.Error(errs)
		}
	})
}

func TestRestartFailsCallsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		b := s.Backend()
		if _, _, err := b.Claim(t.Context(), queuedClaim("x", 1)); err != nil {
			t.Fatal(err)
		}
		c := queuedClaim("x", 2)
		c.Wait = true
		l, _, err := b.Claim(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 3)
		go func() { _, err := b.Await(t.Context(), l); errs <- err }()
		go func() { errs <- b.Watch(t.Context(), "", func(backend.Event) {}) }()
		b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Get})
		go func() { _, err := b.Get(t.Context(), "x"); errs <- err }()
		synctest.Wait()
		s.Restart()
		for range 3 {
			if err := <-errs; !errors.Is(err, backend.ErrUnavailable) {
				t.Error(err)
			}
		}
		if i, err := s.Backend().List(t.Context(), "", "", 10); err != nil || len(i) != 1 || i[0].Waiting != 1 {
			t.Errorf("%+v, %v", i, err)
		}
	})
}

func TestForgetKeepsTokens(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		b := s.Backend()
		_, g, err := b.Claim(t.Context(), queuedClaim("x", 1))
		if err != nil {
			t.Fatal(err)
		}
		w := queuedClaim("x", 2)
		w.Wait = true
		if _, _, err := b.Claim(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if err := b.Pin(t.Context(), "x", "why"); err != nil {
			t.Fatal(err)
		}
		s.Forget()
		s.Delete("x") // which has no holder
		s.Delete("never heard of")
		i, err := b.Get(t.Context(), "x")
		if err != nil || i.Held || i.Waiting != 0 || i.Pinned != "" {
			t.Errorf("%+v, %v", i, err)
		}
		_, again, err := b.Claim(t.Context(), queuedClaim("x", 3))
		if err != nil || again.Token <= g.Token {
			t.Errorf("token %d after %d, %v", again.Token, g.Token, err)
		}
	})
}

func TestSlowWatcherGetsTheStateInsteadOfEvents(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		b := s.Backend()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var kinds []backend.EventKind
		proceed := make(chan struct{})
		ended := make(chan error)
		c := queuedClaim("x", 1)
		l, _, err := b.Claim(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			ended <- b.Watch(ctx, "", func(e backend.Event) {
				kinds = append(kinds, e.Kind)
				<-proceed
			})
		}()
		synctest.Wait()
		for n := range 2000 {
			if err := b.Release(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			c.ID[1], c.ID[2] = byte(n+1), byte(n>>8)+1
			if l, _, err = b.Claim(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		close(proceed)
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if len(kinds) != 2 || kinds[1] != backend.Resync {
			t.Errorf("%d events", len(kinds))
		}
	})
}

func TestClocksMoveByHandAndReportIt(t *testing.T) {
	c := memory.NewClock()
	start, moved := c.Now(), c.Moved()
	c.Advance(time.Second)
	<-moved
	c.Suspend(time.Second)
	if now := c.Now(); now.Elapsed(start) != time.Second || now.Until(start.Add(2*time.Second)) != time.Second {
		t.Errorf("%v after %v", now, start)
	}
	synctest.Test(t, func(t *testing.T) {
		c := memory.NewRunningClock()
		start := c.Now()
		time.Sleep(time.Minute)
		c.Advance(time.Second)
		if now := c.Now(); now.Elapsed(start) != time.Minute+time.Second {
			t.Errorf("%v after %v", now, start)
		}
	})
}

// A store on clocks that stand still ends leases when they are moved.
func TestMovingTheClockEndsLeases(t *testing.T) {
	c := memory.NewClock()
	s := memory.New(memory.WithClock(c))
	b := s.Backend()
	if _, _, err := b.Claim(t.Context(), queuedClaim("x", 1)); err != nil {
		t.Fatal(err)
	}
	w := queuedClaim("x", 2)
	w.Wait, w.TTL = true, time.Hour
	l, _, err := b.Claim(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	turn := make(chan error)
	go func() { _, err := b.Await(t.Context(), l); turn <- err }()
	c.Suspend(time.Hour / 2) // on one clock only: a store waits for both
	if i, _ := b.Get(t.Context(), "x"); i.Holder.ID != "h1" {
		t.Errorf("ended too early: %+v", i)
	}
	c.Advance(2 * time.Minute)
	if err := <-turn; err != nil {
		t.Error(err)
	}
}

func TestLimitsOfTheStoreAreEnforced(t *testing.T) {
	s := memory.New(memory.WithLimits(backend.Limits{MinTTL: 2 * time.Second, MaxTTL: time.Hour, Granularity: time.Second}))
	c := queuedClaim("x", 1)
	c.TTL = 2500 * time.Millisecond
	if _, g, err := s.Backend().Claim(t.Context(), c); err != nil || g.TTL != 3*time.Second {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestURLsNameStores(t *testing.T) {
	ctx := t.Context()
	open := func(url string) backend.Backend {
		b, err := backend.Open(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	holds := func(b backend.Backend) bool {
		i, err := b.Get(ctx, "x")
		return err == nil && i.Held
	}
	if _, _, err := open("memory:urls").Claim(ctx, queuedClaim("x", 1)); err != nil {
		t.Fatal(err)
	}
	if !holds(open("memory:urls")) || !holds(memory.Named("urls").Backend()) {
		t.Error("stores of one name are not one store")
	}
	if holds(open("memory:")) || holds(open("memory:other")) {
		t.Error("stores of different names are one store")
	}
	for _, bad := range []string{"memory://host/x", "memory:/x", "memory:x?a=b", "memory:x#f"} {
		if _, err := backend.Open(ctx, bad); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
