package leasekeeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// Two calls that end at the same moment leave no place at the store, although the second has just inherited it.
func TestCallsThatEndTogetherLeaveNoPlace(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		w.must(a.Acquire(w.Context(), "x"))
		var s tenures
		for range 200 {
			ctx, cancel := context.WithCancel(w.Context())
			opened, heir := s.begin(ctx, w, b, "opened"), s.begin(ctx, w, b, "heir")
			cancel()
			w.is(<-opened, context.Canceled)
			w.is(<-heir, context.Canceled)
			synctest.Wait()
			if n := w.waitingAtStore("x"); n != 0 {
				w.Fatalf("%d claims wait at the store", n)
			}
		}
	})
}

// A call that inherits a place holds the name in its own way: its context has its own values, and ends with its own
// call only in Run.
func TestHeirHoldsTheNameInItsOwnWay(t *testing.T) {
	type key struct{}
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		for _, runs := range []bool{false, true} {
			l := w.must(a.Acquire(w.Context(), "x"))
			opening, stop := context.WithCancel(w.Context())
			opened, inherited := make(chan error, 1), make(chan error, 1)
			ctx, cancel := context.WithCancel(context.WithValue(w.Context(), key{}, "heir"))
			acquire := func(ctx context.Context) error {
				l, err := b.Acquire(ctx, "x")
				if err != nil {
					return err
				}
				if l.Context().Value(key{}) != "heir" {
					w.Error("the context has not the values of its call")
				}
				cancel()
				if err := l.Context().Err(); err != nil {
					w.Errorf("the context has ended with its call: %v", err)
				}
				return l.Release(w.Context())
			}
			run := func(ctx context.Context) error {
				return b.Run(ctx, "x", func(ctx context.Context, _ *leasekeeper.Lease) error {
					if ctx.Value(key{}) != "heir" {
						w.Error("the context has not the values of its call")
					}
					cancel()
					if ctx.Err() == nil {
						w.Error("the context of the function goes on after its call has ended")
					}
					return nil
				})
			}
			first, second := run, acquire
			if runs {
				first, second = acquire, run
			}
			go func() { opened <- first(opening) }()
			synctest.Wait()
			go func() { inherited <- second(ctx) }()
			synctest.Wait()
			stop()
			w.is(<-opened, context.Canceled)
			w.is(l.Release(w.Context()), nil)
			w.is(<-inherited, nil)
		}
	})
}

// A place whose first claim had an unknown outcome is inherited like any other, once the store has queued it.
func TestHeirOfARepeatedClaimGetsItsTurn(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		k, b := w.keeper("b")
		l := w.must(a.Acquire(w.Context(), "x"))
		b.Inject(memory.Fault{Kind: memory.LoseAnswer, Op: memory.Claim, Times: 1})
		var s tenures
		ctx, cancel := context.WithCancel(w.Context())
		opened := s.begin(ctx, w, k, "opened")
		time.Sleep(time.Second)
		heir := s.begin(w.Context(), w, k, "heir")
		cancel()
		w.is(<-opened, context.Canceled)
		w.is(l.Release(w.Context()), nil)
		if late := took(func() { w.is(<-heir, nil) }); late > 2*time.Second {
			w.Errorf("it had its turn after %v", late)
		}
		s.check(w, "heir")
	})
}

// A call that has waited in the queue for long has the whole TTL again when it loses its place while the store fails.
func TestCallThatWaitedForLongSurvivesAStoreThatFails(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		k, b := w.keeper("b")
		l := w.must(a.Acquire(w.Context(), "x"))
		var s tenures
		waits := s.begin(w.Context(), w, k, "b")
		time.Sleep(3*ttl - time.Second)
		refused := b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Claim})
		lost := b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Await, Err: backend.ErrLost, Times: 1})
		time.Sleep(time.Second + ttl/2) // the keeper calls Await again once in each TTL
		refused()
		lost()
		w.is(l.Release(w.Context()), nil)
		w.is(<-waits, nil)
	})
}

// TryAcquire whose context ends before the outcome is known leaves nothing at the store.
func TestTryAcquireThatEndsInDoubtLeavesNothing(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		b.Inject(memory.Fault{Kind: memory.LoseAnswer, Op: memory.Claim})
		ctx, cancel := context.WithTimeout(w.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := k.TryAcquire(ctx, "x")
		w.is(err, context.DeadlineExceeded)
		synctest.Wait()
		w.free("x")
	})
}

// failing is a backend that refuses claims, and calls a function before it does.
type failing struct {
	*memory.Backend
	do func()
}

func (f *failing) Claim(context.Context, backend.Claim) (backend.Lease, backend.Grant, error) {
	f.do()
	return nil, backend.Grant{}, backend.ErrUnavailable
}

// A call may end at the very moment at which the failing store makes it fail.
func TestCallThatEndsAsItFailsDisturbsNothing(t *testing.T) {
	for range 50 {
		bubble(t, func(w *world) {
			began := time.Now()
			ctx, cancel := context.WithCancel(w.Context())
			k := w.on(&failing{w.store.Backend(), func() {
				if time.Since(began) > ttl {
					cancel()
				}
			}}, "a")
			var s tenures
			first, second := s.begin(w.Context(), w, k, "first"), s.begin(ctx, w, k, "second")
			w.is(<-first, leasekeeper.ErrUnavailable)
			<-second
			if n := leasekeeper.Waiting(k, "x"); n != 0 {
				w.Errorf("%d calls wait", n)
			}
		})
	}
}

// Close ends the wait of a call at once, also while a function of the keeper runs on under the name.
func TestCloseEndsWaitsBehindAFunctionThatRunsOn(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		returns := make(chan struct{})
		go func() {
			_ = k.Run(w.Context(), "x", func(context.Context, *leasekeeper.Lease) error { <-returns; return nil })
		}()
		synctest.Wait()
		var s tenures
		waits := s.begin(w.Context(), w, k, "waits")
		closed := make(chan error, 1)
		go func() { closed <- k.Shutdown(context.Background()) }()
		synctest.Wait()
		select {
		case err := <-waits:
			w.is(err, leasekeeper.ErrClosed)
		default:
			w.Error("the call still waits")
		}
		close(returns)
		w.is(<-closed, nil)
	})
}
