package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// G1 (docs/design/time-and-identity.md): a claim that is repeated while the first is in flight gets the answer of the
// first, and no entry of its own. Such an entry could grant the lease again after the end of the first. Then renewals
// of the first would be acknowledged for the second.
func TestRepeatedClaimIsClaimedOnce(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	claim := ownership.Claim{Lease: 7, TTL: time.Second, Name: "n", Holder: []byte("h")}
	effects := w.step(Request{ID: 1, Command: put1("before", "v")}) // so that what comes next waits for the disk
	effects = append(effects, w.step(Request{ID: 2, Command: claim}, Request{ID: 3, Command: claim}, Request{ID: 5, Command: entry.Revoke{Lease: 7}})...)
	effects = append(effects, w.step(Request{ID: 4, Command: claim})...)
	effects = append(effects, w.settle()...)
	first := w.replyTo(2, effects)
	for _, id := range []uint64{3, 4} {
		if again := w.replyTo(id, effects); again.Err != nil || again.Result.(ownership.Claimed).Token != first.Result.(ownership.Claimed).Token {
			t.Errorf("request %d: %+v, and the first: %+v", id, again, first)
		}
	}
	if n := w.replica.Counts().Granted; n != 1 || w.replica.lessor.Len() != 0 {
		t.Errorf("%d leases were granted, and %d are there after the end", n, w.replica.lessor.Len())
	}
	if joined, full := w.replica.intake.Join(9, claim, ""); joined || full {
		t.Error("the claim is still in flight after its answer")
	}
}

// A renewal waits for the fate of a lease. It is not acknowledged for a later lease with the same id.
func TestWaitingRenewalIsNotForALaterLeaseWithItsID(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, entry.Grant{Lease: 7, TTL: time.Second})
	w.advance(time.Second - time.Millisecond)
	effects := w.step(Request{ID: 9, Command: put1("before", "v")}) // so that what comes next waits for the disk, and is one entry
	w.clock.Advance(2 * time.Millisecond)
	effects = append(effects, w.step(Tick{})...) // its end
	effects = append(effects, w.step(Request{ID: 2, Command: entry.Grant{Lease: 7, TTL: time.Minute}}, Renewal{ID: 3, Leases: []lessor.ID{7}})...)
	effects = append(effects, w.settle()...)
	if granted := w.replyTo(2, effects); granted.Err != nil {
		t.Fatal(granted.Err)
	}
	for _, e := range effects {
		if renewed, ok := e.(Renewed); ok && !errors.Is(renewed.Leases[0].Err, lessor.ErrNotFound) {
			t.Errorf("renewed: %+v", renewed)
		}
	}
}
