package backendtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// slow is a client whose answers to renewals come late.
type slow struct {
	backend.Backend
	by time.Duration

	mu       sync.Mutex
	underWay map[backend.Lease][]context.Context // of the attempts
	most     int                                 // attempts for one lease at the same time
}

// slowClocked is a slow client of a backend with clocks of its own.
type slowClocked struct {
	*slow
	backend.Clocked
}

func (s *suite) slow(by time.Duration) (*slow, backend.Backend) {
	c := &slow{Backend: s.store.Open(s), by: by, underWay: make(map[backend.Lease][]context.Context)}
	if clocked, ok := c.Backend.(backend.Clocked); ok {
		return c, slowClocked{c, clocked}
	}
	return c, c
}

// begin counts an attempt together with those that have neither returned nor been given up.
func (c *slow) begin(ctx context.Context, leases []backend.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range leases {
		others := slices.DeleteFunc(c.underWay[l], func(other context.Context) bool { return other.Err() != nil })
		c.underWay[l] = append(others, ctx)
		c.most = max(c.most, len(c.underWay[l]))
	}
}

// Renew renews the leases at once, and reports that late.
func (c *slow) Renew(ctx context.Context, leases []backend.Lease, report func(int, backend.Renewal)) error {
	type answer struct {
		place int
		backend.Renewal
	}
	attempt, end := context.WithCancel(ctx)
	defer end()
	c.begin(attempt, leases)
	late := time.NewTimer(c.by)
	defer late.Stop()
	var answers []answer
	err := c.Backend.Renew(ctx, leases, func(i int, r backend.Renewal) { answers = append(answers, answer{i, r}) })
	select {
	case <-late.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	end() // the next attempt may follow each report at once
	for _, a := range answers {
		report(a.place, a.Renewal)
	}
	return err
}

// A store that takes 0.45 of the TTL to answer each renewal is slow, but loses no lease. One keeper has many,
// which are renewed together. Another one has a single lease, for which no third attempt is made while two are
// under way. In a batch an attempt lasts for as long as any lease in it needs it.
func testKeeperSlow(s *suite) {
	s.ttl = max(3*s.ttl, 10*time.Second) // the delays of a busy machine have to be less than a tenth of it
	_, b := s.slow(s.ttl * 45 / 100)
	leases := s.slowLeases(b, "many", 20)
	client, b := s.slow(s.ttl * 45 / 100)
	leases = append(leases, s.slowLeases(b, "one", 1)...)
	for end := time.Now().Add(2 * s.ttl); time.Now().Before(end); time.Sleep(s.ttl / 20) {
		for _, l := range leases {
			if err := l.Check(); err != nil {
				s.Fatal(err)
			}
		}
	}
	client.mu.Lock()
	defer client.mu.Unlock()
	if client.most > 2 {
		s.Errorf("%d attempts to renew one lease were under way at once", client.most)
	}
}

// slowLeases makes a keeper of its own acquire n leases.
func (s *suite) slowLeases(b backend.Backend, id string, n int) []*leasekeeper.Lease {
	k := s.keeperOn(b, id)
	leases := make([]*leasekeeper.Lease, n)
	for i := range leases {
		leases[i] = s.must(k.Acquire(s.Context(), s.name(fmt.Sprintf("slow/%s/%d", id, i))))
	}
	return leases
}
