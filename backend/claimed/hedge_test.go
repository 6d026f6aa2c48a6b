package claimed_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

// traffic counts the calls of a process, once its leases are held.
type traffic struct {
	mu                      sync.Mutex
	batches, reads, singles int
}

func (c *traffic) count(call claimtest.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case call.Method == claimtest.Swap && call.Name == "":
		c.batches++
	case call.Method == claimtest.Get && call.Name == "":
		c.reads++
	case call.Name != "":
		c.singles++
	}
}

// counted returns the counts so far.
func (c *traffic) counted() (batches, reads, singles int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batches, c.reads, c.singles
}

// holdMany returns leases of a keeper. From then on the calls of its process are counted and get a fault.
func holdMany(t *testing.T, w *site, n int, fault func(call claimtest.Call, batch int) claimtest.Fault) ([]*leasekeeper.Lease, *traffic) {
	t.Helper()
	p, c := w.process(), new(traffic)
	k := keeperOn(t, p.Backend, "a")
	leases := make([]*leasekeeper.Lease, n)
	for i := range leases {
		l, err := k.Acquire(t.Context(), fmt.Sprintf("jobs/%04d", i))
		if err != nil {
			t.Fatal(err)
		}
		leases[i] = l
	}
	p.faults(func(call claimtest.Call) claimtest.Fault {
		c.count(call)
		batches, _, _ := c.counted()
		return fault(call, batches)
	})
	return leases, c
}

func (c *traffic) allHeld(t *testing.T, leases []*leasekeeper.Lease, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(ttl / 20) {
		for _, l := range leases {
			if err := l.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, _, singles := c.counted(); singles > 0 {
		t.Errorf("%d calls were about one lease alone", singles)
	}
}

// A store that takes 0.45 of the TTL for every batch of renewals is slow, but loses no lease. That holds
// whether the requests are late or the answers.
func TestSlowBatchesLoseNoLease(t *testing.T) {
	for _, slow := range []claimtest.Fault{{Back: ttl * 45 / 100}, {Delay: ttl * 45 / 100}, {Delay: ttl / 5, Back: ttl / 4}} {
		for _, where := range []func() func() claim.Options{oneMachine, machines} {
			bubble(t, where, func(t *testing.T, w *site) {
				leases, c := holdMany(t, w, 50, func(call claimtest.Call, _ int) claimtest.Fault {
					if call.Method == claimtest.Swap && call.Name == "" {
						return slow
					}
					return claimtest.Fault{}
				})
				c.allHeld(t, leases, 10*ttl)
			})
		}
	}
}

// A batch that fails is read and written once more as a batch, whatever its outcome was.
func TestFailedBatchIsRepeatedAsABatch(t *testing.T) {
	for _, fault := range []claimtest.Fault{{LoseAnswer: true}, {LoseRequest: true}, {LoseAnswer: true, Twice: time.Second}} {
		bubble(t, oneMachine, func(t *testing.T, w *site) {
			leases, c := holdMany(t, w, 50, func(call claimtest.Call, batch int) claimtest.Fault {
				if call.Method == claimtest.Swap && batch%3 > 0 {
					return fault
				}
				return claimtest.Fault{}
			})
			c.allHeld(t, leases, 10*ttl)
			if batches, reads, _ := c.counted(); batches > 10*12 || reads > 10*12 {
				t.Errorf("%+v: %d batches were written and %d read in 10 TTLs", fault, batches, reads)
			}
		})
	}
}

// A hedge that finds the write of the earlier attempt makes none of its own. The deadline is the one that the
// earlier attempt has promised.
func TestHedgeFindsTheEarlierAttempt(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		var sent time.Time
		leases, c := holdMany(t, w, 50, func(call claimtest.Call, batch int) claimtest.Fault {
			if call.Method == claimtest.Swap && batch == 1 {
				sent = time.Now()
				return claimtest.Fault{Back: time.Hour}
			}
			return claimtest.Fault{}
		})
		for before := leases[0].Remaining(); leases[0].Remaining() <= before; time.Sleep(ttl / 100) {
			before = leases[0].Remaining()
		}
		if batches, reads, singles := c.counted(); batches != 1 || reads != 1 || singles != 0 {
			t.Errorf("%d batches were written, %d read, and there were %d calls about one lease", batches, reads, singles)
		}
		for _, l := range leases {
			if left := l.Remaining(); left > ttl-time.Since(sent) || left < ttl-time.Since(sent)-time.Second {
				t.Fatalf("%v was written %v ago for %v, and has %v left", l, time.Since(sent), ttl, left)
			}
		}
	})
}
