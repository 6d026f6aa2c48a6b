package ownership

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// claimFor has a lease wait for a name, as if a claim had made it.
func (g *Registry) claimFor(name string, id lessor.ID) *waiter {
	w := g.join(g.queue([]byte(name)), id, int64(id))
	w.claimed = true
	g.claims[id] = w
	return w
}

func TestLongQueueEmptiesFromItsEnd(t *testing.T) {
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

func TestLongQueueReturnsItsMemory(t *testing.T) {
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

// A member remembers a bounded number of ends, the newest ones.
func TestRecentEndsAreBounded(t *testing.T) {
	g := New()
	for i := range maxRecentlyEnded + 2 {
		g.ended.add(lessor.ID(i+1), WhyReleased, "note")
		g.ended.add(lessor.ID(i+1), WhyExpired, "") // the newest reason counts
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
