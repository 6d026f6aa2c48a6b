package leasekeeper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// lateRenewal has a renewal of the lease reach the store just after the holder has lost it.
func (w *world) lateRenewal(b *memory.Backend, l *leasekeeper.Lease) {
	w.Helper()
	land := b.Inject(memory.Fault{Kind: memory.HoldRequest, Op: memory.Renew})
	<-l.Context().Done()
	time.Sleep(ttl / 100)
	w.holder(l.Name(), "a")
	land()
}

// A renewal that reaches the store after its holder has lost the lease does not keep the name from others.
func TestLateRenewalOfALostLeaseIsReleased(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		w.lateRenewal(b, l)
		time.Sleep(ttl / 8)
		w.free("x")
		w.is(l.Release(w.Context()), leasekeeper.ErrLost)
	})
}

// The keeper does not release the name while the function still runs.
func TestLateRenewalIsReleasedWhenTheFunctionHasReturned(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		err := k.Run(w.Context(), "x", func(_ context.Context, l *leasekeeper.Lease) error {
			w.lateRenewal(b, l)
			time.Sleep(ttl / 2)
			w.holder("x", "a")
			return nil
		})
		w.is(err, leasekeeper.ErrLost)
		time.Sleep(ttl / 8)
		w.free("x")
	})
}

// The keeper does not release a lost lease that is pinned, or that another keeper has resumed.
func TestLostLeaseWithANewHolderIsNotReleased(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		other, _ := w.keeper("b")
		resumed, pinned := w.must(k.Acquire(w.Context(), "resumed")), w.must(k.Acquire(w.Context(), "pinned"))
		if err := b.Pin(w.Context(), "pinned", "maintenance"); err != nil {
			w.Fatal(err)
		}
		defer b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})()
		time.Sleep(ttl / 2)
		l := w.must(other.Resume(w.Context(), "resumed", resumed.Token()))
		<-pinned.Context().Done()
		time.Sleep(2 * ttl)
		w.holder("pinned", "a")
		w.holder("resumed", "b")
		w.must(l, nil)
	})
}

// The store takes 0.45 of the TTL for every renewal, and many leases are kept nevertheless. Each has at most two
// attempts in progress.
func TestSlowStoreLosesNoLease(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		var leases []*leasekeeper.Lease
		for _, name := range []string{"x", "y", "z"} {
			leases = append(leases, w.must(k.Acquire(w.Context(), name)))
			time.Sleep(ttl / 10)
		}
		b.Inject(memory.Fault{Kind: memory.DelayAnswer, Op: memory.Renew, Delay: ttl * 45 / 100})
		for range 200 {
			time.Sleep(ttl / 10)
			for _, l := range leases {
				w.must(l, nil)
			}
		}
	})
}

// refusing refuses the first claim, and leaves the others unanswered.
type refusing struct {
	*memory.Backend
	claims atomic.Int32
}

func (b *refusing) Claim(ctx context.Context, _ backend.Claim) (backend.Lease, backend.Grant, error) {
	if b.claims.Add(1) == 1 {
		return nil, backend.Grant{}, fmt.Errorf("%w: there is no place to wait", backend.ErrUnavailable)
	}
	<-ctx.Done()
	return nil, backend.Grant{}, ctx.Err()
}

// Acquire returns the reason of the store, even if its context ends during a later attempt.
func TestAcquireReturnsTheLastReasonOfTheStore(t *testing.T) {
	bubble(t, func(w *world) {
		k := w.on(&refusing{Backend: w.store.Backend()}, "me")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := k.Acquire(ctx, "busy")
		if !errors.Is(err, leasekeeper.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no place") {
			w.Errorf("Acquire returned: %v", err)
		}
	})
}

// A lease that its own keeper resumes after it was lost is not released under its new deadline.
func TestLostLeaseThatItsKeeperResumesIsNotReleased(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		w.lateRenewal(b, l)
		resumed := w.must(k.Resume(w.Context(), "x", l.Token()))
		time.Sleep(ttl / 2)
		w.holder("x", "a")
		w.must(resumed, nil)
	})
}

// holdsNothing is a store that keeps no name taken after its release.
type holdsNothing struct{ *memory.Backend }

func (holdsNothing) ConfirmHold(context.Context, string, time.Duration, time.Duration) error {
	return fmt.Errorf("%w: this is too long", backend.ErrInvalid)
}

// A Resume that is refused before it begins changes nothing: the lost lease is released.
func TestLostLeaseOfARefusedResumeIsReleased(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.store.Backend()
		k := w.on(holdsNothing{b}, "a")
		l := w.must(k.Acquire(w.Context(), "x"))
		w.lateRenewal(b, l)
		_, err := k.Resume(w.Context(), "x", l.Token(), leasekeeper.HoldAtLeast(time.Hour))
		w.is(err, leasekeeper.ErrInvalid)
		time.Sleep(ttl / 8)
		w.free("x")
	})
}

// A lease whose release its keeper has begun is not resumed: the release may still reach the store.
func TestLostLeaseThatItsKeeperReleasesIsNotResumed(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		w.lateRenewal(b, l)
		land := b.Inject(memory.Fault{Kind: memory.HoldRequest, Op: memory.Release})
		time.Sleep(ttl / 8)
		w.holder("x", "a")
		_, err := k.Resume(w.Context(), "x", l.Token())
		w.is(err, leasekeeper.ErrLost)
		land()
		time.Sleep(ttl / 8)
		w.free("x")
	})
}
