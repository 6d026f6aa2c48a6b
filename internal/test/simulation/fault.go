package simulation

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// The kinds of faults.
const (
	isolation = iota
	deafness  // a member receives nothing
	unheard   // the other members receive nothing from a member
	division
	clog // messages wait, and then arrive together
	powerCut
	kill
	pause
	suspend
	slew
	stall        // of a disk
	diskLoss     // a write fails
	order        // to hand over
	cleanStop    // a member stops as on SIGTERM
	lonely       // a leader keeps one follower, then loses it while the follower restarts
	everyone     // all members restart
	silence      // a client pauses
	reshaping    // a member is added, promoted or removed; only where machines are spare
	leaderLosses // a leader is lost, and the next ones just before the end of a lease without renewals
	faultKinds

	// drawnKinds is the number of kinds that any world may draw. The others need a stress of their own.
	drawnKinds = reshaping
)

var faultNames = [faultKinds]string{
	"isolation", "deafness", "unheard", "division", "clog", "power cut", "kill", "pause", "suspend", "slew", "stall",
	"disk loss", "order to hand over", "clean stop", "lonely leader", "restart of everyone", "silent client", "change of the members", "several leaders lost",
}

// A fault is one planned fault.
type fault struct {
	at     time.Duration
	kind   int
	lasts  time.Duration
	target int  // index of a member or client
	leader bool // hit the leader of that moment instead of target
	bits   int  // random bits: the halves of a division, or choices
}

// makePlan draws all faults before the world begins.
func (w *world) makePlan() {
	r := w.dice.faults
	for kind, rate := range w.faults {
		n := int(rate * w.length.Seconds())
		for range n {
			w.plan = append(w.plan, fault{
				at: w.length/16 + w.upTo(r, w.length/16*15), kind: kind, lasts: 20*time.Millisecond + w.lasting(), target: r.IntN(8),
				leader: chance(r, w.leaderBias), bits: r.IntN(1 << w.swarm.members),
			})
		}
	}
	slices.SortStableFunc(w.plan, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	for _, f := range w.plan {
		w.after(f.at, func() { w.inject(f) })
	}
}

// lasting draws the length of a fault: mostly about the length of a promise.
func (w *world) lasting() time.Duration {
	r := w.dice.faults
	switch r.IntN(4) {
	case 0:
		return w.upTo(r, 200*time.Millisecond)
	case 1:
		return w.upTo(r, 4*time.Second)
	}
	return 500*time.Millisecond + w.upTo(r, time.Second)
}

// inject makes a fault happen.
func (w *world) inject(f fault) {
	if w.calm {
		return
	}
	m := w.members[f.target%len(w.members)]
	if leader := w.leader(); f.leader && leader != nil {
		m = leader
	}
	w.note(m.name, faultNames[f.kind], uint64(f.lasts), uint64(f.bits))
	switch f.kind {
	case isolation, deafness, unheard, division, clog:
		w.part(m, f)
	case powerCut, kill:
		m.end(f.kind == powerCut)
		w.after(f.lasts/2, m.start)
	case pause:
		m.stopped = max(m.stopped, w.now+int64(f.lasts))
	case suspend, slew:
		m.disturb(f)
	case stall:
		m.slow = max(m.slow, w.now+int64(f.lasts))
	case diskLoss:
		m.broken = m.broken || m.up
	case order:
		m.handOver(f)
	case reshaping:
		w.change(m, f)
	case cleanStop:
		m.leave(f)
	case lonely:
		if len(w.members) > 1 {
			w.lonely(m, f)
		}
	case everyone:
		for _, m := range w.members {
			if m.spawned {
				m.end(f.bits&1 == 0)
				w.after(w.upTo(w.dice.faults, f.lasts/2), m.start)
			}
		}
		w.mark("all members restarted")
	case silence:
		if len(w.clients) > 0 {
			w.clients[f.target%len(w.clients)].still = w.now + int64(f.lasts)
		}
	case leaderLosses:
		w.part(m, fault{kind: isolation, lasts: f.lasts})
		w.awaitLapse(f, leaderLossesInARow)
	}
}

const (
	// leaderLossesInARow is how many leaders are lost after the first, and lapseWatch is how often the world checks whether it is
	// time.
	leaderLossesInARow = 3
	lapseWatch         = 5 * time.Millisecond
	// lapseAhead is how long before the end of a lease its leader is lost.
	lapseAhead = 40 * time.Millisecond
)

// awaitLapse isolates the leader again as soon as a lease is about to end that outlived an earlier leader. No member can
// end the lease then.
func (w *world) awaitLapse(f fault, left int) {
	if w.calm || left == 0 {
		return
	}
	if leader := w.leader(); leader != nil && w.lapsing() {
		w.note(leader.name, "is isolated before a lease ends", uint64(left), 0)
		w.part(leader, fault{kind: isolation, lasts: f.lasts})
		left--
	}
	w.after(lapseWatch, func() { w.awaitLapse(f, left) })
}

// lapsing reports whether a lease is about to end that the present leader has neither granted nor renewed.
func (w *world) lapsing() bool {
	for _, l := range w.facts.leases {
		if due, ok := w.facts.due(l); ok && l.stay.leadership != 0 && l.stay.leadership < w.now && due > w.now && due-w.now < int64(lapseAhead) {
			return true
		}
	}
	return false
}

// part cuts or clogs the links of a member, or divides the cluster.
func (w *world) part(m *member, f fault) {
	for i := range w.members {
		switch f.kind {
		case isolation:
			w.network.cutFor(i, m.index, f.lasts, false)
			w.network.cutFor(m.index, i, f.lasts, false)
		case deafness:
			w.network.cutFor(i, m.index, f.lasts, false)
		case unheard:
			w.network.cutFor(m.index, i, f.lasts, false)
		case clog:
			w.network.cutFor(m.index, i, f.lasts, true)
		case division:
			for j := range w.members {
				if f.bits>>i&1 != f.bits>>j&1 {
					w.network.cutFor(i, j, f.lasts, false)
				}
			}
		}
	}
}

// disturb slews or suspends a machine. One of its two clocks always keeps its rate over the length of a promise, as the
// model of time assumes.
func (m *member) disturb(f fault) {
	w, c := m.w, m.clocks
	if w.now < c.calm {
		return
	}
	c.calm = w.now + int64(f.lasts+3*time.Second)
	if f.kind == slew {
		rate := int64(80_000)
		if f.bits&1 == 0 {
			rate = -rate
		}
		c.boot.setRate(w.now, rate)
	} else {
		c.raw.setRate(w.now, standstill)
		m.stopped = max(m.stopped, w.now+int64(f.lasts))
		w.mark("a machine was suspended")
	}
	w.after(f.lasts, func() { c.heal(w.now) })
}

// lonely isolates a leader together with one follower. Then it cuts the link between the two and restarts the follower.
func (w *world) lonely(leader *member, f fault) {
	follower := w.members[(leader.index+1+f.target%(len(w.members)-1))%len(w.members)]
	for i := range w.members {
		if i != follower.index {
			w.network.cutFor(i, leader.index, f.lasts+2*time.Second, false)
			w.network.cutFor(leader.index, i, f.lasts+2*time.Second, false)
		}
	}
	w.after(f.lasts, func() {
		if w.calm {
			return
		}
		w.network.cutFor(follower.index, leader.index, 2*time.Second, false)
		w.network.cutFor(leader.index, follower.index, 2*time.Second, false)
		follower.end(f.bits&1 == 0)
		w.after(w.upTo(w.dice.faults, 20*time.Millisecond), follower.start)
		w.mark("a leader lost its last follower while that restarted")
	})
}

// handOver orders a member to hand over.
func (m *member) handOver(f fault) {
	if !m.up {
		return
	}
	w := m.w
	w.calls++
	to := uint64(0)
	if f.bits&1 == 0 {
		to = uint64(f.target%len(w.members)) + 1
	}
	m.ordered = append(m.ordered, w.calls)
	m.event(replica.HandOver{ID: w.calls, To: to})
}

// leave stops a member cleanly: it hands over if it leads, and then its process ends.
func (m *member) leave(f fault) {
	if !m.up || m.leaving != 0 {
		return
	}
	w := m.w
	w.calls++
	m.leaving = w.calls
	m.event(replica.Leave{ID: w.calls})
	life := m.life
	w.after(f.lasts+3*time.Second, func() {
		if m.life == life {
			m.end(false)
			m.start()
		}
	})
}

// left ends the process of a member whose leave is done.
func (m *member) left() {
	m.w.mark("a member stopped cleanly")
	m.later(0, func() { m.end(false) })
}
