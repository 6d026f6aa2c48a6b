package lessor

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// start returns a leader A and a follower B with one lease of 10 s, granted at position 2.
func start(t *testing.T) (*cluster, *Lessor, *clock.Manual) {
	t.Helper()
	c := newCluster(Config{}, true, "A", "B")
	c.lead(c.members[0], 0)
	c.append(c.term, grantCommand{1, 10 * time.Second})
	c.applyAll()
	return c, c.leader.lessor, c.leader.clocks
}

func expiries(proposed []any) (found []Expiry) {
	for _, p := range proposed {
		if e, ok := p.(Expiry); ok {
			found = append(found, e)
		}
	}
	return found
}

// Rule T1, the waiting side: an end has come once both readings are strictly past it.
func TestLeaseEndsOnceBothClocksArePastItsDeadline(t *testing.T) {
	for _, test := range []struct {
		raw, boot time.Duration
		over      bool
	}{
		{10 * time.Second, time.Hour, false},
		{time.Hour, 10 * time.Second, false},
		{10*time.Second + 1, 10 * time.Second, false},
		{10*time.Second + 1, 10*time.Second + 1, true},
	} {
		c, _, clocks := start(t)
		clocks.AdvanceBy(test.raw, test.boot)
		if got := len(expiries(c.due())) == 1; got != test.over {
			t.Errorf("after raw %v and boot %v, the lease expires: %v", test.raw, test.boot, got)
		}
	}
}

// Rule T5: renewals that were queued while the primary was paused count, if the primary handles them before
// it decides ends.
func TestOverdueLeaseIsRenewed(t *testing.T) {
	c, l, clocks := start(t)
	clocks.Advance(time.Hour)
	if _, err := l.Renew(1, clocks.Now()); err != nil {
		t.Fatal(err)
	}
	if got := c.due(); len(got) > 0 {
		t.Fatalf("a renewed lease expires: %v", got)
	}
}

// Rule C2: the primary counts the TTL exactly, from the instant at which it processed the grant or the
// renewal.
func TestPrimaryCountsTheTTLExactly(t *testing.T) {
	c, l, clocks := start(t)
	clocks.Advance(7 * time.Second)
	if _, err := l.Renew(1, clocks.Now()); err != nil {
		t.Fatal(err)
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

// Rule C3: a successor gives a cleared lease exactly its TTL, counted from when the successor applied its
// first entry as leader.
func TestSuccessorGivesAClearedLeaseItsFullTTL(t *testing.T) {
	c, l, clocks := start(t)
	clocks.Advance(5 * time.Second)
	if _, err := l.Renew(1, clocks.Now()); err != nil {
		t.Fatal(err)
	}
	b := c.member("B")
	b.clocks.AdvanceBy(9*time.Second, 8*time.Second)
	c.lead(b, 0)
	lease, _ := b.lessor.Lookup(1)
	if want := b.clocks.Now().Add(10 * time.Second); lease.Deadline != want {
		t.Errorf("the lease ends at %v, want %v", lease.Deadline, want)
	}
}

// Rule C4: a successor gives a checkpointed lease exactly the remaining time, counted from when the successor
// applied the checkpoint. Leaders in between, and a restart in the same clock domain, change nothing.
func TestSuccessorGivesACheckpointedLeaseItsRemainingTime(t *testing.T) {
	c, _, clocks := start(t)
	b := c.member("B")
	clocks.Advance(6 * time.Second)
	b.clocks.AdvanceBy(500*time.Second, 600*time.Second)
	applied := b.clocks.Now()
	if got := c.due(); len(got) != 1 || got[0].(Checkpoint).Remaining != 4*time.Second {
		t.Fatalf("Due returned %v", got)
	}
	c.commit()
	b.clocks.AdvanceBy(time.Second, 2*time.Second)
	record, _ := b.lessor.Record(1)
	b.lessor.Recover(slices.Values([]Record{record}), b.lessor.Leaderships())
	c.lead(c.member("A"), 0)
	c.lead(b, 0)
	lease, _ := b.lessor.Lookup(1)
	if want := applied.Add(4 * time.Second); lease.Deadline != want {
		t.Errorf("the lease ends at %v, want %v", lease.Deadline, want)
	}
}

// Rule C4: a later checkpoint of a lease that was not renewed in between does not prolong it. A member that
// applies the later checkpoint late keeps counting from the earlier one, if the end of the earlier one comes
// first on both clocks.
func TestLaterCheckpointDoesNotProlongTheLease(t *testing.T) {
	for _, late := range []struct {
		raw, boot time.Duration
		keeps     bool
	}{
		{2 * time.Second, 2 * time.Second, false}, {2*time.Second + 2, 2*time.Second + 2, true},
		{9 * time.Second, 9 * time.Second, true}, {9 * time.Second, time.Second, false},
	} {
		c, _, clocks := start(t)
		b := c.member("B")
		clocks.Advance(6 * time.Second)
		if got := c.due(); len(got) != 1 || got[0].(Checkpoint).Remaining != 4*time.Second {
			t.Fatalf("Due returned %v", got)
		}
		c.commit()
		first := b.clocks.Now().Add(4 * time.Second)
		clocks.Advance(2*time.Second + 1) // past half of what was left
		if got := c.due(); len(got) != 1 || got[0].(Checkpoint).Remaining != 2*time.Second-1 {
			t.Fatalf("the second Due returned %v", got)
		}
		b.clocks.AdvanceBy(late.raw, late.boot)
		c.commit()
		want := b.clocks.Now().Add(2*time.Second - 1)
		if late.keeps {
			want = first
		}
		c.lead(b, 0)
		if lease, _ := b.lessor.Lookup(1); lease.Deadline != want {
			t.Errorf("applied %v and %v late, the lease ends at %v, want %v", late.raw, late.boot, lease.Deadline, want)
		}
	}
}

// Rule C4: an election checkpoints every lease. The first checkpoint command after it does not prolong a
// lease either.
func TestCheckpointAfterAnElectionDoesNotProlongTheLease(t *testing.T) {
	for _, late := range []struct {
		raw, boot time.Duration
		keeps     bool
	}{
		{0, 0, false}, {2, 2, true}, {9 * time.Second, 9 * time.Second, true}, {9 * time.Second, 0, false},
	} {
		c, _, clocks := start(t)
		b := c.member("B")
		c.lead(c.members[0], 0)
		leadership := b.clocks.Now()
		clocks.Advance(6 * time.Second)
		b.clocks.Advance(6*time.Second - 1)
		if got := c.due(); len(got) != 1 || got[0].(Checkpoint).Remaining != 4*time.Second {
			t.Fatalf("Due returned %v", got)
		}
		b.clocks.AdvanceBy(late.raw, late.boot)
		c.commit()
		want := b.clocks.Now().Add(4 * time.Second)
		if late.keeps {
			want = leadership.Add(10 * time.Second)
		}
		c.lead(b, 0)
		if lease, _ := b.lessor.Lookup(1); lease.Deadline != want {
			t.Errorf("applied %v and %v late, the lease ends at %v, want %v", late.raw, late.boot, lease.Deadline, want)
		}
	}
}

// Rule C5: the remaining time is the TTL minus the elapsed time of the slower clock. It is never less than
// zero and never scaled.
func TestRemainingTimeFollowsTheSlowerClock(t *testing.T) {
	_, l, clocks := start(t)
	for _, step := range []struct{ raw, boot, want time.Duration }{
		{0, 0, 10 * time.Second},
		{3 * time.Second, 2 * time.Second, 8 * time.Second},
		{1, 0, 8 * time.Second},
		{0, time.Hour, 7*time.Second - 1},
		{time.Hour, 0, 0},
	} {
		now := clocks.AdvanceBy(step.raw, step.boot)
		if got, err := l.Remaining(1, now); err != nil || got != step.want {
			t.Errorf("at %v: %v, %v; want %v", now, got, err, step.want)
		}
	}
}

// Rule G1: a second Grant of an id returns the lease of the first, so the caller can repeat its answer.
func TestSecondGrantReturnsTheFirstLease(t *testing.T) {
	_, l, clocks := start(t)
	lease, err := l.Grant(1, 99*time.Second, At(9, 0), clocks.Now())
	if err != ErrExists || lease.Generation != At(2, 0) || lease.TTL != 10*time.Second {
		t.Errorf("%+v, %v", lease, err)
	}
}

// Rule G4: a member applies an expiry only in its term, to its generation, and only if the lease was not
// cleared since the decision.
func TestStaleExpiryIsSkipped(t *testing.T) {
	good := Expiry{Ref: Ref{1, At(2, 0)}, Term: 1, DecidedAt: At(5, 0)}
	for _, test := range []struct {
		name    string
		change  func(*Expiry)
		term    uint64
		cleared Position
		want    bool
	}{
		{"good", func(*Expiry) {}, 1, 0, true},
		{"cleared before", func(*Expiry) {}, 1, At(5, 0), true},
		{"cleared since", func(*Expiry) {}, 1, At(5, 1), false},
		{"entry of another term", func(*Expiry) {}, 2, 0, false},
		{"decided in another term", func(e *Expiry) { e.Term = 2 }, 1, 0, false},
		{"another generation", func(e *Expiry) { e.Generation = At(3, 0) }, 1, 0, false},
		{"another id", func(e *Expiry) { e.ID = 2 }, 1, 0, false},
	} {
		_, l, _ := start(t)
		if test.cleared > 0 {
			l.Clear(Cleared{Ref: good.Ref, Term: 1}, 1, test.cleared)
		}
		e := good
		test.change(&e)
		if _, ok := l.Expire(e, test.term); ok != test.want || (l.Len() == 0) != test.want {
			t.Errorf("%s: %v, %d leases left", test.name, ok, l.Len())
		}
	}
}

// Rule G4: a lease can be renewed again once its expiry is skipped or dropped, or the primary is demoted.
func TestLeaseIsRenewableAfterItsExpiryFails(t *testing.T) {
	for name, lift := range map[string]func(l *Lessor, e Expiry, now clock.Instant){
		"skipped": func(l *Lessor, e Expiry, _ clock.Instant) { l.Expire(e, 7) },
		"dropped": func(l *Lessor, e Expiry, _ clock.Instant) { l.ExpiryDropped([]Expiry{e}) },
		"demoted": func(l *Lessor, _ Expiry, now clock.Instant) { l.Demote(); l.Promote(0, now, 2) },
	} {
		c, l, clocks := start(t)
		clocks.Advance(time.Minute)
		e := expiries(c.due())[0]
		if _, err := l.Renew(1, clocks.Now()); err != ErrEnding {
			t.Fatalf("%s: Renew of an expiring lease returned %v", name, err)
		}
		lift(l, e, clocks.Now())
		if _, err := l.Renew(1, clocks.Now()); err == ErrEnding {
			t.Errorf("%s: the lease is still expiring", name)
		}
	}
}

// Rule G5: a stale checkpoint or clear has no effect, under the same conditions as a stale expiry.
func TestStaleCheckpointAndClearAreSkipped(t *testing.T) {
	ref := Ref{1, At(2, 0)}
	good := Checkpoint{Ref: ref, Term: 1, DecidedAt: At(5, 0), Remaining: time.Second}
	_, l, clocks := start(t)
	for name, test := range map[string]struct {
		change func(*Checkpoint)
		term   uint64
	}{
		"entry of another term":   {func(*Checkpoint) {}, 2},
		"decided in another term": {func(c *Checkpoint) { c.Term = 2 }, 1},
		"another generation":      {func(c *Checkpoint) { c.Generation = At(3, 0) }, 1},
		"before it was cleared":   {func(c *Checkpoint) { c.DecidedAt = At(1, 9) }, 1},
	} {
		c := good
		test.change(&c)
		if l.Checkpoint(c, test.term, clocks.Now()) {
			t.Errorf("checkpoint, %s: applied", name)
		}
	}
	if !l.Checkpoint(good, 1, clocks.Now()) {
		t.Error("a good checkpoint is skipped")
	}
	if l.Clear(Cleared{Ref: ref, Term: 1}, 2, At(6, 0)) || l.Clear(Cleared{Ref: ref, Term: 2}, 1, At(6, 0)) ||
		l.Clear(Cleared{Ref: Ref{1, At(3, 0)}, Term: 1}, 1, At(6, 0)) {
		t.Error("a stale clear is applied")
	}
	if lease, _ := l.Lookup(1); !lease.Checkpointed || lease.Remaining != time.Second {
		t.Errorf("the lease after stale clears: %+v", lease)
	}
	if !l.Clear(Cleared{Ref: ref, Term: 1}, 1, At(6, 0)) || l.Checkpoint(good, 1, clocks.Now()) {
		t.Error("a checkpoint decided before a clear was applied after it")
	}
}

func TestPositionHoldsIndexAndOrdinal(t *testing.T) {
	p := At(1<<48-1, 65535)
	if p != math.MaxUint64 || p.Index() != 1<<48-1 || p.Ordinal() != 65535 || p.String() != "281474976710655.65535" {
		t.Errorf("%d %d %v", p.Index(), p.Ordinal(), p)
	}
	for _, bad := range []func(){func() { At(1, 65536) }, func() { At(1, -1) }, func() { At(1<<48, 0) }} {
		mustPanic(t, bad)
	}
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("the call did not panic")
		}
	}()
	f()
}

func TestBrokenInvariantsPanic(t *testing.T) {
	_, l, clocks := start(t)
	mustPanic(t, func() { l.BeginLeadership(At(1, 0), clocks.Now()) })
	mustPanic(t, func() { l.Clear(Cleared{Ref: Ref{1, At(2, 0)}, Term: 1}, 1, At(1, 0)) })
	mustPanic(t, func() { l.SetCheckpointer(nil) })
	mustPanic(t, func() { New(Config{MaxExpiries: -1}) })
	mustPanic(t, func() { New(Config{}).Recover(slices.Values([]Record{{ID: 1}}), nil) })
}

// A lease without items costs at most 200 bytes of heap, including its share of the map and of the queue.
func TestMemoryOfALeaseIsBounded(t *testing.T) {
	const n = 300_000
	var before, after runtime.MemStats
	l := New(Config{})
	l.SetCheckpointer(func([]Checkpoint, []Cleared) {})
	l.BeginLeadership(At(1, 0), clock.Instant{})
	l.Promote(0, clock.Instant{}, 1)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		if _, err := l.Grant(ID(i+1), time.Duration(i%1000+10)*time.Second, At(uint64(i+2), 0), clock.Instant{}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)) / n
	t.Logf("%.1f bytes per lease", each)
	if each > 200 {
		t.Errorf("%.1f bytes per lease", each)
	}
	runtime.KeepAlive(l)
}

// ender is a transaction that hides the items of a lease with one record.
type ender struct {
	txn
	calls []string
}

func (e *ender) EndLease(ref Ref, items []Item) {
	e.calls = append(e.calls, fmt.Sprint(ref, len(items), items[0], items[len(items)-1]))
}

func (e *ender) End() { e.calls = append(e.calls, "end") }

// A LeaseEnder is called once for each lease, however many items the lease has.
func TestLeaseEnderIsCalledOncePerLease(t *testing.T) {
	_, l, _ := start(t)
	e := &ender{}
	l.SetRangeDeleter(func() TxnDelete { return e })
	var items []Item
	for i := range 100_000 {
		items = append(items, Item{fmt.Sprintf("%06d", (i*7919)%100_000)})
	}
	if err := l.Attach(1, items); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Revoke(1); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1@2 100000 {000000} {099999}", "end"}; !slices.Equal(e.calls, want) || len(e.keys) > 0 {
		t.Errorf("the store was called with %v", e.calls)
	}
	if len(l.items) > 0 || l.GetLease(items[0]) != NoLease {
		t.Error("items are still attached")
	}
}

// Granting, renewing and revoking long leases leaves no entries in the queue.
func TestQueueDoesNotGrow(t *testing.T) {
	l := New(Config{})
	l.SetCheckpointer(func([]Checkpoint, []Cleared) {})
	l.Promote(0, clock.Instant{}, 1)
	for i := range 10_000 {
		now := clock.Instant{}.Add(time.Duration(i) * time.Second)
		if _, err := l.Grant(1, MaxTTL, At(uint64(i+1), 0), now); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, err := l.Renew(1, now); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Revoke(1); err != nil {
			t.Fatal(err)
		}
	}
	for p := onRaw; p <= expiring; p++ {
		if n := cap(l.queues[p].slots); n > 4 {
			t.Errorf("queue %d has room for %d", p, n)
		}
	}
}

// With Config.NoEndBefore a lease whose deadline has passed ends once both clocks are past that instant too. Until then
// it can be renewed.
func TestNoLeaseEndsBeforeTheConfiguredInstant(t *testing.T) {
	begin := clock.Instant{Raw: 1, Boot: 1}
	floor := begin.Add(time.Minute)
	l := New(Config{NoEndBefore: floor})
	l.SetCheckpointer(func([]Checkpoint, []Cleared) {})
	l.BeginLeadership(At(1, 0), begin)
	l.Promote(0, begin, 1)
	for id := ID(1); id <= 2; id++ {
		if _, err := l.Grant(id, 10*time.Second, At(2, int(id)), begin); err != nil {
			t.Fatal(err)
		}
	}
	if due := l.Due(floor, At(2, 9)); len(due) > 0 {
		t.Fatalf("ends before the instant: %v", due)
	}
	if n, _ := l.Overdue(floor); n != 0 {
		t.Errorf("%d leases are overdue", n)
	}
	l.Clear(Cleared{Ref: Ref{ID: 2, Generation: l.leases[2].generation}, Term: 1}, 1, At(3, 0))
	if _, err := l.Renew(2, floor); err != nil {
		t.Fatalf("a renewal before the instant: %v", err)
	}
	after := floor.Add(1)
	due := l.Due(after, At(3, 0))
	if len(due) != 1 || due[0].ID != 1 {
		t.Errorf("after the instant, these end: %v", due)
	}
	if late := l.Late(due[0].Ref, after); late != 1 {
		t.Errorf("the end counts as %v late", late)
	}
}
