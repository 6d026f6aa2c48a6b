package leasekeeper_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// callingContext is a context of a program that calls the keeper in each of its methods.
type callingContext struct {
	context.Context
	call func()
}

func (c callingContext) Deadline() (time.Time, bool) { c.call(); return c.Context.Deadline() }
func (c callingContext) Done() <-chan struct{}       { c.call(); return c.Context.Done() }
func (c callingContext) Err() error                  { c.call(); return c.Context.Err() }
func (c callingContext) Value(key any) any           { c.call(); return c.Context.Value(key) }

// A program's context may call the keeper, however a lease ends that was acquired with it: the keeper never calls the
// context while it holds its own lock.
func TestContextsOfProgramsMayCallTheKeeper(t *testing.T) {
	fails := errors.New("the function fails")
	for what, ends := range map[string]struct {
		options []leasekeeper.Option
		run     func(w *world, k *leasekeeper.Keeper, ctx context.Context, l *leasekeeper.Lease, cancel func()) error
		is      error
	}{
		"by return": {run: func(*world, *leasekeeper.Keeper, context.Context, *leasekeeper.Lease, func()) error { return fails }, is: fails},
		"by a cancel": {run: func(_ *world, _ *leasekeeper.Keeper, ctx context.Context, _ *leasekeeper.Lease, cancel func()) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}, is: context.Canceled},
		"by a loss": {run: func(w *world, _ *leasekeeper.Keeper, ctx context.Context, l *leasekeeper.Lease, _ func()) error {
			if err := w.store.Backend().Revoke(w.Context(), l.Name(), l.Token(), "", true); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}, is: leasekeeper.ErrLost},
		"early": {options: []leasekeeper.Option{leasekeeper.HoldAtMost(time.Second)}, run: func(_ *world, _ *leasekeeper.Keeper, ctx context.Context, _ *leasekeeper.Lease, _ func()) error {
			<-ctx.Done()
			return nil
		}, is: leasekeeper.ErrLost},
		"by Close": {run: func(_ *world, k *leasekeeper.Keeper, ctx context.Context, _ *leasekeeper.Lease, _ func()) error {
			go func() { _ = k.Close() }()
			<-ctx.Done()
			return nil
		}, is: nil},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, _ := w.keeper("a")
				calls := 0
				inner, cancel := context.WithCancel(w.Context())
				defer cancel()
				ctx := callingContext{inner, func() { calls++; w.wantUnlocked(k) }}
				err := k.Run(ctx, "x", func(ctx context.Context, l *leasekeeper.Lease) error {
					return ends.run(w, k, ctx, l, cancel)
				}, ends.options...)
				synctest.Wait()
				if calls == 0 || !errors.Is(err, ends.is) {
					w.Errorf("%d calls, and %v, want %v", calls, err, ends.is)
				}
			})
		})
	}
}

// wantUnlocked fails the test unless the keeper's lock becomes free while its caller waits.
func (w *world) wantUnlocked(k *leasekeeper.Keeper) {
	for range 1 << 20 {
		if leasekeeper.TryLock(k) {
			return
		}
		runtime.Gosched()
	}
	w.Error("the keeper calls a context of the program under its lock")
}

// A context that ends while a call waits may call the keeper too.
func TestContextsOfWaitingCallsMayCallTheKeeper(t *testing.T) {
	bubble(t, func(w *world) {
		k, store := w.keeper("a")
		other, _ := w.keeper("b")
		inner, cancel := context.WithCancel(w.Context())
		defer cancel()
		ctx := callingContext{inner, func() { w.wantUnlocked(k) }}
		l := w.must(k.Acquire(ctx, "x"))
		w.must(other.Acquire(w.Context(), "y"))
		acquired := make(chan error, 2)
		for _, name := range []string{"x", "y"} { // behind its own keeper, and in the store's queue
			go func() { _, err := k.Acquire(ctx, name); acquired <- err }()
		}
		released := make(chan error, 1)
		synctest.Wait()
		defer store.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Release})()
		go func() { released <- l.Release(ctx) }()
		synctest.Wait()
		cancel()
		w.is(<-acquired, context.Canceled)
		w.is(<-acquired, context.Canceled)
		w.is(<-released, leasekeeper.ErrUnknownOutcome)
	})
}
