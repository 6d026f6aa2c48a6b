package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// queueTests are about waiting in the queue of a name.
var queueTests = []test{
	{name: "FirstComeFirstServed", run: testFIFO},
	{name: "LeavingWaiterIsPassedOver", run: testLeave},
	{name: "SilentWaiterIsPassedOver", ends: true, run: testSilent},
	{name: "AwaitCanBeCancelledAndRepeated", run: testAwaitAgain},
	{name: "TheSameClaimTwiceIsOnePlace", run: testSamePlace},
	{name: "AwaitOutsideTheQueueIsLost", run: testAwaitGone},
	{name: "QueueListsWaitingClaims", run: testQueue},
}

// waiters makes n clients wait behind one another.
func (s *suite) waiters(name string, n int) ([]*claimer, []backend.Lease) {
	who := make([]*claimer, n)
	leases := make([]backend.Lease, n)
	for i := range who {
		who[i] = s.claimer(fmt.Sprint("w", i))
		l, g, err := who[i].Claim(s.Context(), who[i].request(name, true))
		if err != nil || g.Held || l == nil {
			s.Fatalf("waiter %d: %v, %+v, %v", i, l, g, err)
		}
		if g.Place != 0 && g.Place != i+1 {
			s.Errorf("waiter %d has place %d", i, g.Place)
		}
		if g.TTL < s.ttl {
			s.Errorf("waiter %d is granted a TTL of %v", i, g.TTL)
		}
		leases[i] = l
	}
	return who, leases
}

func testFIFO(s *suite) {
	a, name := s.claimer("a"), s.name("fifo")
	l, g := a.hold(name)
	who, leases := s.waiters(name, 3)
	if i := a.info(name); i.Waiting != 3 && i.Waiting != -1 {
		s.Errorf("3 wait, but Waiting is %d", i.Waiting)
	}
	last := g.Token
	a.release(l)
	for i := range who {
		got := who[i].await(leases[i])
		if got.Token <= last {
			s.Errorf("waiter %d has token %d after %d", i, got.Token, last)
		}
		if info := a.info(name); info.Token != got.Token || info.Holder.ID != who[i].who.ID {
			s.Errorf("it is the turn of %s: %+v", who[i].who.ID, info)
		}
		last = got.Token
		who[i].release(leases[i])
	}
}

func testLeave(s *suite) {
	a, name := s.claimer("a"), s.name("leave")
	l, _ := a.hold(name)
	who, leases := s.waiters(name, 3)
	who[0].release(leases[0])
	who[1].release(leases[1])
	who[1].release(leases[1])
	a.release(l)
	who[2].await(leases[2])
	who[2].release(leases[2])
	if i := a.info(name); i.Held || i.Waiting > 0 {
		s.Errorf("all have gone: %+v", i)
	}
}

func testSilent(s *suite) {
	a, name := s.claimer("a"), s.name("silent")
	l, _ := a.hold(name)
	who, leases := s.waiters(name, 2)
	// The holder and the second waiter renew, the first does not.
	for end := time.Now().Add(s.longest() + s.config.Slack); time.Now().Before(end); time.Sleep(s.ttl / 4) {
		a.renew(l)
		who[1].renew(leases[1])
	}
	s.is("the silent one renews", who[0].renew(leases[0])[0].Err, backend.ErrLost)
	a.release(l)
	who[1].await(leases[1])
}

func testAwaitAgain(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("again")
	l, _ := a.hold(name)
	w := b.wait(name)
	ctx, cancel := context.WithTimeout(s.Context(), s.short/5)
	defer cancel()
	_, err := b.Await(ctx, w)
	s.is("Await", err, context.DeadlineExceeded)
	b.renew(w)
	a.renew(l)
	turn := make(chan backend.Grant, 1)
	go func() {
		g, err := b.Await(s.Context(), w)
		s.kind("Await", err)
		turn <- g
	}()
	time.Sleep(s.short / 10)
	a.release(l)
	if g := <-turn; !g.Held {
		s.Errorf("taken up again: %+v", g)
	}
	if g := b.await(w); !g.Held {
		s.Errorf("asked once more: %+v", g)
	}
}

func testSamePlace(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("place")
	l, g := a.hold(name)
	claim := b.request(name, true)
	for range 2 {
		if _, g, err := b.Claim(s.Context(), claim); err != nil || g.Held {
			s.Fatalf("%+v, %v", g, err)
		}
	}
	a.release(l)
	w, again, err := b.Claim(s.Context(), claim)
	if err != nil || !again.Held || again.Token <= g.Token {
		s.Fatalf("repeated when it is its turn: %+v, %v", again, err)
	}
	b.release(w)
	if i := a.info(name); i.Held || i.Waiting > 0 {
		s.Errorf("one claim sent three times, released once: %+v", i)
	}
}

func testAwaitGone(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("gone")
	a.hold(name)
	w := b.wait(name)
	b.release(w)
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	_, err := b.Await(ctx, w)
	s.is("Await after leaving", err, backend.ErrLost)
	if errors.Is(err, context.DeadlineExceeded) {
		s.Error("and it took its time")
	}
}

// testQueue is for the few stores that list their waiting claims.
func testQueue(s *suite) {
	a, name := s.claimer("a"), s.name("queue")
	lister, err := backend.Can[backend.QueueLister](a.Backend)
	if err != nil {
		s.Skip(err)
	}
	list := func(limit int, want ...string) {
		s.Helper()
		waiting, err := lister.Queue(s.Context(), name, limit)
		var got []string
		for _, w := range waiting {
			got = append(got, w.Holder.ID)
			if w.Foreign || w.Preferred || w.Holder.Card.Host != "host-of-"+w.Holder.ID || w.Holder.Card.Text != "text of "+w.Holder.ID {
				s.Errorf("a waiting claim is listed as %+v", w)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			s.Errorf("up to %d waiting claims: %v and %v, want %v", limit, got, err, want)
		}
	}
	list(9)
	l, _ := a.hold(name)
	list(9)
	who, leases := s.waiters(name, 3)
	list(9, "w0", "w1", "w2")
	list(2, "w0", "w1")
	list(0)
	who[0].release(leases[0])
	list(9, "w1", "w2")
	a.release(l)
	who[1].await(leases[1])
	list(9, "w2")
}
