package lessor

import (
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Each test in this file covers guards of this package, and fails if one of them is removed. The random tests reach most
// of these guards only by luck.

// granted returns a lessor with lease 1 of 10 s, granted at position 1 and instant zero. If clears is not
// nil, checkpoints are enabled and the lessor appends the clears that it hands out to clears.
func granted(t *testing.T, clears *[]Cleared) *Lessor {
	t.Helper()
	l := New(Config{})
	if clears != nil {
		l.SetCheckpointer(func(_ []Checkpoint, cleared []Cleared) { *clears = append(*clears, cleared...) })
	}
	if _, err := l.Grant(1, 10*time.Second, At(1, 0), clock.Instant{}); err != nil {
		t.Fatal(err)
	}
	return l
}

func after(d time.Duration) clock.Instant { return clock.Instant{}.Add(d) }

var one = Ref{1, Generation(At(1, 0))}

// An expiry that this primary handed out may be in the log. The result of an expiry that an earlier primary
// decided proves nothing about it. So the lease is not renewed until its own expiry is applied, skipped or
// dropped.
func TestExpiryOfAnotherTermAllowsNoRenewal(t *testing.T) {
	l := granted(t, nil)
	l.Promote(0, after(0), 2)
	now := after(11 * time.Second)
	own := l.Due(now, At(1, 0))
	if len(own) != 1 {
		t.Fatalf("Due returned %v", own)
	}
	foreign := Expiry{Ref: one, Term: 1, DecidedAt: At(1, 0)}
	if _, ended := l.Expire(foreign, 2); ended {
		t.Fatal("an expiry of another term has ended the lease")
	}
	if _, err := l.Renew(1, now); err != ErrEnding {
		t.Errorf("renewed after the expiry of an earlier term was skipped: %v", err)
	}
	l.ExpiryDropped([]Expiry{foreign, {Ref: Ref{9, 1}, Term: 2}})
	if _, err := l.Renew(1, now); err != ErrEnding {
		t.Errorf("renewed after the expiry of an earlier term was dropped: %v", err)
	}
	l.ExpiryDropped(own)
	if _, err := l.Renew(1, now); err != nil {
		t.Errorf("not renewed after its own expiry was dropped: %v", err)
	}
}

// The primary hands out a dropped clear again: once, in its own term, and only while the lease exists.
func TestDroppedClearIsHandedOutOnce(t *testing.T) {
	var clears []Cleared
	l := granted(t, &clears)
	l.Promote(0, after(0), 2)
	if !l.Checkpoint(Checkpoint{Ref: one, Term: 2, DecidedAt: At(1, 0), Remaining: time.Second}, 2, after(0)) {
		t.Fatal("the checkpoint is skipped")
	}
	if _, err := l.Renew(1, after(0)); err != ErrClearing {
		t.Fatalf("Renew returned %v", err)
	}
	handed := func() (n int) {
		l.Due(after(0), At(2, 0))
		n, clears = len(clears), nil
		return n
	}
	if n := handed(); n != 1 {
		t.Fatalf("%d clears", n)
	}
	l.ClearsDropped([]Cleared{{Ref: Ref{9, 1}, Term: 2}, {Ref: one, Term: 1}})
	if n := handed(); n != 0 {
		t.Errorf("%d clears after no clear of this lease was dropped", n)
	}
	l.ClearsDropped([]Cleared{{Ref: one, Term: 2}, {Ref: one, Term: 2}})
	if n := handed(); n != 1 || len(l.clears) != 0 {
		t.Errorf("%d clears after one was dropped, and %d still queued", n, len(l.clears))
	}
}

// A later checkpoint keeps the end of the earlier one only if that end comes first on both clocks.
func TestCheckpointCountsFromNowUnlessTheEarlierEndsFirst(t *testing.T) {
	for _, now := range []clock.Instant{{Raw: 1e9, Boot: 3e9}, {Raw: 3e9, Boot: 1e9}} {
		var clears []Cleared
		l := granted(t, &clears)
		for _, c := range []struct {
			left time.Duration
			at   clock.Instant
		}{{4 * time.Second, clock.Instant{}}, {2 * time.Second, now}} {
			if !l.Checkpoint(Checkpoint{Ref: one, Term: 2, DecidedAt: At(1, 0), Remaining: c.left}, 2, c.at) {
				t.Fatal("the checkpoint is skipped")
			}
		}
		if r, _ := l.Record(1); r.Applied != now {
			t.Errorf("the checkpoint was applied at %v and counts from %v", now, r.Applied)
		}
	}
}

// A lease whose renewal is refused is no longer cleared. Its waiting renewals fail, and successors keep the
// checkpoint.
func TestLeaseWithRefusedRenewalIsNotCleared(t *testing.T) {
	var clears []Cleared
	l := granted(t, &clears)
	l.Promote(0, after(0), 2)
	l.Checkpoint(Checkpoint{Ref: one, Term: 2, DecidedAt: At(1, 0), Remaining: 3 * time.Second}, 2, after(0))
	if _, err := l.Renew(1, after(time.Second)); err != ErrClearing {
		t.Fatalf("Renew returned %v", err)
	}
	l.Due(after(time.Second), At(2, 0))
	if err := l.RefuseRenewal(1, after(time.Second)); err != nil || len(clears) != 1 {
		t.Fatal(err, clears)
	}
	if l.Clear(clears[0], 2, At(4, 0)) {
		t.Error("the lease was cleared")
	}
	lease, _ := l.Lookup(1)
	if lease.Clearing || !lease.Checkpointed || lease.Remaining != 3*time.Second || lease.Cleared != At(1, 0) {
		t.Errorf("the lease after the clear: %+v", lease)
	}
}

// Unpin changes only a pinned lease.
func TestUnpinOfUnpinnedLeaseChangesNothing(t *testing.T) {
	l := granted(t, nil)
	l.Promote(0, after(0), 2)
	before, _ := l.Lookup(1)
	if err := l.Unpin(1, At(9, 0), after(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if now, _ := l.Lookup(1); now != before {
		t.Errorf("the lease changed from %+v to %+v", before, now)
	}
}

// Only the primary knows deadlines, so Unpin sets none elsewhere. On the primary the lease can be renewed at
// once, even if an expiry that was decided before the pin is still on its way.
func TestUnpinnedLeaseIsRenewedOnThePrimary(t *testing.T) {
	l := granted(t, nil)
	if err := errors.Join(l.Pin(1), l.Unpin(1, At(2, 0), after(time.Second))); err != nil {
		t.Fatal(err)
	}
	if lease, _ := l.Lookup(1); lease.Deadline != (clock.Instant{}) {
		t.Errorf("without a primary the lease has a deadline: %v", lease.Deadline)
	}
	l.Promote(0, after(0), 2)
	now := after(11 * time.Second)
	late := l.Due(now, At(2, 0))
	if err := errors.Join(l.Pin(1), l.Unpin(1, At(3, 0), now)); err != nil || len(late) != 1 {
		t.Fatal(err, late)
	}
	if _, err := l.Renew(1, now); err != nil {
		t.Errorf("Renew returned %v", err)
	}
}

// Only the first refusal of a lease counts.
func TestRefusingRenewalAgainChangesNothing(t *testing.T) {
	l := granted(t, nil)
	if err := errors.Join(l.Pin(1), l.RefuseRenewal(1, after(0)), l.Unpin(1, At(4, 0), after(0))); err != nil {
		t.Fatal(err)
	}
	before, _ := l.Record(1)
	if err := l.RefuseRenewal(1, after(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if now, _ := l.Record(1); now != before {
		t.Errorf("the lease changed from %+v to %+v", before, now)
	}
}

// A lease is late once both clocks are past its deadline. A pinned lease is not overdue, and an ended one is
// not late.
func TestLateAndOverdueNeedBothClocks(t *testing.T) {
	l := granted(t, nil)
	l.Promote(0, after(0), 2)
	for _, test := range []struct {
		ref  Ref
		now  clock.Instant
		late time.Duration
	}{
		{Ref{1, one.Generation + 1}, after(time.Hour), 0},
		{one, clock.Instant{Raw: 9e9, Boot: 20e9}, 0},
		{one, clock.Instant{Raw: 20e9, Boot: 9e9}, 0},
		{one, clock.Instant{Raw: 12e9, Boot: 13e9}, 2 * time.Second},
	} {
		if late := l.Late(test.ref, test.now); late != test.late {
			t.Errorf("Late(%v, %v) = %v, want %v", test.ref, test.now, late, test.late)
		}
	}
	if n, oldest := l.Overdue(after(12 * time.Second)); n != 1 || oldest != 2*time.Second {
		t.Errorf("%d leases are overdue, by %v", n, oldest)
	}
	if err := l.Pin(1); err != nil {
		t.Fatal(err)
	}
	if n, _ := l.Overdue(after(12 * time.Second)); n != 0 {
		t.Errorf("%d leases are overdue although the lease is pinned", n)
	}
}

// An item can be detached from any position in the list of its lease.
func TestDetachInAnyOrder(t *testing.T) {
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "b"}, {"a", "c"}, {"c", "a"}} {
		l := granted(t, nil)
		if err := l.Attach(1, []Item{{"a"}, {"b"}, {"c"}}); err != nil {
			t.Fatal(err)
		}
		left := []Item{{"a"}, {"b"}, {"c"}}
		for _, key := range order {
			if err := l.Detach(1, []Item{{key}}); err != nil {
				t.Fatal(err)
			}
			left = slices.DeleteFunc(left, func(i Item) bool { return i.Key == key })
			if got := l.Items(1); !slices.Equal(got, left) {
				t.Errorf("after %v were detached, %v are left, want %v", order, got, left)
			}
		}
	}
}

// The wait for an entry whose key is beyond the longest duration is the longest duration.
func TestWaitForAQueueEntrySaturates(t *testing.T) {
	for _, now := range []int64{0, -1, math.MinInt64} {
		q := queue{place: onRaw}
		q.push(&leaseState{}, math.MaxInt64)
		if wait, ok := q.wait(now); wait != math.MaxInt64 || !ok {
			t.Errorf("from %d the wait is %v, %v", now, wait, ok)
		}
	}
}

// Recover restores what Record returned, and panics on any other record.
func TestRecoverPanicsOnImpossibleRecords(t *testing.T) {
	l := granted(t, nil)
	if err := errors.Join(l.Pin(1), l.RefuseRenewal(1, after(0))); err != nil {
		t.Fatal(err)
	}
	good, _ := l.Record(1)
	again := New(Config{})
	again.Recover(slices.Values([]Record{good}), nil)
	if got, ok := again.Record(1); got != good || !ok {
		t.Errorf("recovered %+v from %+v", got, good)
	}
	if r, ok := l.Record(2); ok || r != (Record{}) {
		t.Errorf("a lease that does not exist has the record %+v", r)
	}
	for what, change := range map[string]func(*Record){
		"no id":                    func(r *Record) { r.ID = NoLease },
		"no TTL":                   func(r *Record) { r.TTL = 0 },
		"a negative TTL":           func(r *Record) { r.TTL = -1 },
		"too long a TTL":           func(r *Record) { r.TTL = MaxTTL + 1 },
		"cleared before it exists": func(r *Record) { r.Cleared-- },
		"twice":                    func(*Record) {},
	} {
		bad := good
		change(&bad)
		records := []Record{bad}
		if what == "twice" {
			records = append(records, bad)
		}
		if !panics(func() { New(Config{}).Recover(slices.Values(records), nil) }) {
			t.Errorf("Recover accepted a bad record: %s", what)
		}
	}
}

func panics(do func()) (does bool) {
	defer func() { does = recover() != nil }()
	do()
	return false
}

// byHand returns a primary driver without a goroutine. The test calls step itself.
func byHand(t *testing.T, now func() clock.Instant) *Driver {
	t.Helper()
	d := NewDriver(DriverConfig{Now: func() clock.Instant { return clock.Instant{} }})
	d.Stop()
	d.stopped, d.config.Now = false, now
	d.Promote(0)
	return d
}

// The driver offers only leases that were decided to expire: not those that have ended, were granted again,
// or continue.
func TestDriverOffersOnlyLeasesDecidedToExpire(t *testing.T) {
	var clocks clock.Manual
	d := byHand(t, clocks.Now)
	first, err := d.Grant(1, 5)
	if err != nil {
		t.Fatal(err)
	}
	refs := []Ref{first.Ref(), {2, 1}}
	if got := d.stillExpiring(refs); len(got) != 0 {
		t.Errorf("offered a lease that has not expired: %+v", got)
	}
	if err := d.Revoke(1); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Grant(1, 5); err != nil {
		t.Fatal(err)
	}
	clocks.Advance(6 * time.Second)
	if offer, _, _ := d.step(); len(offer) != 1 {
		t.Fatalf("the driver offered %v", offer)
	}
	if got := d.stillExpiring(refs); len(got) != 0 {
		t.Errorf("offered a lease of a later generation: %+v", got)
	}
}

// A renewal that waits for a clear fails if its lease expires meanwhile, or if its id was granted again.
func TestDriverFailsWaitingRenewalOfEndedLease(t *testing.T) {
	for what, test := range map[string]struct {
		meanwhile func(d *Driver, clocks *clock.Manual)
		want      error
	}{
		"its lease expired": {func(d *Driver, clocks *clock.Manual) {
			clocks.Advance(200 * time.Second)
			if offer, _, _ := d.step(); len(offer) != 1 {
				t.Errorf("the driver offered %v", offer)
			}
		}, ErrEnding},
		"its id was granted again": {func(d *Driver, clocks *clock.Manual) {
			d.mu.Lock()
			defer d.mu.Unlock()
			_, err := d.core.Revoke(1)
			_, err2 := d.core.Grant(1, time.Minute, d.next(), clocks.Now())
			if err := errors.Join(err, err2); err != nil {
				t.Error(err)
			}
			d.changed.Broadcast()
		}, ErrNotFound},
	} {
		synctest.Test(t, func(t *testing.T) {
			var clocks clock.Manual
			d := byHand(t, clocks.Now)
			d.Demote()
			d.SetCheckpointer(func([]Checkpoint, []Cleared) {})
			d.Promote(0)
			if _, err := d.Grant(1, 100); err != nil {
				t.Fatal(err)
			}
			if err := d.Checkpoint(1, 50); err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() { _, err := d.Renew(1); done <- err }()
			synctest.Wait()
			test.meanwhile(d, &clocks)
			if err := <-done; err != test.want {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// A driver does not renew a lease whose renewal is refused.
func TestDriverReportsRefusedRenewal(t *testing.T) {
	var clocks clock.Manual
	d := byHand(t, clocks.Now)
	d.Recover(slices.Values([]Record{{ID: 1, Generation: Generation(At(1, 0)), Cleared: At(1, 0), TTL: time.Minute, RenewalRefused: true}}), nil)
	d.Promote(0)
	if _, err := d.Renew(1); err != ErrRenewalRefused {
		t.Errorf("Renew returned %v", err)
	}
}

// recordEnder counts the calls of EndLease and End.
type recordEnder struct{ ends, commits *int }

func (recordEnder) DeleteRange(_, _ []byte) (n, rev int64) { return 0, 0 }
func (e recordEnder) EndLease(Ref, []Item)                 { *e.ends++ }
func (e recordEnder) End()                                 { *e.commits++ }

// The driver commits the transaction of a lease without items, and writes nothing in it.
func TestDriverWritesNothingForALeaseWithoutItems(t *testing.T) {
	var clocks clock.Manual
	var ends, commits int
	d := byHand(t, clocks.Now)
	d.SetRangeDeleter(func() TxnDelete { return recordEnder{&ends, &commits} })
	if _, err := d.Grant(1, 5); err != nil {
		t.Fatal(err)
	}
	if err := d.Revoke(1); err != nil || ends != 0 || commits != 1 {
		t.Errorf("EndLease was called %d times, End %d times; error: %v", ends, commits, err)
	}
}

// Without a Checkpointer the driver makes no checkpoints, even if there was a Checkpointer before.
func TestDriverWithoutCheckpointerMakesNoCheckpoints(t *testing.T) {
	var clocks clock.Manual
	d := byHand(t, clocks.Now)
	d.Demote()
	d.SetCheckpointer(func([]Checkpoint, []Cleared) { t.Error("the driver made a checkpoint") })
	d.SetCheckpointer(nil)
	d.Promote(0)
	if _, err := d.Grant(1, 100); err != nil {
		t.Fatal(err)
	}
	clocks.Advance(90 * time.Second)
	d.step()
}

// Validate checks each duration of a driver at both limits.
func TestDriverConfigChecksBothLimits(t *testing.T) {
	for _, bad := range []DriverConfig{
		{MinTTL: -1}, {RetryInterval: -1}, {MaxSleep: MaxTTL + 1}, {Tick: MaxTTL + 1}, {Grace: -1}, {Lessor: Config{MaxExpiries: -1}},
	} {
		if bad.Validate() == nil || !panics(func() { NewDriver(bad).Stop() }) {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// A sleeping driver wakes when a lease with an earlier end is granted, when that lease ends, and when it must
// be sent again.
func TestDriverDoesNotOversleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := NewDriver(DriverConfig{MaxSleep: time.Hour, Now: func() clock.Instant { return after(time.Since(began)) }})
		defer d.Stop()
		d.Promote(0)
		time.Sleep(time.Minute)
		if _, err := d.Grant(1, 5); err != nil {
			t.Fatal(err)
		}
		for _, most := range []time.Duration{5*time.Second + 10*time.Millisecond, DefaultRetryInterval + 10*time.Millisecond} {
			before := time.Now()
			if got := <-d.ExpiredLeasesC(); len(got) != 1 {
				t.Fatalf("the driver sent %v", got)
			}
			if took := time.Since(before); took > most {
				t.Errorf("the driver sent the lease after %v, want %v", took, most)
			}
		}
	})
}

// A driver whose process was paused waits for renewals before it decides ends.
func TestDriverWaitsForRenewalsAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clocks clock.Manual
		d := NewDriver(DriverConfig{Now: clocks.Now})
		defer d.Stop()
		d.Promote(0)
		if _, err := d.Grant(1, 5); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		clocks.Advance(time.Hour)
		d.Wake()
		synctest.Wait()
		if _, err := d.Renew(1); err != nil {
			t.Errorf("the waiting renewal is refused: %v", err)
		}
	})
}
