package claimed_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
)

// queueStore is a store that keeps a queue of processes for the name "x". It counts the reads of records.
type queueStore struct {
	claim.Store
	place int64

	mu     sync.Mutex
	opened []*openQueues
	gets   int
}

// Get implements [claim.Store].
func (s *queueStore) Get(ctx context.Context, name string) (claim.Found, error) {
	s.mu.Lock()
	s.gets++
	s.mu.Unlock()
	return s.Store.Get(ctx, name)
}

// Queues implements [claim.Queuer].
func (s *queueStore) Queues(context.Context) (claim.Queues, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &openQueues{store: s}
	if len(s.opened) == 0 {
		q.late = make(chan error)
	}
	s.opened = append(s.opened, q)
	return q, nil
}

// read returns how often records were read since its last call.
func (s *queueStore) read() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.gets
	s.gets = 0
	return n
}

// tickets returns the places of the tickets that are left in the n-th queues that were opened.
func (s *queueStore) tickets(n int) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.opened[n].places)
}

// openQueues are the queues of a queueStore, as one goroutine of a backend sees them. The lock of the store
// guards them.
type openQueues struct {
	store  *queueStore
	places []int64
	late   chan error // if not nil, a look whose context has ended returns what this channel delivers
}

// Join implements [claim.Queues].
func (q *openQueues) Join(ctx context.Context, name string) (claim.Standing, error) {
	q.store.mu.Lock()
	q.store.place++
	place := q.store.place
	q.places = append(q.places, place)
	q.store.mu.Unlock()
	all, err := q.standings(ctx)
	if err != nil {
		return claim.Standing{}, err
	}
	return all[len(all)-1], nil
}

// Leave implements [claim.Queues].
func (q *openQueues) Leave(_ context.Context, _ string, place int64, _ bool) error {
	q.store.mu.Lock()
	defer q.store.mu.Unlock()
	q.places = slices.DeleteFunc(q.places, func(p int64) bool { return p <= place })
	return nil
}

// Pass implements [claim.Queues]. There is never a head to pass over.
func (q *openQueues) Pass(context.Context, string, int64) error { return nil }

// Look implements [claim.Queues].
func (q *openQueues) Look(ctx context.Context, l claim.Look) ([]claim.Standing, error) {
	for end := time.Now().Add(l.For); ; {
		all, err := q.standings(ctx)
		if len(all) > 0 && !all[0].Found.Record.Held() && !slices.Contains(l.Known, all[0].Place) || !time.Now().Before(end) {
			return all, err
		}
		select {
		case <-ctx.Done():
			if q.late != nil {
				return all, <-q.late
			}
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (q *openQueues) standings(ctx context.Context) (all []claim.Standing, err error) {
	q.store.mu.Lock()
	defer q.store.mu.Unlock()
	f, err := q.store.Store.Get(context.WithoutCancel(ctx), "x")
	for _, place := range q.places {
		all = append(all, claim.Standing{Name: "x", Place: place, Head: q.places[0], Preferred: claim.IsPreferred(place), Found: f})
	}
	return all, err
}

// Close implements [claim.Queues].
func (q *openQueues) Close(context.Context) {
	q.store.mu.Lock()
	defer q.store.mu.Unlock()
	q.places = nil
}

// A goroutine that is no longer needed has to end, and a call waits again before it has ended. However late its
// last look returns, and with whatever result, the queues that were opened meanwhile stay open and the new
// ticket stays.
func TestQueuesThatCloseLateLeaveNewQueuesOpen(t *testing.T) {
	for what, late := range map[string]error{"a look that fails": context.Canceled, "a look that shows the old tickets": nil} {
		t.Run(what, func(t *testing.T) {
			bubble(t, oneMachine, func(t *testing.T, w *site) {
				holder := w.process()
				held, _ := holder.hold("x", "holder")
				stop := holder.keep(held)
				s := &queueStore{Store: w.memory.Open()}
				p := &process{site: w, Backend: backendOn(w, s, claimed.WithOptions(w.next()))}
				defer func() { _ = p.Close(context.Background()) }()

				l := p.wait("x", "waiter")
				end := p.keep(l)
				ctx, cancel := context.WithCancel(t.Context())
				gaveUp := make(chan error, 1)
				go func() {
					_, err := p.Await(ctx, l)
					gaveUp <- err
				}()
				time.Sleep(time.Second)
				if old := s.tickets(0); len(old) != 1 {
					t.Fatalf("the waiter has tickets %v", old)
				}
				cancel()
				<-gaveUp
				time.Sleep(6 * time.Second) // no call waits for so long that the goroutine has to end

				turns := p.awaiting(l)
				time.Sleep(time.Second)
				ticket := s.tickets(1)
				if len(ticket) != 1 {
					t.Fatalf("the waiter has tickets %v in the queues that were opened again", ticket)
				}
				s.opened[0].late <- late
				synctest.Wait()
				s.read()
				time.Sleep(3 * time.Second)
				if n := s.read(); n != 0 {
					t.Errorf("the waiter asked %d times for itself, and has a ticket", n)
				}
				if now := s.tickets(1); !slices.Equal(now, ticket) {
					t.Errorf("the waiter had ticket %v, and now %v", ticket, now)
				}
				if old := s.tickets(0); len(old) != 0 {
					t.Errorf("tickets %v are left of the queues that were closed", old)
				}
				end()
				stop()
				holder.release(held)
				got := <-turns
				if got.err != nil {
					t.Fatal(got.err)
				}
				p.release(got.lease)
			})
		})
	}
}
