package leasekeeper_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// A tick is reported as completed only if the release has recorded it.
func TestReleaseBeforeTheRecordLeavesTheTick(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		w.is(k.Once(w.Context(), "x", number(1), func(ctx context.Context, l *leasekeeper.Lease) error {
			return l.Release(context.WithoutCancel(ctx))
		}), leasekeeper.ErrLost)
		w.unmarked("x")
		l := w.must(k.Acquire(w.Context(), "x"))
		w.is(l.Release(w.Context()), nil)
		w.is(l.Complete(w.Context(), number(1)), leasekeeper.ErrLost)
		w.unmarked("x")
		l = w.must(k.Acquire(w.Context(), "x"))
		for range 2 { // the same tick again returns the same
			w.is(l.Complete(w.Context(), number(1)), nil)
		}
		w.is(l.Complete(w.Context(), number(2)), leasekeeper.ErrLost)
		w.mark("x", 1)
	})
}

// A tenure that ends early completes its tick if the function returns nil in time.
func TestTickOfATenureThatEndsEarlyIsCompleted(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		w.is(k.Once(w.Context(), "x", number(1), func(ctx context.Context, _ *leasekeeper.Lease) error {
			<-ctx.Done()
			return nil
		}, leasekeeper.HoldAtMost(time.Minute)), nil)
		w.mark("x", 1)
		err := k.Once(w.Context(), "x", number(2), func(ctx context.Context, _ *leasekeeper.Lease) error {
			<-ctx.Done()
			return errFunc
		}, leasekeeper.HoldAtMost(time.Minute))
		w.is(err, errFunc)
		w.is(err, leasekeeper.ErrLost)
		w.mark("x", 1)
	})
}

// An attempt to record a tick that may have taken effect leaves the outcome unknown, whatever later ones say.
func TestDoubtAboutATickStays(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		defer b.Inject(memory.Fault{Kind: memory.LoseAnswer, Op: memory.SetMark, Times: 1})()
		defer b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.SetMark, Err: backend.ErrLost})()
		err := k.Once(w.Context(), "x", number(1), func(context.Context, *leasekeeper.Lease) error {
			w.Error("the function runs")
			return nil
		}, leasekeeper.AtMostOnce())
		w.is(err, leasekeeper.ErrUnknownOutcome)
		w.free("x")

		defer b.Inject(memory.Fault{Kind: memory.LoseAnswer, Op: memory.Finish, Times: 1})()
		defer b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Finish, Err: backend.ErrLost})()
		w.is(k.Once(w.Context(), "x", number(2), nothing), leasekeeper.ErrUnknownOutcome)
	})
}

// What the store refuses to leave behind is left out and reported; the rest stays.
func TestRefusedPartOfAFinishIsReported(t *testing.T) {
	refuse := func(b *memory.Backend, times int) func() {
		return b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Finish, Times: times, Err: backend.ErrInvalid})
	}
	hold := leasekeeper.HoldAtLeast(time.Hour)
	bubble(t, func(w *world) { // the hold
		k, b := w.keeper("a")
		defer refuse(b, 1)()
		err := k.Once(w.Context(), "x", number(1), nothing, hold)
		w.is(err, leasekeeper.ErrInvalid)
		if !strings.Contains(err.Error(), "not held for its least time") {
			w.Errorf("%v", err)
		}
		w.mark("x", 1)
		w.free("x")
	})
	bubble(t, func(w *world) { // the tick: refused with the hold, and alone
		k, b := w.keeper("a")
		defer refuse(b, 2)()
		err := k.Once(w.Context(), "x", number(1), nothing, hold)
		w.is(err, leasekeeper.ErrInvalid)
		if !strings.Contains(err.Error(), "not recorded") {
			w.Errorf("%v", err)
		}
		w.unmarked("x")
		w.holder("x", "a")
	})
	bubble(t, func(w *world) { // both
		k, b := w.keeper("a")
		defer refuse(b, 0)()
		w.is(k.Once(w.Context(), "x", number(1), nothing, hold), leasekeeper.ErrInvalid)
		w.is(k.Run(w.Context(), "x", nothing, hold), leasekeeper.ErrInvalid)
		w.unmarked("x")
		w.free("x")
	})
}

// A check that the store did not answer leaves the least time in force.
func TestUnansweredCheckKeepsTheLeastTime(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x", leasekeeper.HoldAtLeast(time.Hour)))
		remove := b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Mark})
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.is(l.CheckTick(ctx, number(1)), context.DeadlineExceeded)
		remove()
		w.is(l.CheckTick(w.Context(), number(1)), nil)
		w.is(l.Complete(w.Context(), number(1)), nil)
		w.holder("x", "a")
	})
}

// A claim that nobody wants any more is released at once.
func TestUnwantedClaimIsNotHeldOn(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		defer b.Inject(memory.Fault{Kind: memory.DelayAnswer, Op: memory.Claim, Delay: 2 * time.Second})()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := k.Acquire(ctx, "x", leasekeeper.HoldAtLeast(time.Hour))
		w.is(err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		w.free("x")
	})
}

// A revoked holder, and one that transfers its name, hold it no longer than they were promised.
func TestRevokedAndTransferredNamesAreNotHeldOn(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a", leasekeeper.HoldAtLeast(time.Hour))
		b, _ := w.keeper("b")
		l := w.must(a.Acquire(w.Context(), "x"))
		w.is(b.Revoke(w.Context(), "x", 0, "a test"), nil)
		w.is(l.Release(w.Context()), nil)
		w.free("x")

		l = w.must(a.Acquire(w.Context(), "x"))
		next := make(chan *leasekeeper.Lease, 1)
		released := make(chan error, 1)
		go func() { next <- w.must(b.Acquire(w.Context(), "x")) }()
		go func() { <-l.Context().Done(); released <- l.Release(w.Context()) }()
		synctest.Wait()
		w.is(a.Transfer(w.Context(), "x", "b"), nil)
		w.is(<-released, nil)
		<-next
	})
}

// A transfer revokes the tenure that it found, and no later one.
func TestTransferDoesNotRevokeTheChosenWaiter(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		c, client := w.keeper("c")
		l := w.must(a.Acquire(w.Context(), "x"))
		next := make(chan *leasekeeper.Lease, 1)
		go func() { next <- w.must(b.Acquire(w.Context(), "x")) }()
		synctest.Wait()
		defer client.Inject(memory.Fault{Kind: memory.DelayRequest, Op: memory.Revoke, Delay: time.Second})()
		released := make(chan error, 1)
		go func() {
			time.Sleep(time.Second / 2) // after Prefer, and before the revocation
			released <- l.Release(w.Context())
		}()
		w.is(c.Transfer(w.Context(), "x", "b"), nil)
		w.is(<-released, nil)
		chosen := <-next
		time.Sleep(2 * ttl)
		w.is(chosen.Check(), nil)
	})
}

func TestPinnedNameIsNotTransferred(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		l := w.must(a.Acquire(w.Context(), "x"))
		go func() { _, _ = b.Acquire(w.Context(), "x") }()
		synctest.Wait()
		w.is(b.Pin(w.Context(), "x", "a test"), nil)
		for _, k := range []*leasekeeper.Keeper{a, b} {
			w.is(k.Transfer(w.Context(), "x", "b"), leasekeeper.ErrPinned)
		}
		w.is(l.Check(), nil)
		w.is(l.Context().Err(), nil)
		w.is(l.Release(w.Context()), nil)
	})
}

// A function may transfer its own name: the call does not wait for the function.
func TestTransferFromInsideTheFunctionReturnsAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		next := make(chan *leasekeeper.Lease, 1)
		err := a.Run(w.Context(), "x", func(ctx context.Context, l *leasekeeper.Lease) error {
			go func() { next <- w.must(b.Acquire(w.Context(), "x")) }()
			synctest.Wait()
			w.is(a.Transfer(ctx, "x", "b"), nil)
			w.is(ctx.Err(), context.Canceled)
			w.holder("x", "a")
			return nil
		})
		w.is(err, leasekeeper.ErrLost)
		<-next
	})
}
