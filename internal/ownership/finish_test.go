package ownership

import (
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// A lease finishes only the name that it owns, and only once. Refused requests change nothing.
func TestFinishIsOfTheOwnersTenure(t *testing.T) {
	w, _ := play(t, "claim n 7 1m", "claim n 8 1m wait", "claim m 9 1m", "grant 10 1m")
	for _, c := range []struct {
		op   Finish
		want error
	}{
		{Finish{Name: "m", Lease: 7}, ErrLeaseTaken},
		{Finish{Name: "n", Lease: 10}, ErrLeaseTaken},
		{Finish{Name: "n", Lease: 8}, ErrLost},
		{Finish{Name: "n", Lease: 99}, ErrLost},
		{Finish{Name: "unknown", Lease: 99}, ErrLost},
		{Finish{Name: "n", Lease: 7, Hold: -1}, lessor.ErrTTLTooLarge},
		{Finish{Name: "n", Lease: 7, Hold: lessor.MaxTTL + 1}, lessor.ErrTTLTooLarge},
		{Finish{Name: "n", Lease: 7, Hold: lessor.MaxTTL}, nil},
	} {
		if token, done, err := w.registry.CheckFinish(w.newView(), c.op); err != c.want || c.want == nil && (done || token != 2) {
			t.Errorf("%+v: token %d, done %v, %v", c.op, token, done, err)
		}
	}
	for _, op := range []RaiseMark{{Name: "m", Lease: 7}, {Name: "n", Lease: 8}, {Name: "n", Lease: 99}} {
		if token, err := w.registry.CheckRaise(op); err != ErrLost {
			t.Errorf("%+v: token %d, %v", op, token, err)
		}
	}
	if token, err := w.registry.CheckRaise(RaiseMark{Name: "n", Lease: 7}); err != nil || token != 2 {
		t.Errorf("the owner: token %d, %v", token, err)
	}
}

// A repeated finish is recognized by the stored tenure, as long as that is among the last ones.
func TestRepeatedFinishIsRecognizedByTheStoredTenure(t *testing.T) {
	w, _ := play(t, "claim n 7 1m", "finish n 7", "claim n 8 1m", "end 8")
	check := func(lease lessor.ID, want error) {
		t.Helper()
		if _, done, err := w.registry.CheckFinish(w.newView(), Finish{Name: "n", Lease: lease}); err != want || done != (want == nil) && want == nil {
			t.Errorf("lease %d: done %v, %v", lease, done, err)
		}
	}
	check(7, nil)
	check(8, ErrLost) // it expired
	w.restart()
	check(7, nil)
	for range MaxPast - 2 {
		w.play("claim n 8 1m")
		w.play("release n 8")
	}
	check(7, nil)
	w.play("claim n 8 1m")
	w.play("release n 8")
	check(7, ErrLost)
}

// A held-on name is not pinned any more, unless another name pins its lease. The lease is not renewed, and the reason is
// that it was released.
func TestFinishEndsThePinOfItsName(t *testing.T) {
	w, _ := play(t, "claim n 7 1m", "pin n why", "finish n 7 10s")
	lease, _ := w.leases.Lookup(7)
	if s := w.registry.State(w.newView(), "n"); s.Pinned != nil || lease.Pinned || !s.Finished || s.Revoked != nil || s.Left != 10*time.Second || s.TTL != 10*time.Second {
		t.Errorf("%s; the lease is %+v", showState(s), lease)
	}
	if !w.registry.Finished(7) || w.registry.Finished(8) {
		t.Error("the lease that only holds the name on is not known as such")
	}
	w.play("revoke n because")
	if w.registry.Finished(7) {
		t.Error("a lease that was revoked only holds the name on")
	}
}

// While a name is held on, its waiters are as they were: they are neither finished, nor kept from leaving. Only the owner's
// renewals say that it was released, and only for that reason.
func TestHeldOnNameLeavesItsWaitersAlone(t *testing.T) {
	w, _ := play(t, "claim n 7 1m", "claim n 8 1m wait", "claim m 9 1m")
	if w.registry.Finished(7) {
		t.Error("an owner that has not finished only holds its name on")
	}
	w.play("finish n 7 1m")
	var ended *EndedError
	if err := w.registry.Explain(w.leases, 7, lessor.ErrRenewalRefused); !errors.As(err, &ended) || ended.Why != WhyReleased {
		t.Errorf("the renewal of the owner: %v", err)
	}
	if err := w.registry.Explain(w.leases, 7, ErrLost); errors.As(err, &ended) || err != ErrLost {
		t.Errorf("another error of the owner: %v", err)
	}
	if said := w.play("release n 8"); said != "ended true\n" {
		t.Errorf("a waiter leaves: %s", said)
	}
}
