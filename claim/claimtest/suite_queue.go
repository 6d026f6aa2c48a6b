package claimtest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

var queueTests = []test{
	{"TicketsAreInOrder", Queue, testTicketsInOrder},
	{"TicketsHavePriorities", Queue, testTicketPriorities},
	{"TicketsArePreferred", Queue, testTicketsPreferred},
	{"TicketsRace", Queue, testTicketsRace},
	{"TicketsAreSeen", Queue, testTicketsSeen},
	{"TicketsTouchNoRecord", Queue, testTicketsTouchNoRecord},
	{"TicketsOfANamespace", Queue, testTicketsOfNamespace},
	{"LeaveDeletesTickets", Queue, testTicketsLeft},
	{"QueuesClose", Queue, testQueuesClose},
	{"LookEndsAtTheTurn", Queue, testLookEndsAtTurn},
	{"LookPassesTheHeadOver", Queue, testLookPassesHead},
	{"LookEnds", Queue, testLookEnds},
	{"LookSeesNewTickets", Queue, testLookSeesNewTickets},
	{"LookAtADamagedRecord", Queue, testLookAtDamage},
}

const (
	// briefly is a look that shows the present standings.
	briefly = time.Millisecond
	// atLength is a look that ends because of what it sees.
	atLength = 20 * time.Second
)

// queued is a process that waits in queues.
type queued struct {
	*suite
	claim.Queues
	store claim.Store
}

// newQueued returns a process of its own, whose queues are closed when the test ends.
func (s *suite) newQueued(namespace string) *queued {
	s.Helper()
	store := s.openIn(namespace, false)
	queues, err := as[claim.Queuer](s, store, Queue).Queues(s.Context())
	if err != nil {
		s.Fatalf("Queues: %v", err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		queues.Close(ctx)
	})
	return &queued{s, queues, store}
}

// join adds a ticket and returns its place.
func (q *queued) join(name string) int64 {
	q.Helper()
	is, err := q.Join(q.Context(), name)
	if err != nil {
		q.Fatalf("Join(%q): %v", name, err)
	}
	if is.Name != name || is.Place == 0 || is.Err != nil || is.Found.Record.Name != name || (is.Ahead == 0) != (is.Head == is.Place) {
		q.Fatalf("Join(%q): %+v", name, is)
	}
	return is.Place
}

func (q *queued) leave(name string, place int64, before bool) {
	q.Helper()
	if err := q.Leave(q.Context(), name, place, before); err != nil {
		q.Fatalf("Leave(%q, %d, %v): %v", name, place, before, err)
	}
}

func (q *queued) look(l claim.Look) []claim.Standing {
	q.Helper()
	all, err := q.Look(q.Context(), l)
	if err != nil {
		q.Fatalf("Look: %v", err)
	}
	return all
}

// checkStanding fails unless the process has one ticket, at that place behind that head.
func (q *queued) checkStanding(what string, place, head int64) {
	q.Helper()
	all := q.look(claim.Look{For: briefly})
	if len(all) != 1 || all[0].Place != place || all[0].Head != head || (all[0].Ahead == 0) != (head == place) {
		q.Errorf("%s: %+v; it should have place %d, and the head %d", what, all, place, head)
	}
}

// checkNoTicket fails if the process has a ticket.
func (q *queued) checkNoTicket(what string) {
	q.Helper()
	if all := q.look(claim.Look{For: briefly}); len(all) != 0 {
		q.Errorf("%s: %+v", what, all)
	}
}

// checkWaiting fails unless the process sees that others wait, or that none does.
func (q *queued) checkWaiting(what, name string, should bool) {
	q.Helper()
	if f := q.mustGet(q.store, name); f.Waiting != should {
		q.Errorf("%s: another process waits: %v", what, f.Waiting)
	}
}

// held creates a record with a holder, and vacant leaves it without one.
func (s *suite) held(name string) claim.Record { return s.put(s.open(), name) }

func (s *suite) vacant(r claim.Record) {
	s.Helper()
	old := r.Op
	r.Op, r.Holder = claim.NewOp(), ""
	if !s.mustSwap(s.open(), old, r) {
		s.Fatal("not made vacant")
	}
}

// Tickets have the order in which they were added. A ticket that is added again goes to the end.
func testTicketsInOrder(s *suite) {
	s.held("jobs/x")
	a, b, c := s.newQueued(s.namespace), s.newQueued(s.namespace), s.newQueued(s.namespace)
	first := a.join("jobs/x")
	second := b.join("jobs/x")
	third := c.join("jobs/x")
	a.checkStanding("the first", first, first)
	b.checkStanding("the second", second, first)
	c.checkStanding("the third", third, first)
	a.leave("jobs/x", first, false)
	b.checkStanding("the second, when the first has left", second, second)
	c.checkStanding("the third, when the first has left", third, second)
	last := a.join("jobs/x")
	if last <= third {
		s.Errorf("the one that came back has place %d, and was preceded by %d", last, third)
	}
	a.checkStanding("the one that came back", last, second)
	other := a.join("jobs/y")
	all := a.look(claim.Look{For: briefly})
	if len(all) != 2 || all[0].Name != "jobs/x" || all[0].Ahead == 0 || all[1].Name != "jobs/y" || all[1].Place != other || all[1].Ahead != 0 {
		s.Errorf("in two queues: %+v", all)
	}
}

// Tickets are ordered by priority, and those of one priority by when they came.
func testTicketPriorities(s *suite) {
	if store, ok := s.open().(claim.PriorityQueuer); !ok || !store.Prioritizes() {
		s.Skip("this store has no priorities")
	}
	s.held("jobs/x")
	priorities := []backend.Priority{0, 5, -1, 5, math.MaxInt16, math.MinInt16, 0}
	order := []int{4, 1, 3, 0, 6, 2, 5}
	all, places := make([]*queued, len(priorities)), make([]int64, len(priorities))
	for i, p := range priorities {
		all[i] = s.newQueued(s.namespace)
		ranked, ok := all[i].Queues.(claim.PriorityQueues)
		if !ok {
			s.Fatal("the queues have no priorities")
		}
		is, err := ranked.JoinWith(s.Context(), "jobs/x", claim.Ticket{Priority: p})
		if err != nil || is.Place == 0 {
			s.Fatalf("%d joins: %+v, %v", i, is, err)
		}
		places[i] = is.Place
	}
	check := func(order []int) {
		s.Helper()
		for ahead, i := range order {
			if is := all[i].look(claim.Look{For: briefly}); len(is) != 1 || (is[0].Ahead == 0) != (ahead == 0) || is[0].Head != places[order[0]] || is[0].Place != places[i] {
				s.Errorf("waiter %d with priority %d, behind %d: %+v", i, priorities[i], ahead, is)
			}
		}
	}
	check(order)
	all[3].leave("jobs/x", places[3], true) // it has the name, and others of its priority before it do not count
	check([]int{4, 0, 6, 2, 5})
	if err := all[0].Pass(s.Context(), "jobs/x", places[4]); err != nil {
		s.Fatal(err)
	}
	check([]int{0, 6, 2, 5})
	all[5].leave("jobs/x", places[5], true)
	check([]int{0, 6, 2})
}

// Processes that add tickets at the same moment get different places, and one is the head.
func testTicketsRace(s *suite) {
	s.held("jobs/x")
	all := make([]*queued, clients)
	for i := range all {
		all[i] = s.newQueued(s.namespace)
	}
	for range rounds {
		places := make([]int64, len(all))
		together(len(all), func(i int) {
			is, err := all[i].Join(s.Context(), "jobs/x")
			if err != nil {
				s.Errorf("Join: %v", err)
			}
			places[i] = is.Place
		})
		if s.Failed() {
			return
		}
		head := slices.Min(places)
		for i, q := range all {
			q.checkStanding("one of many", places[i], head)
		}
		for i, q := range all {
			q.leave("jobs/x", places[i], false)
		}
		if slices.Sort(places); len(slices.Compact(places)) != len(all) {
			s.Fatalf("two processes have one place: %v", places)
		}
	}
}

// Other clients see that a process waits. A write with Alone leaves the name to that process.
func testTicketsSeen(s *suite) {
	r := s.held("jobs/x")
	s.vacant(r)
	a, b := s.newQueued(s.namespace), s.newQueued(s.namespace)
	a.checkWaiting("before anybody waits", "jobs/x", false)
	place := b.join("jobs/x")
	a.checkWaiting("while another one waits", "jobs/x", true)
	a.checkWaiting("for another name", "jobs/y", false)
	r = s.mustGet(a.store, "jobs/x").Record
	next := record("jobs/x", r.Token+1)
	w := claim.Swap{Old: r.Op, Record: next, Owner: true, Keeps: true, Alone: true}
	if done, err := a.store.Swap(s.Context(), w); done || err != nil {
		s.Errorf("a write with Alone while others wait: %v, %v", done, err)
	}
	s.same("after it", s.mustGet(b.store, "jobs/x").Record, r)
	b.leave("jobs/x", place, false)
	a.checkWaiting("when nobody waits any longer", "jobs/x", false)
	if done, err := a.store.Swap(s.Context(), w); !done || err != nil {
		s.Errorf("a write with Alone while none waits: %v, %v", done, err)
	}
	b.join("jobs/x")
	w.Old, w.Record.Op, w.Keeps, w.Alone = next.Op, claim.NewOp(), false, false
	if done, err := a.store.Swap(s.Context(), w); !done || err != nil {
		s.Errorf("a write without Alone: %v, %v", done, err)
	}
}

// The queue is advisory: no call of it changes a record. A name without a record has a queue too.
func testTicketsTouchNoRecord(s *suite) {
	r := s.held("jobs/x")
	a, b := s.newQueued(s.namespace), s.newQueued(s.namespace)
	head := a.join("jobs/x")
	b.join("jobs/x")
	b.look(claim.Look{For: briefly})
	if err := b.Pass(s.Context(), "jobs/x", head); err != nil {
		s.Fatal(err)
	}
	b.leave("jobs/x", head+1000, true)
	s.same("after all that", s.mustGet(s.open(), "jobs/x").Record, r)
	b.leave("jobs/none", b.join("jobs/none"), true)
	if s.exists(b.store, "jobs/none") {
		s.Error("waiting has made a record")
	}
}

// Names of different namespaces have different queues.
func testTicketsOfNamespace(s *suite) {
	a, b := s.newQueued(s.namespace), s.newQueued(newNamespace())
	one, other := a.join("jobs/x"), b.join("jobs/x")
	b.checkWaiting("the own ticket apart", "jobs/y", false)
	a.checkStanding("in one namespace", one, one)
	b.checkStanding("in the other", other, other)
	b.leave("jobs/x", max(one, other), true)
	a.checkStanding("when the other has left", one, one)
	b.checkNoTicket("when it has left")
}

// Leave deletes a process's own ticket up to a place and, if it has claimed the name, those before it. A head
// that is passed over loses its ticket. Passing a place that is no longer the head removes no other ticket.
func testTicketsLeft(s *suite) {
	s.held("jobs/x")
	a, b, c := s.newQueued(s.namespace), s.newQueued(s.namespace), s.newQueued(s.namespace)
	first, second := a.join("jobs/x"), b.join("jobs/x")
	third := c.join("jobs/x")
	c.leave("jobs/x", second, false)
	c.checkStanding("a ticket behind the place that was left", third, first)
	b.leave("jobs/x", second, false)
	a.checkStanding("the ticket of another process, before", first, first)
	c.checkStanding("the ticket of another process, behind", third, first)
	b.checkNoTicket("its own")
	if err := c.Pass(s.Context(), "jobs/x", first); err != nil {
		s.Fatal(err)
	}
	a.checkNoTicket("the head that was passed over")
	c.checkStanding("the next", third, third)
	last := a.join("jobs/x")
	if err := a.Pass(s.Context(), "jobs/x", first); err != nil {
		s.Fatal(err)
	}
	c.checkStanding("the head, after one before it was passed over again", third, third)
	a.leave("jobs/x", last, true)
	c.checkNoTicket("one before a process that has claimed")
	a.checkNoTicket("and that process")
}

// Queues that are closed leave no ticket, for any name.
func testQueuesClose(s *suite) {
	s.held("jobs/x")
	a, b := s.newQueued(s.namespace), s.newQueued(s.namespace)
	for _, name := range []string{"jobs/x", "jobs/y"} {
		a.join(name)
		b.join(name)
	}
	a.Close(s.Context())
	all := b.look(claim.Look{For: briefly})
	if len(all) != 2 || all[0].Ahead != 0 || all[1].Ahead != 0 {
		s.Errorf("after the others were closed: %+v", all)
	}
	b.Close(s.Context())
	c := s.newQueued(s.namespace)
	for _, name := range []string{"jobs/x", "jobs/y"} {
		c.checkWaiting("after all were closed", name, false)
	}
}

// A look ends when a name for which the process is the head has no holder. It does not end for a turn that the
// process knows already.
func testLookEndsAtTurn(s *suite) {
	r := s.held("jobs/x")
	a := s.newQueued(s.namespace)
	place := a.join("jobs/x")
	done := make(chan []claim.Standing, 1)
	go func() {
		all, err := a.Look(s.Context(), claim.Look{For: atLength})
		if err != nil {
			s.Errorf("Look: %v", err)
		}
		done <- all
	}()
	s.vacant(r)
	all := <-done
	if len(all) != 1 || all[0].Place != place || all[0].Ahead != 0 || all[0].Found.Record.Held() || all[0].Found.Record.Token != r.Token {
		s.Fatalf("at its turn: %+v", all)
	}
	const long = 50 * time.Millisecond
	began := time.Now()
	if all := a.look(claim.Look{For: long, Known: []int64{place}}); len(all) != 1 || time.Since(began) < long {
		s.Errorf("after %v, with a turn that is known: %+v", time.Since(began), all)
	}
	if all := a.look(claim.Look{For: atLength}); len(all) != 1 || all[0].Ahead != 0 {
		s.Errorf("at a turn that has come before: %+v", all)
	}
}

// A look ends when the head has left a name without a holder unclaimed for too long. The head is passed over
// then, and finds that it has no ticket.
func testLookPassesHead(s *suite) {
	r := s.held("jobs/x")
	a, b := s.newQueued(s.namespace), s.newQueued(s.namespace)
	head, place := a.join("jobs/x"), b.join("jobs/x")
	done := make(chan []claim.Standing, 1)
	go func() {
		all, err := b.Look(s.Context(), claim.Look{For: atLength})
		if err != nil {
			s.Errorf("Look: %v", err)
		}
		done <- all
	}()
	s.vacant(r)
	all := <-done
	const least = 200 * time.Millisecond // less than the head's time, since clocks of databases are rounded
	if len(all) != 1 || all[0].Place != place || all[0].Head != head || all[0].Ahead == 0 || all[0].Found.Record.Held() || all[0].For < least {
		s.Fatalf("when the head does not claim: %+v", all)
	}
	if err := b.Pass(s.Context(), "jobs/x", head); err != nil {
		s.Fatal(err)
	}
	if all := b.look(claim.Look{For: atLength}); len(all) != 1 || all[0].Head != place || all[0].Ahead != 0 {
		s.Errorf("after the head was passed over: %+v", all)
	}
	a.checkNoTicket("the head that was passed over")
}

// A look ends after its time, and with its context.
func testLookEnds(s *suite) {
	s.held("jobs/x")
	a := s.newQueued(s.namespace)
	a.checkNoTicket("without a ticket")
	place := a.join("jobs/x")
	const long = 50 * time.Millisecond
	began := time.Now()
	if all := a.look(claim.Look{For: long}); len(all) != 1 || all[0].Place != place || !all[0].Found.Record.Held() || time.Since(began) < long {
		s.Errorf("after %v: %+v", time.Since(began), all)
	}
	ctx, cancel := context.WithTimeout(s.Context(), long)
	defer cancel()
	_, err := a.Look(ctx, claim.Look{For: atLength})
	if err == nil {
		s.Error("a look whose context has ended says nothing")
	}
	s.kind("a look whose context has ended", err)
}

// A look sees a ticket that is added meanwhile.
func testLookSeesNewTickets(s *suite) {
	s.held("jobs/x")
	a := s.newQueued(s.namespace)
	a.join("jobs/x")
	done := make(chan []claim.Standing, 1)
	go func() {
		all, err := a.Look(s.Context(), claim.Look{For: atLength})
		if err != nil {
			s.Errorf("Look: %v", err)
		}
		done <- all
	}()
	place := a.join("jobs/y") // which is vacant
	if all := <-done; len(all) != 2 || all[1].Name != "jobs/y" || all[1].Place != place || all[1].Ahead != 0 {
		s.Errorf("after a ticket was put: %+v", all)
	}
}

// A record that cannot be read is reported with the ticket, and the queue goes on.
func testLookAtDamage(s *suite) {
	if s.config.Damage == nil {
		s.Skip("the store under test offers no way to damage a record")
	}
	s.held("jobs/x")
	s.config.Damage(s, s.namespace, "jobs/x")
	a := s.newQueued(s.namespace)
	is, err := a.Join(s.Context(), "jobs/x")
	if err != nil || is.Place == 0 || is.Found.Record.Name != "jobs/x" {
		s.Fatalf("Join: %+v, %v", is, err)
	}
	s.is("a ticket for it", is.Err, backend.ErrCorrupt)
	all := a.look(claim.Look{For: briefly})
	if len(all) != 1 || all[0].Name != "jobs/x" || all[0].Place != is.Place || all[0].Found.Record.Name != "jobs/x" {
		s.Fatalf("a look at it: %+v", all)
	}
	s.is("a look at it", all[0].Err, backend.ErrCorrupt)
}
