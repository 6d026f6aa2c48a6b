package leasekeeper_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func TestCloseWaitsForFunctions(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		ran, started := make(chan error, 2), make(chan struct{}, 2)
		fn := func(ctx context.Context, l *leasekeeper.Lease) error {
			started <- struct{}{}
			<-ctx.Done()
			w.is(context.Cause(ctx), leasekeeper.ErrClosed)
			time.Sleep(2 * ttl)
			if err := l.Check(); err != nil {
				w.Error(err)
			}
			w.holder(l.Name(), "a")
			return nil
		}
		go func() { ran <- k.Run(w.Context(), "run", fn) }()
		go func() { ran <- k.Campaign(w.Context(), "campaign", fn) }()
		<-started
		<-started
		if late := took(func() {
			if err := k.Shutdown(w.Context()); err != nil {
				w.Error(err)
			}
		}); late != 2*ttl {
			w.Errorf("closed after %v", late)
		}
		for range 2 {
			if err := <-ran; err != nil && !errors.Is(err, leasekeeper.ErrClosed) {
				w.Error(err)
			}
		}
		w.free("run")
		w.free("campaign")
	})
}

func TestContextOfTheFirstCloseBoundsTheClosing(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "manual"))
		started, ran := make(chan struct{}), make(chan error)
		go func() {
			ran <- k.Run(w.Context(), "run", func(ctx context.Context, l *leasekeeper.Lease) error {
				close(started)
				time.Sleep(10 * ttl) // ignores its context, so the keeper keeps the lease
				w.must(l, nil)
				return errFunc
			})
		}()
		<-started
		b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Release})
		first := make(chan error)
		go func() { first <- k.Shutdown(context.Background()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.is(k.Shutdown(ctx), context.DeadlineExceeded)
		// The lease outside Run has expired meanwhile, and the store has not confirmed its release.
		go func() { w.is(<-first, leasekeeper.ErrUnknownOutcome) }()
		err := <-ran
		w.is(err, errFunc)
		w.is(l.Check(), leasekeeper.ErrLost)
		w.is(l.Release(w.Context()), leasekeeper.ErrUnknownOutcome)
	})
}

func TestCloseWithAnEndedContextLeavesNoGoroutine(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.store.Backend()
		k, err := leasekeeper.New(b, leasekeeper.WithTTL(ttl))
		if err != nil {
			w.Fatal(err)
		}
		l := w.must(k.Acquire(w.Context(), "manual"))
		started, ran := make(chan struct{}), make(chan error, 1)
		go func() {
			ran <- k.Run(w.Context(), "run", func(ctx context.Context, l *leasekeeper.Lease) error {
				close(started)
				<-ctx.Done()
				time.Sleep(ttl)
				w.is(l.Check(), leasekeeper.ErrLost)
				return nil
			})
		}()
		<-started
		b.Inject(memory.Fault{Kind: memory.Stall})
		time.Sleep(ttl / 2) // a renewal is in progress
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if late := took(func() { w.is(k.Shutdown(ctx), context.DeadlineExceeded) }); late != time.Second {
			w.Errorf("gave up after %v", late)
		}
		w.is(l.Check(), leasekeeper.ErrLost)
		w.is(context.Cause(l.Context()), leasekeeper.ErrClosed)
		err = <-ran
		w.is(err, leasekeeper.ErrLost)
		w.is(err, leasekeeper.ErrClosed)
		// A second Close returns at once.
		if err := k.Shutdown(w.Context()); err != nil {
			w.Error(err)
		}
		never := func(context.Context, *leasekeeper.Lease) error { return nil }
		_, err = k.Acquire(w.Context(), "y")
		w.is(err, leasekeeper.ErrClosed)
		w.is(k.Run(w.Context(), "y", never), leasekeeper.ErrClosed)
		w.is(k.Campaign(w.Context(), "y", never), leasekeeper.ErrClosed)
		_, err = k.Resume(w.Context(), "y", 1)
		w.is(err, leasekeeper.ErrClosed)
		_, err = k.Get(w.Context(), "y")
		w.is(err, leasekeeper.ErrClosed)
		for _, err := range k.List(w.Context(), "") {
			w.is(err, leasekeeper.ErrClosed)
		}
		for _, err := range k.Watch(w.Context(), "") {
			w.is(err, leasekeeper.ErrClosed)
		}
	})
}

func TestCloseInterruptsWaitingCalls(t *testing.T) {
	faults := map[string]memory.Fault{
		"in the queue":           {Kind: memory.DelayAnswer, Op: memory.History},
		"claims stall":           {Kind: memory.Stall, Op: memory.Claim},
		"answers are lost":       {Kind: memory.LoseAnswer, Op: memory.Claim},
		"the store is gone":      {Kind: memory.Refuse, Op: memory.Claim},
		"turns are not reported": {Kind: memory.Stall, Op: memory.Await},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				other, _ := w.keeper("other")
				w.must(other.Acquire(w.Context(), "x"))
				k, b := w.keeper("a")
				b.Inject(fault)
				waited := make(chan error, 3)
				never := func(context.Context, *leasekeeper.Lease) error { return errFunc }
				go func() { _, err := k.Acquire(w.Context(), "x"); waited <- err }()
				go func() { waited <- k.Run(w.Context(), "x", never) }()
				go func() { waited <- k.Campaign(w.Context(), "x", never) }()
				time.Sleep(time.Second)
				if late := took(func() {
					if err := k.Shutdown(w.Context()); err != nil {
						w.Error(err)
					}
				}); late > time.Second {
					w.Errorf("closed after %v", late)
				}
				for range 3 {
					w.is(<-waited, leasekeeper.ErrClosed)
				}
				if i, _ := w.store.Backend().Get(w.Context(), "x"); i.Waiting > 0 {
					w.Errorf("a claim is left in the queue: %+v", i)
				}
			})
		})
	}
}

// Close interrupts a release whose caller would wait forever.
func TestCloseInterruptsARelease(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.store.Backend()
		k, err := leasekeeper.New(b, leasekeeper.WithTTL(ttl))
		if err != nil {
			w.Fatal(err)
		}
		l := w.must(k.Acquire(w.Context(), "x"))
		b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Release})
		released := make(chan error, 1)
		go func() { released <- l.Release(context.Background()) }()
		synctest.Wait()
		ended, cancel := context.WithCancel(w.Context())
		cancel()
		if late := took(func() { w.is(k.Shutdown(ended), context.Canceled) }); late != 0 {
			w.Errorf("closed after %v", late)
		}
		w.is(<-released, leasekeeper.ErrUnknownOutcome)
	})
}

// Close needs no context of the program, and gives up after ten seconds.
func TestCloseHasABoundOfItsOwn(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		w.is(k.Close(), nil)
		w.is(l.Check(), leasekeeper.ErrClosed)
		w.free("x")
		stuck, b := w.keeper("b")
		w.must(stuck.Acquire(w.Context(), "x"))
		b.Inject(memory.Fault{Kind: memory.Stall})
		if late := took(func() { w.is(stuck.Close(), context.DeadlineExceeded) }); late != 10*time.Second {
			w.Errorf("gave up after %v", late)
		}
	})
}

// A keeper that has nothing to release is closed without an error, also with a context that has ended.
func TestCloseOfAnIdleKeeperNeedsNoContext(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		k, err := leasekeeper.New(memory.New().Backend())
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Shutdown(ended); err != nil {
			t.Fatal(err)
		}
	}
}

var _ = errors.Is
