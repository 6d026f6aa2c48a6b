package claimed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
)

// rankedStore is a queueStore whose tickets have priorities.
type rankedStore struct{ *queueStore }

func (rankedStore) Prioritizes() bool { return true }

func (s rankedStore) Queues(context.Context) (claim.Queues, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &openQueues{store: s.queueStore}
	s.opened = append(s.opened, q)
	return rankedQueues{q}, nil
}

// Prefer implements [claim.Preferrer]: the process has the only ticket.
func (s rankedStore) Prefer(_ context.Context, _, holder string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.opened[len(s.opened)-1].places
	if holder != "chosen" || len(places) == 0 {
		return false, nil
	}
	places[0] = claim.FrontPlace - 1
	return true, nil
}

type rankedQueues struct{ *openQueues }

// JoinWith implements [claim.PriorityQueues]. Each priority has a thousand places.
func (q rankedQueues) JoinWith(ctx context.Context, name string, t claim.Ticket) (claim.Standing, error) {
	s, err := q.Join(ctx, name)
	q.store.mu.Lock()
	defer q.store.mu.Unlock()
	if err == nil {
		s.Place -= 1000 * int64(t.Priority)
		q.places[len(q.places)-1] = s.Place
		s.Head = s.Place
	}
	return s, err
}

// The ticket of a process has the priority of its first waiter, and the waiters in the process have the name by priority,
// and then in the order of their claims.
func TestTicketHasThePriorityOfTheFirstWaiter(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		holder := w.process()
		held, _ := holder.hold("x", "holder")
		stop := holder.keep(held)
		s := rankedStore{&queueStore{Store: w.memory.Open()}}
		p := &process{site: w, Backend: backendOn(w, s, claimed.WithOptions(w.next()))}
		defer func() { _ = p.Close(context.Background()) }()
		if !p.Limits().Priorities {
			t.Error("the backend has no priorities")
		}
		var turns []<-chan turn
		for i, c := range []struct {
			priority backend.Priority
			ticket   int64
		}{{0, 1}, {5, 2 - 5000}, {-1, 2 - 5000}, {5, 2 - 5000}, {6, 3 - 6000}} {
			q := undecided("x", string(rune('a'+i)), true)
			q.Priority = c.priority
			l, g, err := p.Claim(t.Context(), q)
			if err != nil || g.Held {
				t.Fatalf("%+v, %v", g, err)
			}
			turns = append(turns, p.awaiting(l))
			time.Sleep(3 * time.Second)
			if now := s.tickets(0); !slices.Equal(now, []int64{c.ticket}) {
				t.Errorf("with waiter %d the process has tickets %v, want %d", i, now, c.ticket)
			}
		}
		stop()
		holder.release(held)
		last := backend.Token(0)
		for _, i := range []int{4, 1, 3, 0, 2} {
			got := <-turns[i]
			if got.err != nil || got.grant.Token <= last {
				t.Fatalf("waiter %d: %+v, %v, after token %d", i, got.grant, got.err, last)
			}
			last = got.grant.Token
			time.Sleep(time.Second)
			synctest.Wait()
			for j, other := range turns {
				if len(other) > 0 {
					t.Errorf("%d has the name together with %d", j, i)
				}
			}
			p.release(got.lease)
		}
	})
}

// A ticket that was moved to the front stays the ticket of its process, also when another waiter of the process comes first.
func TestTicketThatWasMovedIsKept(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		holder := w.process()
		held, _ := holder.hold("x", "holder")
		stop := holder.keep(held)
		s := rankedStore{&queueStore{Store: w.memory.Open()}}
		p := &process{site: w, Backend: backendOn(w, s, claimed.WithOptions(w.next()))}
		defer func() { _ = p.Close(context.Background()) }()
		wait := func(id string, priority backend.Priority) <-chan turn {
			q := undecided("x", id, true)
			q.Priority = priority
			l, _, err := p.Claim(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return p.awaiting(l)
		}
		first := wait("chosen", 0)
		time.Sleep(time.Second)
		if err := p.Prefer(t.Context(), "x", "other"); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("a holder for which no process waits: %v", err)
		}
		if err := p.Prefer(t.Context(), "x", "chosen"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		second := wait("chosen", 5)
		time.Sleep(3 * time.Second)
		if now := s.tickets(0); !slices.Equal(now, []int64{claim.FrontPlace - 1}) {
			t.Errorf("the process has tickets %v", now)
		}
		stop()
		holder.release(held)
		got := <-second
		if got.err != nil || !got.grant.Held {
			t.Fatalf("%+v, %v", got.grant, got.err)
		}
		time.Sleep(time.Second)
		if now := s.tickets(0); len(now) != 1 || claim.IsPreferred(now[0]) {
			t.Errorf("after its turn the process has tickets %v", now)
		}
		p.release(got.lease)
		if got = <-first; got.err != nil {
			t.Fatal(got.err)
		}
		p.release(got.lease)
	})
}

// deniedStore is a rankedStore whose user may not write tickets, which it finds out at the first attempt.
type deniedStore struct{ rankedStore }

func (deniedStore) Prefer(context.Context, string, string) (bool, error) {
	return false, fmt.Errorf("%w: permission denied for the table of tickets", backend.ErrUnsupported)
}

func TestPreferWithoutRightsIsUnsupported(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		s := deniedStore{rankedStore{&queueStore{Store: w.memory.Open()}}}
		p := &process{site: w, Backend: backendOn(w, s, claimed.WithOptions(w.next()))}
		defer func() { _ = p.Close(context.Background()) }()
		var u *backend.UnsupportedError
		err := p.Prefer(t.Context(), "x", "chosen")
		if !errors.As(err, &u) || u.What != backend.Prefer || u.Backend != p.Scheme() || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("Prefer: %v", err)
		}
	})
}
