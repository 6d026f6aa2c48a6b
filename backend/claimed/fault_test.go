package claimed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

// Whichever answer gets lost, a keeper gets its lease, only one, and releases it.
func TestLostAnswersAreFound(t *testing.T) {
	for _, method := range []claimtest.Method{claimtest.Get, claimtest.Swap} {
		for skip := range 6 {
			for _, f := range []claimtest.Fault{{LoseAnswer: true}, {LoseRequest: true}, {LoseAnswer: true, Twice: time.Second}} {
				bubble(t, machines, func(t *testing.T, w *site) {
					p, other := w.process(), w.process()
					k := keeperOn(t, p.Backend, "a")
					left := skip
					p.faults(func(c claimtest.Call) claimtest.Fault {
						if c.Method != method {
							return claimtest.Fault{}
						}
						if left--; left == -1 {
							return f
						}
						return claimtest.Fault{}
					})
					what := fmt.Sprintf("%+v of %s %d", f, method, skip)
					l, err := k.Acquire(t.Context(), "x")
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					time.Sleep(2 * ttl)
					if err := l.Check(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					if i, err := other.Get(t.Context(), "x"); err != nil || i.Token != l.Token() || i.Holder.ID != "a" {
						t.Errorf("%s: %+v, %v", what, i, err)
					}
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("%s: release: %v", what, err)
					}
					if i, err := other.Get(t.Context(), "x"); err != nil || i.Held {
						t.Errorf("%s: released: %+v, %v", what, i, err)
					}
				})
			}
		}
	}
}

// A claim whose write arrives after its caller has given up does not hold the name in the end.
func TestLateClaimDoesNotHold(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p, other := w.process(), w.process()
		earlier, _ := other.hold("x", "other")
		other.release(earlier)
		p.network.Inject(claimtest.Call{Method: claimtest.Swap}, 1, claimtest.Fault{Delay: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		l, _, err := p.Claim(ctx, undecided("x", "a", false))
		if !errors.Is(err, backend.ErrUnknownOutcome) || l == nil {
			t.Fatalf("%v, %v", l, err)
		}
		for range 50 {
			if err = p.Release(t.Context(), l); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if i, err := other.Get(t.Context(), "x"); err != nil || i.Held {
			t.Errorf("%+v, %v", i, err)
		}
	})
}

// A store that does not answer keeps no caller past its deadline, and breaks no promise.
func TestStalledStoreKeepsNoCallerPastItsDeadline(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process()
		stall := claimtest.Fault{Delay: time.Hour}
		l, _ := p.hold("x", "a")
		place := p.wait("x", "b")
		heal := p.network.Inject(claimtest.Call{}, 0, stall)
		within := func(what string, call func(context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			err := call(ctx)
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
				t.Errorf("%s: %v after %v", what, err, took)
			}
		}
		within("Claim", func(ctx context.Context) error {
			_, _, err := p.Claim(ctx, undecided("y", "c", false))
			return err
		})
		within("Await", func(ctx context.Context) error { _, err := p.Await(ctx, place); return err })
		within("Renew", func(ctx context.Context) error {
			return p.Renew(ctx, []backend.Lease{l}, func(int, backend.Renewal) {})
		})
		within("Get", func(ctx context.Context) error { _, err := p.Get(ctx, "x"); return err })
		within("List", func(ctx context.Context) error { _, err := p.List(ctx, "", "", 1); return err })
		within("Watch", func(ctx context.Context) error { return p.Watch(ctx, "", func(backend.Event) {}) })
		within("History", func(ctx context.Context) error { _, err := p.History(ctx, "x", 1); return err })
		within("Release", func(ctx context.Context) error { return p.Release(ctx, l) })
		heal()
		p.release(l)
		p.release(place)
	})
}

// A place in the local queue needs no call of the store. The reported end of the place is never later than the
// end of the lease that an attempt under way may have got.
func TestPlaceEndsNoLaterThanTheLeaseItMayGet(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		clock := w.next().Clock
		holder, p := w.process(), w.process(claimed.WithPoll(time.Hour))
		l, _ := holder.hold("x", "holder")
		place := p.wait("x", "waiter")
		turn := make(chan backend.Grant, 1)
		go func() {
			g, err := p.Await(t.Context(), place)
			if err != nil {
				t.Error(err)
			}
			turn <- g
		}()
		time.Sleep(ttl / 4)
		p.callsOf(claimtest.Swap)
		r := p.renew(place)[0]
		if now := clock.Now(); r.Err != nil || r.TTL != ttl || now.Remaining(r.Until) > ttl || now.Remaining(r.Until) < ttl*9/10 {
			t.Errorf("renewed: %+v", r)
		}
		if n := p.callsOf(claimtest.Swap); n != 0 {
			t.Errorf("a place in line was renewed by %d writes", n)
		}
		// The answer to the attempt is slow, and the place is renewed meanwhile.
		p.network.Inject(claimtest.Call{Method: claimtest.Swap}, 1, claimtest.Fault{Back: ttl / 2})
		holder.release(l)
		for range 4 {
			time.Sleep(ttl / 10)
			if r = p.renew(place)[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if g := <-turn; g.Until.Remaining(r.Until) > 0 {
			t.Errorf("the place was said to last until %v, and the lease lasts until %v", r.Until, g.Until)
		}
		p.release(place)
	})
}

// All leases of a keeper are renewed by one statement.
func TestManyLeasesAreRenewedByOneStatement(t *testing.T) {
	const many = 10_000
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process()
		leases := make([]backend.Lease, many)
		for i := range leases {
			leases[i], _ = p.hold(fmt.Sprint("x/", i), "a")
		}
		p.callsOf(claimtest.Swap)
		for range 3 {
			time.Sleep(ttl / 2)
			p.callsOf(claimtest.Get)
			for i, r := range p.renew(leases...) {
				if r.Err != nil || r.TTL != ttl {
					t.Fatalf("%d: %+v", i, r)
				}
			}
			if swaps, gets := p.callsOf(claimtest.Swap), p.callsOf(claimtest.Get); swaps != 1 || gets != 0 {
				t.Errorf("%d leases were renewed by %d writes and %d reads", many, swaps, gets)
			}
		}
	})
}

// No decision depends on the wall clock, whatever it shows.
func TestWallClockDoesNotMatter(t *testing.T) {
	bubble(t, machines, func(t *testing.T, w *site) {
		next, steps := w.next, 0
		w.next = func() claim.Options {
			o := next()
			o.Wall = func() time.Time {
				steps++
				return time.Now().Add([]time.Duration{24 * time.Hour, -24 * time.Hour, 0}[steps%3])
			}
			return o
		}
		a, b := w.process(), w.process()
		k, other := keeperOn(t, a.Backend, "a"), keeperOn(t, b.Backend, "b")
		l, err := k.Acquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(5 * ttl); time.Now().Before(end); time.Sleep(time.Second) {
			if _, err := other.TryAcquire(t.Context(), "x"); !errors.Is(err, backend.ErrHeld) {
				t.Fatal(err)
			}
		}
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
		a.network.Inject(claimtest.Call{}, 0, claimtest.Fault{LoseRequest: true})
		start := time.Now()
		if _, err = other.Acquire(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < ttl/2 || took > 2*ttl {
			t.Errorf("a holder who was cut off was succeeded after %v", took)
		}
		if steps == 0 {
			t.Error("no call read the wall clock")
		}
	})
}

// Whenever the context of an Acquire ends, nothing is left that keeps another client from the name.
func TestNothingIsLeftWhenAContextEnds(t *testing.T) {
	for _, held := range []bool{false, true} {
		for at := 0; ; at++ {
			calls := 0
			bubble(t, machines, func(t *testing.T, w *site) {
				p, other := w.process(), w.process()
				k := keeperOn(t, p.Backend, "a")
				var l backend.Lease
				if held {
					l, _ = other.hold("x", "other")
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p.faults(func(c claimtest.Call) claimtest.Fault {
					if calls++; calls-1 == at {
						cancel() // while the call is under way: it arrives, and its answer comes too late
						return claimtest.Fault{Delay: time.Millisecond}
					}
					return claimtest.Fault{}
				})
				start := time.Now()
				got, err := k.Acquire(ctx, "x")
				if err == nil {
					// It succeeded before the context ended.
					if err := got.Release(t.Context()); err != nil {
						t.Error(err)
					}
					return
				}
				if !errors.Is(err, context.Canceled) || held && time.Since(start) > 2*ttl {
					t.Errorf("at call %d: %v after %v", at, err, time.Since(start))
				}
				if held {
					other.release(l)
				}
				time.Sleep(time.Second) // the claim under way is released in the background
				if i, err := other.Get(t.Context(), "x"); err != nil || i.Held && i.Holder.ID == "a" {
					t.Errorf("at call %d: left behind: %+v, %v", at, i, err)
				}
			})
			if calls <= at || t.Failed() {
				break
			}
			if at > 30 {
				break // it polls for ever
			}
		}
	}
}

// Close ends all calls under way, and leaves nothing.
func TestCloseEndsCallsUnderWay(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p, other := w.process(), w.process()
		l, _ := p.hold("x", "a")
		place := p.wait("x", "b")
		errs := make(chan error, 3)
		go func() { _, err := p.Await(t.Context(), place); errs <- err }()
		go func() { errs <- p.Watch(t.Context(), "", func(backend.Event) {}) }()
		synctest.Wait()
		p.network.Inject(claimtest.Call{Method: claimtest.Get, Name: "slow"}, 1, claimtest.Fault{Delay: time.Second})
		go func() { _, err := p.Get(t.Context(), "slow"); errs <- err }()
		synctest.Wait()
		for range 2 {
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for range 3 {
			if err := <-errs; !errors.Is(err, backend.ErrClosed) {
				t.Error(err)
			}
		}
		if _, err := claimed.LeaseOf(l); err != nil {
			t.Error(err)
		}
		if i, err := other.Get(t.Context(), "x"); err != nil || !i.Held {
			t.Errorf("its lease: %+v, %v", i, err)
		}
	})
}

// The observation of a holder is stored for another process to continue. A claim stores it when it is refused,
// and a waiter when it leaves.
func TestRefusedAndLeavingWaitersKeepObservations(t *testing.T) {
	bubble(t, machines, func(t *testing.T, w *site) {
		holder := w.process()
		holder.hold("x", "holder")
		options := w.next() // of several short-lived processes on one machine
		w.next = func() claim.Options { return options }
		first := w.process()
		start := time.Now()
		if _, _, err := first.Claim(t.Context(), undecided("x", "a", false)); !errors.Is(err, backend.ErrHeld) {
			t.Fatal(err)
		}
		for time.Since(start) < 2*ttl {
			time.Sleep(ttl / 10)
			_, _, err := w.process().Claim(t.Context(), undecided("x", "a", false))
			if err == nil {
				if took := time.Since(start); took < ttl {
					t.Errorf("taken after %v", took)
				}
				return
			}
		}
		t.Error("short processes alone never got the name of a holder who is silent")
	})
}

// A slow watch gets the present state of names, and a record that cannot be read hides no other.
func TestSlowWatchAndBrokenRecordHideNoOtherName(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process()
		for _, name := range []string{"x/1", "x/2", "x/3"} {
			p.hold(name, "a")
		}
		w.memory.Damage("", "x/2")
		all, err := p.List(t.Context(), "x/", "", 3)
		if err != nil || len(all) != 3 || all[0].Err != nil || all[1].Name != "x/2" || !errors.Is(all[1].Err, backend.ErrCorrupt) || all[2].Err != nil || !all[2].Held {
			t.Errorf("%+v, %v", all, err)
		}
		listed := make(map[string]error)
		for i, err := range keeperOn(t, p.Backend, "reader").List(t.Context(), "x/") {
			listed[i.Name] = err
		}
		if len(listed) != 3 || listed["x/1"] != nil || !errors.Is(listed["x/2"], backend.ErrCorrupt) || listed["x/3"] != nil {
			t.Errorf("a keeper lists %v", listed)
		}
		if _, err := p.Get(t.Context(), "x/2"); !errors.Is(err, backend.ErrCorrupt) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
		defer cancel()
		events := make(map[string]int)
		p.hold("x/4", "a")
		if err := p.Watch(ctx, "x/", func(e backend.Event) {
			events[fmt.Sprint(e.Kind, " ", e.Info.Name)]++
			w.memory.Damage("", "x/4") // an unreadable record is no event
		}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for _, name := range []string{"x/1", "x/3"} {
			for _, kind := range []backend.EventKind{backend.Resync, backend.Vacated} {
				if n := events[fmt.Sprint(kind, " ", name)]; n != 1 {
					t.Errorf("event %d of %s was reported %d times", kind, name, n)
				}
			}
		}
		if n := events[fmt.Sprint(backend.Vacated, " x/4")]; n != 0 {
			t.Error("who cannot be read was said to be gone")
		}
	})
}

// A failed release can be repeated, even if a renewal was refused because of it.
func TestFailedReleaseIsTriedAgain(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p, other := w.process(), w.process()
		l, _ := p.hold("x", "a")
		heal := p.network.Inject(claimtest.Call{}, 0, claimtest.Fault{Err: backend.ErrUnavailable})
		if err := p.Release(t.Context(), l); !errors.Is(err, backend.ErrUnavailable) {
			t.Fatal(err)
		}
		heal()
		if r := p.renew(l)[0]; !errors.Is(r.Err, backend.ErrLost) {
			t.Errorf("renewed while it is being released: %+v", r)
		}
		p.release(l)
		if i, err := other.Get(t.Context(), "x"); err != nil || i.Held {
			t.Errorf("released: %+v, %v", i, err)
		}
	})
}
