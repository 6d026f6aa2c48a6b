package clientgolease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	clientgolease "github.com/leasekeeper/leasekeeper/contrib/client-go"
)

// framework is a program that makes an elector with callbacks of its own, as controller-runtime's manager does.
type framework struct {
	client *memory.Backend
	keeper *leasekeeper.Keeper
	lock   *clientgolease.Lock
	led    chan struct{} // closed when it leads
	cause  error         // why the context of its work ended
	wind   time.Duration // how long its work takes to end
}

func (w *world) framework(id string) *framework {
	w.Helper()
	b := w.store.Backend()
	k := w.keeper(b)
	lock, err := clientgolease.New(k, name, options(id))
	if err != nil {
		w.Fatal(err)
	}
	return &framework{client: b, keeper: k, lock: lock, led: make(chan struct{})}
}

// work stops its elector last.
func (f *framework) work(ctx context.Context) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() {
		defer close(over)
		leaderelection.RunOrDie(electing, leaderelection.LeaderElectionConfig{
			Lock: f.lock, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(f.led) }, OnStoppedLeading: func() {}},
		})
	}()
	<-ctx.Done()
	f.cause = context.Cause(ctx)
	stop()
	<-over
	time.Sleep(f.wind)
	return nil
}

func TestRunReleasesWhenItsWorkHasReturned(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.framework("a"), w.framework("b")
		a.wind = time.Minute
		ctx, stop := context.WithCancel(w.Context())
		first := make(chan error, 1)
		go func() { first <- a.lock.Run(ctx, a.work) }()
		<-a.led
		other, stopOther := context.WithCancel(w.Context())
		second := make(chan error, 1)
		go func() { second <- b.lock.Run(other, b.work) }()
		queued()
		stop()
		stopped := time.Now()
		<-b.led
		w.within("the hand-over", time.Since(stopped), time.Minute, time.Minute+instant)
		if err := <-first; err != nil {
			w.Error(err)
		}
		stopOther()
		if err := <-second; err != nil {
			w.Error(err)
		}
	})
}

func TestRunEndsItsWorkWhenTheLeaseIsLost(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.framework("a")
		first := make(chan error, 1)
		go func() { first <- a.lock.Run(w.Context(), a.work) }()
		<-a.led
		if err := a.client.Revoke(w.Context(), name, a.lock.Lease().Token(), "by hand", true); err != nil {
			w.Fatal(err)
		}
		if err := <-first; !errors.Is(err, leasekeeper.ErrLost) || !errors.Is(a.cause, leasekeeper.ErrLost) {
			w.Errorf("%v, and the context ended with %v", err, a.cause)
		}
	})
}

func TestRunKeepsTheNameOfWorkThatStillRuns(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.store.Backend()
		k, err := leasekeeper.New(b)
		if err != nil {
			w.Fatal(err)
		}
		lock, err := clientgolease.New(k, name, options("a"))
		if err != nil {
			w.Fatal(err)
		}
		f := &framework{client: b, lock: lock, led: make(chan struct{})}
		ctx, stop := context.WithCancel(w.Context())
		err = lock.Run(ctx, func(ctx context.Context) error {
			go func() { <-f.led; stop() }()
			return errors.Join(f.work(ctx), clientgolease.ErrStillRunning)
		})
		if !errors.Is(err, clientgolease.ErrStillRunning) {
			w.Error(err)
		}
		time.Sleep(4 * lease)
		if i, err := b.Get(w.Context(), name); err != nil || !i.Held {
			w.Errorf("not held, %v", err)
		}
		closing, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := k.Shutdown(closing); !errors.Is(err, context.DeadlineExceeded) {
			w.Error(err)
		}
		if i, err := w.store.Backend().Get(w.Context(), name); err != nil || !i.Held {
			w.Errorf("Close released the name, %v", err)
		}
		clientgolease.LetGo(lock)
	})
}

func TestLockHasOneElectorAtATime(t *testing.T) {
	bubble(t, func(w *world) {
		f := w.framework("a")
		idle := func(ctx context.Context) error { <-ctx.Done(); return nil }
		ctx, stop := context.WithCancel(w.Context())
		over := make(chan error, 1)
		go func() { over <- f.lock.Run(ctx, idle) }()
		synctest.Wait()
		if err := f.lock.Run(w.Context(), idle); !errors.Is(err, leasekeeper.ErrInvalid) {
			w.Error(err)
		}
		f.lock.Config(leaderelection.LeaderCallbacks{})
		if _, _, err := f.lock.Get(w.Context()); !errors.Is(err, clientgolease.ErrUnguarded) {
			w.Error(err)
		}
		stop()
		if err := <-over; err != nil {
			w.Error(err)
		}
		if err := f.lock.Run(w.Context(), idle); !errors.Is(err, leasekeeper.ErrInvalid) {
			w.Error(err)
		}
	})
}
