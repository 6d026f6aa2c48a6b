package leasekeeper_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/driver"
	"github.com/leasekeeper/leasekeeper/memory"
)

// asleep lets the machine sleep just before its first claim reaches the store.
type asleep struct {
	*memory.Backend
	clock  *memory.Clock
	claims atomic.Int32
}

func (a *asleep) Claim(ctx context.Context, c driver.Claim) (driver.Lease, driver.Grant, error) {
	if a.claims.Add(1) == 1 {
		a.clock.Suspend(2 * ttl)
	}
	return a.Backend.Claim(ctx, c)
}

// A place in line that came too late to be relied on is given back: nobody waits behind it.
func TestAPlaceInLineThatCameTooLateIsGivenBack(t *testing.T) {
	bubble(t, func(w *world) {
		other, _, err := w.store.Backend().Claim(w.Context(), driver.Claim{
			ID: driver.ID{1}, Name: "x", Holder: driver.Holder{ID: "b"}, TTL: time.Hour,
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
				w.Errorf("%d claims stand in line of %d, %v", i.Waiting, b.claims.Load(), err)
			}
			if err := b.Release(w.Context(), other); err != nil {
				w.Error(err)
			}
		}()
		w.must(k.Acquire(ctx, "x"))
	})
}

// What became of a release long ago is no concern of Close.
func TestCloseTellsOfItsOwnReleasesOnly(t *testing.T) {
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
		if err := k.Close(w.Context()); err != nil {
			w.Error(err)
		}
		w.free("x")
	})
}
