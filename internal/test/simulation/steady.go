package simulation

import (
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

const (
	// recovery bounds how long a cluster takes to recover after the last fault. Late messages arrive in the first three
	// seconds, members hold off votes, and then campaign one after the other.
	recovery = 6 * time.Second
	// steadiness is how long the world then requires a steady leader. rest is the least time for members to reach the same
	// state.
	steadiness = 2 * time.Second
	rest       = time.Second
)

// settle ends all faults, and checks that the cluster recovers (I10).
func (w *world) settle() {
	w.calm = true
	w.network.heal()
	for _, m := range w.members {
		m.clocks.heal(w.now)
		m.slow, m.stopped, m.workDue = 0, 0, false
		if m.broken || m.leaving != 0 {
			m.end(true)
		}
		m.start()
		if len(m.inbox) > 0 {
			m.workAfter(0)
		}
	}
	w.stumble, w.hesitate = 0, 0
	for _, c := range w.clients {
		c.still = 0
	}
	w.until(w.length + recovery)
	if w.failure != nil {
		return
	}
	leader := w.leader()
	if leader == nil || !leader.replica.Authority().Holds(leader.clocks.now(w)) {
		w.fail("when nothing is wrong there is a leader with authority (I10)", "%v after the last fault: %s", recovery, w.situation())
		return
	}
	w.checkReady()
	w.steady = leader
	w.until(w.length + recovery + steadiness)
	w.over = true
	end := w.length + recovery + steadiness
	for i := 0; w.failure == nil && (i < 10 || i < 40 && !w.even()); i++ {
		end += rest / 10
		w.until(end)
	}
	if w.failure == nil {
		w.checkEnd()
	}
}

// checkReady checks that every member is ready after the faults (P28).
func (w *world) checkReady() {
	for _, m := range w.listed() {
		if now := m.clocks.now(w); m.up && now.After(m.replica.Ready()) {
			w.fail("when nothing is wrong every member is ready (P28)", "%s was ready until %v, and it is %v: %s", m.name, m.replica.Ready(), now, w.situation())
		}
	}
}

// checkSteady checks after every event that the steady leader keeps its authority.
func (w *world) checkSteady(valid *member) {
	if w.steady != nil && valid != w.steady {
		w.fail("the authority of a healthy leader never lapses (I10)", "%s led after the faults had stopped: %s", w.steady.name, w.situation())
	}
}

// even reports whether all members have applied the same index.
func (w *world) even() bool {
	for _, m := range w.listed() {
		if m.replica.Applied() != w.listed()[0].replica.Applied() {
			return false
		}
	}
	return true
}

// checkEnd compares all members at the end.
func (w *world) checkEnd() {
	first := w.listed()[0]
	for _, m := range w.listed() {
		if m.replica.Applied() != first.replica.Applied() {
			w.fail("members come to the same state (I10)", "%s has applied %d and %s %d: %s", first.name, first.replica.Applied(), m.name, m.replica.Applied(), w.situation())
			return
		}
		w.facts.compareStates(m)
		if one, other := first.hashAll(), m.hashAll(); one != other {
			w.fail("the same state at the same index (I5)", "at index %d %s has keys %s and %s has %s", m.replica.Applied(), first.name, one, m.name, other)
		}
	}
	if revision := first.replica.Store().Revision(); revision < w.facts.floor {
		w.fail("what is acknowledged is there (I6)", "a client knows of revision %d, and at the end it is %d", w.facts.floor, revision)
	}
	w.checkForgotten()
	w.checkAudit()
}

// checkForgotten checks that leases without renewals have ended.
func (w *world) checkForgotten() {
	leader := w.steady
	for _, l := range w.facts.leases {
		if _, there := leader.replica.Lessor().Lookup(l.id); there {
			w.facts.checkOverstay(l, leader)
		}
	}
}

// situation describes the state of all members.
func (w *world) situation() string {
	text := ""
	for _, m := range w.members {
		text += m.situation() + "; "
	}
	return text
}

func (m *member) situation() string {
	if !m.up {
		return m.name + " is down"
	}
	leader, term := m.replica.Leader()
	a := m.replica.Authority()
	return fmt.Sprintf("%s follows m%d in term %d, serves %v, has applied %d of %d, authority in term %d until %v at %v",
		m.name, leader, term, m.replica.Serving(), m.replica.Applied(), m.replica.Last(), a.Term, a.End, m.clocks.now(m.w))
}

// answerOrder takes the answer to an order to hand over.
func (m *member) answerOrder(reply replica.Reply) {
	switch {
	case reply.Err == nil:
		m.w.mark("a leader handed over")
	default:
		m.w.mark("an order to hand over failed")
	}
}
