package leasekeeper_test

import (
	"errors"
	"testing"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// Operators see the history of a name, pin it and end tenures through a keeper.
func TestKeeperOperatesOnNames(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		operator, _ := w.keeper("operator")
		ctx := w.Context()
		l := w.must(k.Acquire(ctx, "x"))
		w.is(operator.Pin(ctx, "x", "an incident"), nil)
		w.is(operator.RevokeNow(ctx, "x", l.Token(), "it hangs"), leasekeeper.ErrPinned)
		w.is(operator.Unpin(ctx, "x"), nil)
		w.is(operator.Revoke(ctx, "x", l.Token(), "it hangs"), nil)
		<-l.Context().Done()
		w.is(l.Check(), leasekeeper.ErrLost)
		second := w.must(operator.Acquire(ctx, "x"))
		w.is(k.RevokeNow(ctx, "x", second.Token(), "it hangs too"), nil)
		third := w.must(k.Acquire(ctx, "x"))
		past, err := operator.History(ctx, "x", 10)
		if err != nil || len(past) != 3 || past[0].Token != third.Token() || past[2].Holder.ID != "a" {
			w.Errorf("%+v, %v", past, err)
		}
		_, err = operator.History(ctx, "//", 10)
		for _, err := range []error{err, operator.Pin(ctx, "", ""), operator.Unpin(ctx, ""), operator.Revoke(ctx, "", 1, "")} {
			w.is(err, leasekeeper.ErrInvalid)
		}
		w.is(operator.Shutdown(ctx), nil)
		w.is(operator.Pin(ctx, "x", "late"), leasekeeper.ErrClosed)
	})
}

// A store that cannot do what an operator asks for says so.
func TestOperationsThatTheStoreLacksAreUnsupported(t *testing.T) {
	k, err := leasekeeper.New(plain{memory.New().Backend()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.History(t.Context(), "x", 1)
	var observed error
	for _, err := range k.Observe(t.Context(), "x") {
		observed = err
	}
	for _, err := range []error{
		err, observed, k.Pin(t.Context(), "x", ""), k.Unpin(t.Context(), "x"), k.Revoke(t.Context(), "x", 1, ""), k.RevokeNow(t.Context(), "x", 1, ""),
	} {
		if !errors.Is(err, leasekeeper.ErrUnsupported) {
			t.Errorf("%v", err)
		}
	}
	if err := k.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
