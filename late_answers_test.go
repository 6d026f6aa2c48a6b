package leasekeeper_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// asleep lets the machine sleep just before its first claim reaches the store.
type asleep struct {
	*memory.Backend
	clock  *memory.Clock
	claims atomic.Int32
}

func (a *asleep) Claim(ctx context.Context, c backend.Claim) (backend.Lease, backend.Grant, error) {
	if a.claims.Add(1) == 1 {
		a.clock.Suspend(2 * ttl)
	}
	return a.Backend.Claim(ctx, c)
}

// The keeper releases a place in the queue that came too late to rely on: no other waiter waits behind it.
func TestQueuePlaceThatCameTooLateIsReleased(t *testing.T) {
	bubble(t, func(w *world) {
		other, _, err := w.store.Backend().Claim(w.Context(), backend.Claim{
			ID: backend.ID{1}, Name: "x", Holder: backend.Holder{ID: "b"}, TTL: time.Hour,
		})
		if err != nil {
			w.Fatal(err)
		}
		b := &asleep{Backend: w.store.Backend(), clock: w.clock}
		k := w.on(b, "a")
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		go func() {
			time.Sleep(ttl / 10)
			i, err := b.Get(w.Context(), "x")
			if err != nil || i.Waiting != 1 || b.claims.Load() != 2 {
				w.Errorf("%d of %d claims are in the queue, %v", i.Waiting, b.claims.Load(), err)
			}
			if err := b.Release(w.Context(), other); err != nil {
				w.Error(err)
			}
		}()
		w.must(k.Acquire(ctx, "x"))
	})
}

// Close does not report releases from before it began.
func TestCloseReportsItsOwnReleasesOnly(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.store.Backend()
		k, err := leasekeeper.New(b)
		if err != nil {
			w.Fatal(err)
		}
		l := w.must(k.Acquire(w.Context(), "x"))
		remove := b.Inject(memory.Fault{Kind: memory.LoseRequest, Op: memory.Release})
		w.is(l.Release(w.Context()), leasekeeper.ErrUnknownOutcome)
		remove()
		time.Sleep(ttl)
		w.free("x")
		w.must(k.Acquire(w.Context(), "x"))
		if err := k.Shutdown(w.Context()); err != nil {
			w.Error(err)
		}
		w.free("x")
	})
}

// handover is a backend that calls a function between the store's answer to a resumption and its return.
type handover struct {
	*memory.Backend
	do func()
}

func (h *handover) Resume(ctx context.Context, name string, t backend.Token, by backend.Holder) (backend.Lease, backend.Grant, error) {
	l, g, err := h.Backend.Resume(context.WithoutCancel(ctx), name, t, by)
	h.do()
	return l, g, err
}

// A lease that is resumed while its keeper is being closed stays as it was: the keeper neither holds nor releases it, and
// Close reports nothing about it.
func TestResumeDuringCloseLeavesTheLeaseAsItWas(t *testing.T) {
	bubble(t, func(w *world) {
		first, _ := w.keeper("first")
		l := w.must(first.Acquire(w.Context(), "x"))
		h := &handover{Backend: w.store.Backend()}
		k := w.on(h, "heir")
		closed := make(chan error, 1)
		h.do = func() {
			go func() { closed <- k.Shutdown(w.Context()) }()
			time.Sleep(time.Second)
		}
		heir, err := k.Resume(w.Context(), "x", l.Token())
		w.is(err, leasekeeper.ErrClosed)
		if heir != nil {
			w.Error("a closed keeper has resumed a lease")
		}
		if err := <-closed; err != nil {
			w.Error(err)
		}
		w.holder("x", "heir") // the holder in the store
	})
}

// A second release returns what the first returned, even if its context has ended.
func TestSecondReleaseReturnsTheSame(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		if err := l.Release(w.Context()); err != nil {
			w.Fatal(err)
		}
		ended, cancel := context.WithCancel(w.Context())
		cancel()
		for range 100 {
			if err := l.Release(ended); err != nil {
				w.Fatal(err)
			}
		}
	})
}
