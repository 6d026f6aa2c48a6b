package leasekeeper_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
)

var errSick = errors.New("the disk is full")

// A tenure ends at its longest time: the context first, and the name when the function has returned.
func TestHoldAtMostEndsTheTenureWhenTheFunctionHasReturned(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		// Renewals end with the context. So the lease lasts for two thirds of its TTL more, or longer.
		const most, cleanUp = time.Minute, ttl / 2
		start := time.Now()
		err := k.Run(w.Context(), "x", func(ctx context.Context, l *leasekeeper.Lease) error {
			<-ctx.Done()
			if d := time.Since(start); d != most {
				w.Errorf("the context ends after %v", d)
			}
			w.is(context.Cause(ctx), leasekeeper.ErrLost)
			time.Sleep(cleanUp)
			w.holder("x", "a")
			w.is(l.Check(), nil) // until its deadline nobody else can hold the name
			return nil
		}, leasekeeper.HoldAtMost(most))
		w.is(err, leasekeeper.ErrLost)
		if !strings.Contains(err.Error(), "held for 1m0s") {
			w.Errorf("%v", err)
		}
		if d := time.Since(start); d != most+cleanUp {
			w.Errorf("Run returns after %v", d)
		}
		w.free("x")
	})
}

// The lease of a function that does not return runs out, and Run waits for the function all the same.
func TestHoldAtMostLetsTheLeaseOfAFunctionThatRunsOnRunOut(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		other, _ := w.keeper("b")
		returns, returned := make(chan struct{}), make(chan error, 1)
		go func() {
			returned <- k.Run(w.Context(), "x", func(context.Context, *leasekeeper.Lease) error { <-returns; return errFunc }, leasekeeper.HoldAtMost(time.Minute))
		}()
		synctest.Wait()
		late := took(func() { w.must(other.Acquire(w.Context(), "x")) })
		if late < time.Minute || late > time.Minute+ttl {
			w.Errorf("another process has the name after %v", late)
		}
		select {
		case err := <-returned:
			w.Errorf("Run returned %v while its function runs", err)
		default:
		}
		close(returns)
		err := <-returned
		w.is(err, leasekeeper.ErrLost)
		w.is(err, errFunc)
	})
}

// A failing health check ends the tenure, and a campaign goes on.
func TestFailingHealthCheckEndsTheTenure(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		var sick atomic.Bool
		check := func(context.Context) error {
			if sick.Load() {
				return errSick
			}
			return nil
		}
		ctx, cancel := context.WithCancel(w.Context())
		var leads atomic.Bool
		ended := make(chan error, 1)
		go func() {
			ended <- a.Campaign(ctx, "x", func(ctx context.Context, _ *leasekeeper.Lease) error {
				leads.Store(true)
				defer leads.Store(false)
				<-ctx.Done()
				if cause := context.Cause(ctx); w.Context().Err() == nil && errors.Is(cause, leasekeeper.ErrLost) && !strings.Contains(cause.Error(), errSick.Error()) {
					w.Errorf("the cause is %v", cause)
				}
				return nil
			}, leasekeeper.WithHealth(check))
		}()
		time.Sleep(10 * ttl)
		w.holder("x", "a")
		waits := make(chan *leasekeeper.Lease, 1)
		go func() { waits <- w.must(b.Acquire(w.Context(), "x")) }()
		synctest.Wait()
		sick.Store(true)
		late := took(func() {
			l := <-waits
			if leads.Load() {
				w.Error("b holds the name, and the function of a runs")
			}
			sick.Store(false)
			w.is(l.Release(w.Context()), nil)
		})
		if late > ttl/3 {
			w.Errorf("b has the name %v after the check began to fail", late)
		}
		time.Sleep(2 * ttl)
		w.holder("x", "a")
		cancel()
		w.is(<-ended, context.Canceled)
	})
}

// A check that hangs counts as failed, whether or not it obeys its context.
func TestHangingHealthCheckEndsTheTenure(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		bubble(t, func(w *world) {
			k, _ := w.keeper("a")
			hangs := make(chan struct{})
			check := func(ctx context.Context) error {
				if obeys {
					<-ctx.Done()
					return ctx.Err()
				}
				<-hangs
				return nil
			}
			late := took(func() {
				err := k.Run(w.Context(), "x", func(ctx context.Context, _ *leasekeeper.Lease) error { <-ctx.Done(); return nil }, leasekeeper.WithHealth(check))
				w.is(err, leasekeeper.ErrLost)
			})
			if late != ttl/3 {
				w.Errorf("the tenure ended after %v", late)
			}
			w.free("x")
			close(hangs)
		})
	}
}

// A lease that Acquire returned is retired: its holder releases it, or it runs out.
func TestAcquiredLeaseThatEndsEarlyIsReleasedByItsHolder(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a", leasekeeper.HoldAtMost(time.Minute))
		l := w.must(k.Acquire(w.Context(), "x"))
		<-l.Context().Done()
		w.is(l.Check(), nil)
		w.is(l.Release(w.Context()), nil)
		w.free("x")
		l = w.must(k.TryAcquire(w.Context(), "x"))
		time.Sleep(time.Minute + ttl)
		w.is(l.Check(), leasekeeper.ErrLost)
		w.free("x")
		short := w.must(k.Acquire(w.Context(), "y"))
		w.is(short.Release(w.Context()), nil) // ends the goroutine that would end the tenure
	})
}

// A resumed lease has the same limits as an acquired one.
func TestResumedLeaseEndsEarly(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		other, _ := w.keeper("b", leasekeeper.HoldAtMost(time.Minute))
		l := w.must(k.Acquire(w.Context(), "x"))
		resumed := w.must(other.Resume(w.Context(), "x", l.Token()))
		late := took(func() { <-resumed.Context().Done() })
		if late != time.Minute {
			w.Errorf("the context ends after %v", late)
		}
		w.is(resumed.Release(w.Context()), nil)
	})
}

// A longest time that is none is refused.
func TestHoldAtMostMustBePositive(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		_, err := k.Acquire(w.Context(), "x", leasekeeper.HoldAtMost(0))
		w.is(err, leasekeeper.ErrInvalid)
		_, err = leasekeeper.New(b, leasekeeper.HoldAtMost(-1))
		w.is(err, leasekeeper.ErrInvalid)
	})
}

// closed, and the function runs on.
func TestTenureWhoseContextHasEndedStillEndsEarly(t *testing.T) {
	var sick atomic.Bool
	for name, option := range map[string]leasekeeper.Option{
		"at its longest time": leasekeeper.HoldAtMost(time.Minute),
		"when its health check fails": leasekeeper.WithHealth(func(context.Context) error {
			if sick.Load() {
				return errSick
			}
			return nil
		}),
	} {
		for _, closes := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(w *world) {
					sick.Store(false)
					k, _ := w.keeper("a")
					other, _ := w.keeper("b")
					ctx, cancel := context.WithCancel(w.Context())
					returns, returned := make(chan struct{}), make(chan error, 1)
					go func() {
						returned <- k.Run(ctx, "x", func(context.Context, *leasekeeper.Lease) error { <-returns; return nil }, option)
					}()
					synctest.Wait()
					if closes {
						go func() { w.is(k.Shutdown(context.Background()), nil) }()
					} else {
						cancel()
					}
					time.AfterFunc(time.Minute, func() { sick.Store(true) })
					late := took(func() { w.must(other.Acquire(w.Context(), "x")) })
					if late < time.Minute || late > time.Minute+2*ttl {
						w.Errorf("another process has the name after %v", late)
					}
					close(returns)
					w.is(<-returned, leasekeeper.ErrLost)
					cancel()
				})
			})
		}
	}
}

// Shutdown that gives up on a function does not wait for the end of its tenure.
func TestShutdownDoesNotWaitForALongestTime(t *testing.T) {
	bubble(t, func(w *world) {
		k, err := leasekeeper.New(w.store.Backend(), leasekeeper.WithTTL(ttl))
		w.is(err, nil)
		returns, returned := make(chan struct{}), make(chan error, 1)
		go func() {
			returned <- k.Run(w.Context(), "x", func(context.Context, *leasekeeper.Lease) error { <-returns; return nil },
				leasekeeper.HoldAtMost(time.Hour), leasekeeper.WithHealth(func(context.Context) error { return nil }))
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if late := took(func() { w.is(k.Shutdown(ctx), context.DeadlineExceeded) }); late != time.Second {
			w.Errorf("gave up after %v", late)
		}
		close(returns)
		w.is(<-returned, leasekeeper.ErrClosed)
	})
}

// Run reports the early end once, also when its function returns it.
func TestEarlyEndIsReportedOnce(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		err := k.Run(w.Context(), "x", func(ctx context.Context, _ *leasekeeper.Lease) error { <-ctx.Done(); return context.Cause(ctx) }, leasekeeper.HoldAtMost(time.Minute))
		if n := strings.Count(err.Error(), "held for 1m0s"); n != 1 {
			w.Errorf("reported %d times: %v", n, err)
		}
	})
}

// --- elector_test.go

// A health check is not called for a lease that has ended, or whose tenure ends already.
func TestHealthCheckEndsWithTheTenure(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		var calls atomic.Int32
		check := leasekeeper.WithHealth(func(context.Context) error { calls.Add(1); return nil })
		for _, most := range []time.Duration{time.Hour, ttl / 2} {
			l := w.must(k.Acquire(w.Context(), "x", check, leasekeeper.HoldAtMost(most)))
			time.Sleep(ttl/2 + 1)
			if most == time.Hour {
				w.is(l.Release(w.Context()), nil)
			}
			before := calls.Load()
			time.Sleep(ttl / 2)
			if n := calls.Load() - before; before == 0 || n != 0 {
				w.Errorf("%d calls after the end, %d before", n, before)
			}
			_ = l.Release(w.Context())
		}
	})
}

// A health check that wants the name of its own lease would wait for itself, and is refused at once.
func TestHealthCheckThatWantsItsOwnNameIsRefused(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		outer := w.must(k.Acquire(w.Context(), "outer"))
		for _, name := range []string{"x", "outer"} {
			var claimed error
			err := k.Run(outer.Context(), "x", func(ctx context.Context, _ *leasekeeper.Lease) error { <-ctx.Done(); return nil },
				leasekeeper.WithHealth(func(ctx context.Context) error {
					_, claimed = k.Acquire(ctx, name)
					return claimed
				}))
			w.is(err, leasekeeper.ErrLost)
			if held, ok := errors.AsType[*leasekeeper.HeldError](claimed); !ok || !held.Self {
				w.Errorf("the claim to %s in the check returned %v", name, claimed)
			}
		}
	})
}
