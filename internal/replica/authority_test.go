package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// T3 (docs/design/time-and-identity.md): an answer is dropped if its authority has ended by the time it leaves.
// Changes stay, so replies to commands rest on no authority.
func TestAnswersAreCheckedAgainBeforeTheyLeave(t *testing.T) {
	over := clock.Now().Add(-time.Nanosecond)
	if got, ok := Authorized(ReadAt{ID: 1, Authority: over}, clock.Now).(Reply); !ok || got.Err != ErrNoLeader {
		t.Errorf("read: %+v", got)
	}
	renewed := Authorized(Renewed{Leases: []RenewedLease{{ID: 1, TTL: time.Second}}, Authority: over}, clock.Now).(Renewed)
	if renewed.Leases[0].TTL != 0 || renewed.Leases[0].Err != ErrNoLeader {
		t.Errorf("renewal: %+v", renewed.Leases)
	}
	if got := Authorized(Reply{ID: 1, Authority: over}, clock.Now).(Reply); got.Err != ErrNoLeader {
		t.Errorf("inspection: %+v", got)
	}
	if got := Authorized(Reply{ID: 1, Authority: forever}, clock.Now).(Reply); got.Err != nil {
		t.Errorf("command: %+v", got)
	}
	valid := clock.Now().Add(time.Hour)
	if _, ok := Authorized(ReadAt{ID: 1, Authority: valid}, clock.Now).(ReadAt); !ok {
		t.Error("a read that may be answered is not")
	}
}

// G3 (docs/design/time-and-identity.md): a lease is reported as gone only after its end is applied. Until then a
// renewal of it waits, and the other ids of its message do not.
func TestLeaseIsReportedGoneOnlyWhenItsEndIsApplied(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.serve()
	w.do(1, entry.Grant{Lease: 1, TTL: time.Second})
	w.do(2, entry.Grant{Lease: 2, TTL: time.Hour})
	w.advance(999 * time.Millisecond)
	w.clock.Advance(2 * time.Millisecond)
	w.step(Tick{}) // the end of lease 1 is decided and on its way to the disk
	answered := func(effects []Effect) (all []RenewedLease) {
		for _, e := range effects {
			if r, ok := e.(Renewed); ok {
				all = append(all, r.Leases...)
			}
		}
		return all
	}
	if got := answered(w.step(Renewal{ID: 3, Leases: []lessor.ID{1, 2}})); len(got) != 1 || got[0].ID != 2 || got[0].Err != nil {
		t.Errorf("before the end is applied: %+v", got)
	}
	if got := answered(w.settle()); len(got) != 1 || got[0].ID != 1 || !errors.Is(got[0].Err, lessor.ErrNotFound) {
		t.Errorf("after: %+v", got)
	}
}
