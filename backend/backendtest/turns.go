package backendtest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper"
)

func testCampaign(s *suite) {
	name := s.name("leader")
	type candidate struct {
		stop context.CancelFunc
		done chan error
	}
	candidates := map[string]candidate{}
	leaders := make(chan string, 10)
	var inside atomic.Int32
	for _, id := range []string{"a", "b", "c"} {
		k := s.keeper(id)
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		c := candidate{cancel, make(chan error, 1)}
		candidates[id] = c
		go func() {
			c.done <- k.Campaign(ctx, name, func(ctx context.Context, l *leasekeeper.Lease) error {
				if inside.Add(1) != 1 {
					s.Errorf("%d leaders", inside.Load())
				}
				leaders <- l.Holder().ID
				<-ctx.Done()
				inside.Add(-1)
				return nil
			})
		}()
	}
	for range 3 {
		id := <-leaders
		time.Sleep(s.short / 4)
		candidates[id].stop()
		s.is("Campaign", <-candidates[id].done, context.Canceled)
	}
}

func testElector(s *suite) {
	name := s.name("leader")
	watcher, err := s.keeper("watcher").NewElector(name)
	s.kind("NewElector", err)
	leads := func(id string) {
		s.Helper()
		for deadline := time.Now().Add(2 * s.longest()); ; time.Sleep(s.short / 50) {
			i, err := watcher.Leader(s.Context())
			switch {
			case err == nil && i.Held == (id != "") && i.Holder.ID == id:
				return
			case time.Now().After(deadline):
				s.Fatalf("%s should lead: %+v, %v", id, i, err)
			}
		}
	}
	leads("")
	for _, id := range []string{"a", "b"} {
		e, err := s.keeper(id).NewElector(name)
		s.kind("NewElector", err)
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			ended <- e.Campaign(ctx, func(ctx context.Context, l *leasekeeper.Lease) error { <-ctx.Done(); return nil })
		}()
		leads(id)
		if !e.IsLeader() || watcher.IsLeader() {
			s.Errorf("%s leads, and does not know; or the watcher thinks that it does", id)
		}
		cancel()
		s.is("Campaign", <-ended, context.Canceled)
		if e.IsLeader() {
			s.Errorf("%s leads after its campaign", id)
		}
	}
	leads("")
}

// testKeeperTurns has goroutines of one keeper wait for one name: first for another keeper's lease, then for each other's.
// One of them gives up.
func testKeeperTurns(s *suite) {
	const many = 5
	a, b, name := s.keeper("a"), s.keeper("b"), s.name("x")
	l := s.must(a.Acquire(s.Context(), name))
	var mu sync.Mutex
	var order []int
	last := l.Token()
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	all.Go(func() {
		_, err := b.Acquire(ctx, name)
		s.is("Acquire of the goroutine that gives up", err, context.Canceled)
	})
	time.Sleep(s.short / 20) // the order of the calls is that of their beginnings
	for i := range many {
		all.Go(func() {
			err := b.Run(s.Context(), name, func(_ context.Context, l *leasekeeper.Lease) error {
				mu.Lock()
				defer mu.Unlock()
				if order = append(order, i); l.Token() <= last {
					s.Errorf("token %d after %d", l.Token(), last)
				}
				last = l.Token()
				return nil
			})
			s.kind("Run", err)
		})
		time.Sleep(s.short / 20)
	}
	cancel()
	time.Sleep(s.short / 20)
	if err := l.Release(s.Context()); err != nil {
		s.Fatal(err)
	}
	all.Wait()
	if !slices.IsSorted(order) || len(order) != many {
		s.Errorf("the goroutines had the name in the order %v", order)
	}
}
