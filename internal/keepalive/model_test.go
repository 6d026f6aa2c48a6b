package keepalive

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// model is a Renewer that is too simple to be wrong: it handles one lease at a time, spells out every rule, and has no
// queue and no schedule. The test gives it the messages that were sent, with their times.
type model struct {
	drift  clock.Drift
	leases map[Lease]*modelLease
	sent   map[uint64]clock.Instant
	// forgotten reports whether a message is so old that no answer can change anything, unless it grants far more time.
	forgotten func(number uint64) bool
}

type modelLease struct {
	state    state
	first    clock.Instant // when the claim was first sent
	asked    time.Duration // the claimed TTL
	deadline clock.Instant
	newest   uint64  // the newest number acknowledged, or the newest number at the time of the claim
	held     int     // how many reports of Held are still expected; see step
	lost     []Cause // the reports of Lost that are still expected
	fresh    bool    // this step answered its claim
	retired  bool    // it must not be renewed
	failed   bool    // its release failed, and no request to resolve that is under way
}

func (m *model) over(now clock.Instant, l *modelLease) bool {
	return now.Raw >= l.deadline.Raw || now.Boot >= l.deadline.Boot
}

func (m *model) lose(l *modelLease, why Cause) {
	l.state = stateUnused
	l.lost = append(l.lost, why)
}

func (m *model) end(from clock.Instant, ttl time.Duration, until clock.Instant) clock.Instant {
	if until != (clock.Instant{}) {
		return until
	}
	return from.Add(m.drift.RelyRemote(ttl))
}

func (m *model) step(now clock.Instant, e Event) {
	switch e := e.(type) {
	case Queued:
		if l := m.leases[e.Lease]; l.state == stateClaiming || l.state == stateUnsettled {
			l.fresh, l.state, l.deadline = true, stateQueued, m.end(l.first, e.TTL, e.Until)
		}
	case Granted:
		switch l := m.leases[e.Lease]; l.state {
		case stateClaiming, stateUnsettled:
			l.fresh, l.state, l.deadline = true, stateHeld, m.end(l.first, e.TTL, e.Until)
			l.held++
		case stateQueued:
			if m.over(now, l) {
				break
			}
			l.state = stateHeld
			l.held++
			if l.deadline.Raw < e.Until.Raw && l.deadline.Boot < e.Until.Boot {
				l.deadline = e.Until
			}
		}
	case Refused:
		if l := m.leases[e.Lease]; l.state == stateClaiming || l.state == stateUnsettled {
			l.state = stateUnused
		}
	case Unknown:
		if l := m.leases[e.Lease]; l.state == stateClaiming {
			l.state = stateUnsettled
		}
	case Renewed:
		for _, a := range e.Answers {
			m.answer(now, e.Number, a)
		}
	case Ended:
		if l := m.leases[e.Lease]; l.state != stateUnused && l.state != stateReleasing {
			m.lose(l, EndReported)
		}
	case Retire:
		if l := m.leases[e.Lease]; l.state == stateHeld {
			l.retired = true
		}
	case Releasing:
		if l := m.leases[e.Lease]; l.state != stateUnused {
			l.state = stateReleasing
		}
	case Released:
		m.leases[e.Lease].state = stateUnused
	case ReleaseFailed:
		if l := m.leases[e.Lease]; l.state == stateReleasing {
			l.failed = true
		}
	}
	for _, l := range m.leases {
		if (l.state == stateQueued || l.state == stateHeld) && m.over(now, l) {
			if l.state == stateHeld && len(l.lost) == 0 && l.held == 1 {
				l.held = 2 // Held may have been reported, or the grant came too late for that
			}
			if l.fresh {
				m.lose(l, Void)
			} else {
				m.lose(l, Deadline)
			}
		}
		l.fresh = false
	}
}

func (m *model) answer(now clock.Instant, number uint64, a Answer) {
	l := m.leases[a.Lease]
	switch {
	case l.state != stateQueued && l.state != stateHeld:
	case m.over(now, l):
		m.lose(l, Deadline)
	case a.Outcome == Gone:
		m.lose(l, Vanished)
	case a.Outcome == Acknowledged && number > l.newest && !m.forgotten(number):
		l.newest, l.deadline = number, m.end(m.sent[number], a.TTL, a.Until)
	}
}
