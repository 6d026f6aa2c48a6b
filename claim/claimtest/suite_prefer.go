package claimtest

import (
	"math"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// joinFor adds a ticket for a holder.
func (q *queued) joinFor(name, holder string, p backend.Priority) {
	q.Helper()
	ranked, ok := q.Queues.(claim.PriorityQueues)
	if !ok {
		q.Fatal("the queues have no priorities")
	}
	if is, err := ranked.JoinWith(q.Context(), name, claim.Ticket{Priority: p, Holder: holder}); err != nil || is.Preferred {
		q.Fatalf("%s joins: %+v, %v", holder, is, err)
	}
}

// preferTest is a queue of five processes, for holders a to e.
type preferTest struct {
	*suite
	store claim.Preferrer
	all   []*queued
}

// prefer moves the ticket for a holder, or finds none.
func (p *preferTest) prefer(holder string, want bool) {
	p.Helper()
	if found, err := p.store.Prefer(p.Context(), "jobs/x", holder); found != want || err != nil {
		p.Errorf("Prefer(%q): %v, %v", holder, found, err)
	}
}

// standing returns that of the only ticket of process i.
func (p *preferTest) standing(i int) claim.Standing {
	p.Helper()
	is := p.all[i].look(claim.Look{For: briefly})
	if len(is) != 1 || (is[0].Ahead == 0) != (is[0].Head == is[0].Place) {
		p.Fatalf("ticket %d: %+v", i, is)
	}
	return is[0]
}

// head fails unless the ticket of that process is the head, and only those of the preferred processes are preferred.
func (p *preferTest) head(want int, preferred ...bool) {
	p.Helper()
	for i := range p.all {
		if is := p.standing(i); (is.Ahead == 0) != (i == want) || is.Preferred != (i < len(preferred) && preferred[i]) {
			p.Errorf("ticket %d, where %d is the head: %+v", i, want, is)
		}
	}
}

// A ticket that was preferred is before all others, whatever their priorities, until it is left or passed over. That
// changes no record.
func testTicketsPreferred(s *suite) {
	store, ok := s.open().(claim.Preferrer)
	if !ok || !store.Prioritizes() {
		s.Skip("this store moves no tickets")
	}
	r := s.held("jobs/x")
	p := &preferTest{suite: s, store: store}
	for i, priority := range []backend.Priority{0, 9, 0, -4, math.MaxInt16} {
		p.all = append(p.all, s.newQueued(s.namespace))
		p.all[i].joinFor("jobs/x", string(rune('a'+i)), priority)
	}
	p.head(4)
	for _, stranger := range []string{"", "z", "aa"} {
		p.prefer(stranger, false)
	}
	for range 2 {
		p.prefer("d", true)
		p.head(3, false, false, false, true)
	}
	p.prefer("c", true)
	p.head(2, false, false, true, true)
	if err := p.all[1].Pass(s.Context(), "jobs/x", p.standing(1).Head); err != nil {
		s.Fatal(err)
	}
	for _, i := range []int{0, 1, 4} {
		if is := p.standing(i); is.Ahead == 0 || is.Head != p.standing(0).Head {
			s.Errorf("ticket %d, when the first was passed over: %+v", i, is)
		}
	}
	if is := p.standing(3); is.Ahead != 0 || !is.Preferred {
		s.Errorf("the next, when the first was passed over: %+v", is)
	}
	if is := p.all[2].look(claim.Look{For: briefly}); len(is) > 0 {
		p.all[2].leave("jobs/x", is[0].Place, false)
	}
	p.all[2].joinFor("jobs/x", "c", 0)
	p.head(3, false, false, false, true)
	p.all[3].leave("jobs/x", p.standing(3).Place, true) // it has the name
	p.all[3].checkNoTicket("the preferred one, which has the name")
	p.all = append(p.all[:3], p.all[4])
	p.head(3)
	s.same("after all that", s.mustGet(s.open(), "jobs/x").Record, r)
}
