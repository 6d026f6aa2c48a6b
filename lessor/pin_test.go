package lessor

import (
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"pgregory.net/rapid"
)

func (m *model) pin(id ID) error {
	l := m.find(id)
	switch {
	case l == nil:
		return ErrNotFound
	case l.RenewalRefused:
		return ErrRenewalRefused
	}
	l.Pinned = true
	return nil
}

func (m *model) unpin(id ID, at Position, now clock.Instant) error {
	l := m.find(id)
	if l == nil {
		return ErrNotFound
	}
	if !l.Pinned {
		return nil
	}
	l.Pinned, l.Checkpointed, l.Remaining, l.Applied, l.Cleared = false, false, 0, clock.Instant{}, at
	if m.primary {
		l.expiring, l.inDoubt, l.inFlight, l.queued, l.sent, l.long = false, false, false, false, false, false
		l.deadline = now.Add(l.TTL)
	}
	return nil
}

func (m *model) refuseRenewal(id ID, now clock.Instant) error {
	l := m.find(id)
	if l == nil {
		return ErrNotFound
	}
	if !l.RenewalRefused && !l.Checkpointed {
		l.Checkpointed, l.Remaining, l.Applied = true, l.TTL, now
	}
	l.RenewalRefused = true
	return nil
}

func (m *model) retain(id ID, ttl time.Duration, at Position, now clock.Instant) error {
	l := m.find(id)
	switch {
	case l == nil:
		return ErrNotFound
	case ttl > MaxTTL:
		return ErrTTLTooLarge
	case ttl <= 0:
		return ErrInvalidTTL
	}
	l.RenewalRefused, l.Checkpointed, l.Remaining, l.Applied, l.Cleared, l.TTL = true, true, ttl, now, at, ttl
	if m.primary {
		l.expiring, l.inDoubt, l.inFlight, l.queued, l.sent, l.long = false, false, false, false, false, false
		l.deadline = now.Add(ttl)
	}
	return nil
}

func (w *twin) doRetain(t *rapid.T) {
	id, at, now := modelIDs.Draw(t, "id"), w.next(), w.clocks.Now()
	ttl := time.Duration(rapid.SampledFrom([]int{0, 1, 500, 2000, 10_000, 100_000}).Draw(t, "ttl")) * time.Millisecond
	want := w.model.retain(id, ttl, at, now)
	for _, l := range w.lessors {
		same(t, "retain", want, l.Retain(id, ttl, at, now))
	}
}

func (w *twin) doPin(t *rapid.T) {
	id, at, now := modelIDs.Draw(t, "id"), w.next(), w.clocks.Now()
	kind := rapid.IntRange(0, 4).Draw(t, "kind")
	var want error
	switch {
	case kind < 2:
		want = w.model.pin(id)
	case kind < 4:
		want = w.model.unpin(id, at, now)
	default:
		want = w.model.refuseRenewal(id, now)
	}
	for _, l := range w.lessors {
		var got error
		switch {
		case kind < 2:
			got = l.Pin(id)
		case kind < 4:
			got = l.Unpin(id, at, now)
		default:
			got = l.RefuseRenewal(id, now)
		}
		same(t, "pin", want, got)
	}
}

// Rule G4: an expiry that was decided before a lease was pinned does not end the lease. None is decided while
// the lease is pinned. After Unpin the lease has exactly its TTL.
func TestPinnedLeaseDoesNotExpire(t *testing.T) {
	c, l, clocks := start(t)
	clocks.Advance(10*time.Second + 1)
	late := expiries(c.due())
	if err := l.Pin(1); err != nil || len(late) != 1 {
		t.Fatal(err, late)
	}
	if _, ended := l.Expire(late[0], c.term); ended {
		t.Fatal("a pinned lease has expired")
	}
	clocks.Advance(time.Hour)
	if got := expiries(c.due()); len(got) > 0 {
		t.Fatalf("a pinned lease expires: %v", got)
	}
	if wait, ok := l.NextDue(clocks.Now()); ok && wait < time.Hour {
		t.Errorf("NextDue returned %v for a pinned lease", wait)
	}
	if n, _ := l.Overdue(clocks.Now()); n != 0 {
		t.Errorf("%d leases are overdue although the lease is pinned", n)
	}
	if err := l.Unpin(1, At(3, 0), clocks.Now()); err != nil {
		t.Fatal(err)
	}
	if _, ended := l.Expire(late[0], c.term); ended {
		t.Fatal("an expiry from before the pin has ended the lease")
	}
	clocks.Advance(10 * time.Second)
	if got := expiries(c.due()); len(got) > 0 {
		t.Fatalf("Due at the TTL returned %v", got)
	}
	clocks.Advance(1)
	if got := expiries(c.due()); len(got) != 1 {
		t.Fatalf("Due past the TTL returned %v", got)
	}
}

// A lease whose renewal is refused ends when the time promised to its holder has passed, on the primary and
// on every successor.
func TestLeaseWithRefusedRenewalEndsAtItsDeadline(t *testing.T) {
	c, l, clocks := start(t)
	b := c.member("B")
	clocks.Advance(4 * time.Second)
	if _, err := l.Renew(1, clocks.Now()); err != nil {
		t.Fatal(err)
	}
	clocks.Advance(time.Second)
	b.clocks.AdvanceBy(100*time.Second, 100*time.Second)
	renewalRefused := b.clocks.Now()
	if err := errors.Join(l.RefuseRenewal(1, clocks.Now()), b.lessor.RefuseRenewal(1, renewalRefused)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(1, clocks.Now()); !errors.Is(err, ErrRenewalRefused) {
		t.Errorf("Renew returned %v", err)
	}
	if left, _ := l.Remaining(1, clocks.Now()); left != 9*time.Second {
		t.Errorf("%v are left", left)
	}
	if err := l.Pin(1); !errors.Is(err, ErrRenewalRefused) {
		t.Errorf("Pin returned %v", err)
	}
	for range 3 { // elections do not prolong it
		b.clocks.Advance(3 * time.Second)
		c.lead(b, 0)
		if lease, _ := b.lessor.Lookup(1); lease.Deadline != renewalRefused.Add(10*time.Second) {
			t.Errorf("the lease ends at %v; its renewal was refused at %v", lease.Deadline, renewalRefused)
		}
	}
}

// A retained lease has its new TTL from the command on, whether that is shorter or longer than before. It is not
// renewed, an expiry that was decided before does not end it, and every successor counts from when it applied the
// command.
func TestRetainedLeaseEndsAfterItsNewTTL(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, time.Hour} {
		c, l, clocks := start(t)
		b := c.member("B")
		clocks.Advance(10*time.Second + 1)
		late := expiries(c.due())
		b.clocks.AdvanceBy(100*time.Second, 100*time.Second)
		retained := b.clocks.Now()
		at := At(3, 0)
		if err := errors.Join(l.Retain(1, ttl, at, clocks.Now()), b.lessor.Retain(1, ttl, at, retained)); err != nil || len(late) != 1 {
			t.Fatal(err, late)
		}
		if _, ended := l.Expire(late[0], c.term); ended {
			t.Fatal("an expiry from before the command has ended the lease")
		}
		if _, err := l.Renew(1, clocks.Now()); !errors.Is(err, ErrRenewalRefused) {
			t.Errorf("Renew returned %v", err)
		}
		if left, _ := l.Remaining(1, clocks.Now()); left != ttl {
			t.Errorf("of %v %v are left", ttl, left)
		}
		clocks.Advance(ttl)
		if got := expiries(c.due()); len(got) > 0 {
			t.Fatalf("Due at the new TTL returned %v", got)
		}
		clocks.Advance(1)
		if got := expiries(c.due()); len(got) != 1 {
			t.Fatalf("Due past the new TTL returned %v", got)
		}
		for range 2 { // elections do not prolong it
			b.clocks.Advance(time.Second)
			c.lead(b, 0)
			if lease, _ := b.lessor.Lookup(1); lease.Deadline != retained.Add(ttl) {
				t.Errorf("the lease ends at %v; it was retained at %v for %v", lease.Deadline, retained, ttl)
			}
		}
	}
}

// A lease is retained for a time that a lease can have. A pinned one stays pinned, and one that does not exist is not
// made.
func TestRetainingNeedsALeaseAndATTL(t *testing.T) {
	l := granted(t, nil)
	before, _ := l.Record(1)
	for _, c := range []struct {
		id   ID
		ttl  time.Duration
		want error
	}{{2, time.Second, ErrNotFound}, {1, 0, ErrInvalidTTL}, {1, -1, ErrInvalidTTL}, {1, MaxTTL + 1, ErrTTLTooLarge}} {
		if err := l.Retain(c.id, c.ttl, At(9, 0), after(0)); err != c.want {
			t.Errorf("lease %d for %v: %v", c.id, c.ttl, err)
		}
	}
	if now, _ := l.Record(1); now != before || l.Len() != 1 {
		t.Errorf("the lease changed from %+v to %+v", before, now)
	}
	if err := errors.Join(l.Pin(1), l.Retain(1, MaxTTL, At(9, 0), after(time.Second))); err != nil {
		t.Fatal(err)
	}
	if r, _ := l.Record(1); !r.Pinned || !r.RenewalRefused || r.Cleared != At(9, 0) || r.Applied != after(time.Second) || r.TTL != MaxTTL {
		t.Errorf("retained: %+v", r)
	}
	if lease, _ := l.Lookup(1); lease.Deadline != (clock.Instant{}) {
		t.Errorf("without a primary the lease has a deadline: %v", lease.Deadline)
	}
}
