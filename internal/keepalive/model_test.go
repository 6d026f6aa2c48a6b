package keepalive

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// model is a holder that is too simple to be wrong: one lease at a time, every rule written out, and no
// queue, numbers or rhythm. It is told what was sent and when.
type model struct {
	drift  clock.Drift
	leases map[Lease]*modelLease
	sent   map[uint64]clock.Instant
	// forgotten messages are so old that no answer is of use, unless it grants far more than before.
	forgotten func(number uint64) bool
}

type modelLease struct {
	state    state
	first    clock.Instant // when the claim was first sent
	asked    time.Duration
	deadline clock.Instant
	newest   uint64 // the newest number acknowledged, or the newest there was at the claim
	held     int    // how often it was reported
	lost     []Cause
	fresh    bool // its claim was answered just now
	failed   bool // to be released, and nobody is asked at present
}

func (m *model) over(now clock.Instant, l *modelLease) bool {
	return now.Raw >= l.deadline.Raw || now.Boot >= l.deadline.Boot
}

func (m *model) lose(l *modelLease, why Cause) {
	l.state = unused
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
		if l := m.leases[e.Lease]; l.state == claiming || l.state == unsettled {
			l.fresh, l.state, l.deadline = true, waiting, m.end(l.first, e.TTL, e.Until)
		}
	case Granted:
		switch l := m.leases[e.Lease]; l.state {
		case claiming, unsettled:
			l.fresh, l.state, l.deadline = true, held, m.end(l.first, e.TTL, e.Until)
			l.held++
		case waiting:
			if m.over(now, l) {
				break
			}
			l.state = held
			l.held++
			if l.deadline.Raw < e.Until.Raw && l.deadline.Boot < e.Until.Boot {
				l.deadline = e.Until
			}
		}
	case Refused:
		if l := m.leases[e.Lease]; l.state == claiming || l.state == unsettled {
			l.state = unused
		}
	case Unknown:
		if l := m.leases[e.Lease]; l.state == claiming {
			l.state = unsettled
		}
	case Renewed:
		for _, a := range e.Answers {
			m.answer(now, e.Number, a)
		}
	case Ended:
		if l := m.leases[e.Lease]; l.state != unused && l.state != releasing {
			m.lose(l, Told)
		}
	case Releasing:
		if l := m.leases[e.Lease]; l.state != unused {
			l.state = releasing
		}
	case Released:
		m.leases[e.Lease].state = unused
	case ReleaseFailed:
		if l := m.leases[e.Lease]; l.state == releasing {
			l.failed = true
		}
	}
	for _, l := range m.leases {
		if (l.state == waiting || l.state == held) && m.over(now, l) {
			if l.state == held && len(l.lost) == 0 && l.held == 1 {
				l.held = 2 // it may have been told, or it came too late for that
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
	case l.state != waiting && l.state != held:
	case m.over(now, l):
		m.lose(l, Deadline)
	case a.Outcome == Gone:
		m.lose(l, Vanished)
	case a.Outcome == Acknowledged && number > l.newest && !m.forgotten(number):
		l.newest, l.deadline = number, m.end(m.sent[number], a.TTL, a.Until)
	}
}
