package leasekeeper_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func TestReleaseIsReportedOnlyIfConfirmed(t *testing.T) {
	for _, kind := range []memory.Kind{memory.LoseRequest, memory.LoseAnswer, memory.HoldRequest, memory.Stall, memory.StallAnswer, memory.Refuse} {
		for _, times := range []int{1, 3, 0} {
			t.Run(fmt.Sprint(kind, times), func(t *testing.T) {
				bubble(t, func(w *world) {
					k, b := w.keeper("a")
					l := w.must(k.Acquire(w.Context(), "x"))
					remove := b.Inject(memory.Fault{Kind: kind, Op: memory.Release, Times: times})
					defer remove()
					start := time.Now()
					err := l.Release(w.Context())
					if l.Context().Err() == nil || l.Check() == nil {
						w.Error("released, and its context goes on")
					}
					if times == 0 {
						w.is(err, leasekeeper.ErrUnknownOutcome)
						if late := time.Since(start); late > 2*ttl {
							w.Errorf("tried for %v", late)
						}
						w.is(l.Release(w.Context()), leasekeeper.ErrUnknownOutcome)
						return
					}
					if err != nil {
						w.Error(err)
					}
					w.free("x")
				})
			})
		}
	}
}

func TestReleaseContinuesAfterItsCallerLeft(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		b.Inject(memory.Fault{Kind: memory.DelayRequest, Op: memory.Release, Delay: time.Second})
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		err := l.Release(ctx)
		w.is(err, leasekeeper.ErrUnknownOutcome)
		w.is(err, context.Canceled)
		if err := l.Release(w.Context()); err != nil {
			w.Error(err)
		}
		w.free("x")
	})
}

// A context that the program first asks for after the end of the lease has ended too, with its cause. Until the end, the
// context of a lease outlives the context of the call that acquired it.
func TestContextAskedForAfterTheEndHasEnded(t *testing.T) {
	type key struct{}
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		ctx, cancel := context.WithCancel(context.WithValue(w.Context(), key{}, "v"))
		first, second := w.must(k.Acquire(ctx, "x")), w.must(k.Acquire(ctx, "y"))
		cancel()
		if c := first.Context(); c.Err() != nil || c.Value(key{}) != "v" || c != first.Context() {
			w.Errorf("%v, %v", c, c.Err())
		}
		for _, l := range []*leasekeeper.Lease{first, second} {
			if err := l.Release(w.Context()); err != nil {
				w.Error(err)
			}
			if l.Context().Err() == nil {
				w.Error("released, and its context goes on")
			}
			w.is(context.Cause(l.Context()), leasekeeper.ErrLost)
		}
		third := w.must(k.Acquire(w.Context(), "z"))
		w.clock.Suspend(2 * ttl)
		w.is(third.Check(), leasekeeper.ErrLost)
		w.is(context.Cause(third.Context()), leasekeeper.ErrLost)
	})
}
