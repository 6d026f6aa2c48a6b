package ownership

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// claimFor makes a lease wait for a name, as a claim does.
func (g *Registry) claimFor(name string, id lessor.ID) *waiter {
	w := g.join(g.queue([]byte(name)), id, int64(id))
	w.claimed = true
	g.claims[id] = w
	return w
}

func TestLongQueueEmptiesFromBack(t *testing.T) {
	g := New()
	const waiters = 1 << 12
	for i := range waiters {
		g.claimFor("n", lessor.ID(i+1))
	}
	q := g.queues["n"]
	for i := waiters; i > 0; i-- {
		if len(q.waiters) != i || q.head().lease != 1 {
			t.Fatalf("%d waiters, and lease %d is first, where %d were left", len(q.waiters), q.head().lease, i)
		}
		g.leave(q, lessor.ID(i))
	}
	if len(q.waiters) != 0 || len(g.claims) != 0 || len(g.orphans) != waiters {
		t.Errorf("%d waiters and %d claims are left, and %d leases to end", len(q.waiters), len(g.claims), len(g.orphans))
	}
}

func TestShortenedQueueFreesItsMemory(t *testing.T) {
	g := New()
	q := g.queue([]byte("n"))
	for i := range 1000 {
		g.join(q, lessor.ID(i+1), int64(i+1))
	}
	long := q.waiters
	for i := range 999 {
		g.leave(q, lessor.ID(i+1))
		if q.head().lease != lessor.ID(i+2) {
			t.Fatalf("after %d have left, lease %d is first", i+1, q.head().lease)
		}
	}
	if &long[999] == &q.waiters[0] || cap(q.waiters) > 2*fewWaiters {
		t.Error("a single waiter is in the memory of the long queue")
	}
	before := &q.waiters[0]
	g.leave(q, 1000)
	g.join(q, 1001, 1001)
	if before != &q.waiters[0] {
		t.Error("a queue of one takes new memory for each waiter")
	}
}

// A member remembers a bounded number of ends, and forgets the oldest ones first.
func TestRecentEndsAreBounded(t *testing.T) {
	g := New()
	for i := range maxRecentlyEnded + 2 {
		g.ended.add(lessor.ID(i+1), WhyReleased, "note")
		g.ended.add(lessor.ID(i+1), WhyExpired, "") // replaces the earlier reason
	}
	if g.RecentlyEnded(1) || g.RecentlyEnded(2) || !g.RecentlyEnded(3) || len(g.ended.why) != maxRecentlyEnded {
		t.Errorf("%d ends are remembered; of the oldest: %v", len(g.ended.why), []bool{g.RecentlyEnded(1), g.RecentlyEnded(2), g.RecentlyEnded(3)})
	}
	if why, note, _ := g.ended.find(3); why != WhyExpired || note != "" {
		t.Errorf("ended because of %d %q", why, note)
	}
	g.Reset()
	if !g.RecentlyEnded(3) {
		t.Error("an end is forgotten with the state")
	}
}

// The name that has been free longest is not forgotten at a revision that creates a key of it.
func TestNameWithANewWaiterIsNotForgotten(t *testing.T) {
	w := newWorld()
	w.t = t
	names := w.registry
	name := func(i int) string { return fmt.Sprintf("free/%05d", i) }
	for i := range maxFreeNames {
		r := Record{Name: name(i), Ended: 1, Last: 1, Freed: 1, FreedOrder: uint32(i)}
		w.records[r.Name] = r
		w.past[r.Name] = map[uint64]Tenure{0: {Token: 1, Why: WhyReleased}}
		names.RestoreRecord(r)
	}
	if _, err := names.Complete(); err != nil {
		t.Fatal(err)
	}
	w.env.View, w.env.At = w.newView(), w.at()
	for _, id := range []lessor.ID{1, 2} {
		_, err := w.leases.Grant(id, time.Minute, w.at(), w.clock.Now())
		w.must(err)
	}
	w.put([]string{"n/1=1"})
	w.deleteKeys([]string{"n/1"})
	w.set(name(0)+"/2", "card", 2) // at the same revision
	w.update(WhyDeleted, "")
	if s := names.State(w.newView(), name(0)); !s.Held || s.Lease != 2 {
		t.Errorf("%s", showState(s))
	}
	if w.records[name(0)].Current == nil || len(w.past[name(0)]) != 1 {
		t.Errorf("stored are %+v and %d tenures", w.records[name(0)], len(w.past[name(0)]))
	}
	if n := len(names.FreeNames()); n != maxFreeNames {
		t.Errorf("%d names are free", n)
	}
	w.restart()
}
