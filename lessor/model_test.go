package lessor

import (
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// model is a second, simple implementation of a lessor. It searches a list of leases from one end to the
// other, and never prunes its list of leaderships.
type model struct {
	leases      []*modelLease
	leaderships []Leadership
	checkpoints bool
	primary     bool
	term        uint64
	extend      time.Duration
	clears      []Ref
}

type modelLease struct {
	Record
	items                                           []string
	deadline                                        clock.Instant
	expiring, inDoubt, inFlight, queued, sent, long bool
}

func (m *model) find(id ID) *modelLease {
	for _, l := range m.leases {
		if l.ID == id {
			return l
		}
	}
	return nil
}

func (m *model) findRef(r Ref) *modelLease {
	if l := m.find(r.ID); l != nil && l.Generation == r.Generation {
		return l
	}
	return nil
}

func (m *model) remove(l *modelLease) {
	m.leases = slices.DeleteFunc(m.leases, func(other *modelLease) bool { return other == l })
}

func (m *model) checkpointOf(l *modelLease) (time.Duration, clock.Instant, bool) {
	if l.Checkpointed {
		return l.Remaining, l.Applied, true
	}
	if !m.checkpoints {
		return l.TTL, clock.Instant{}, false
	}
	for _, r := range m.leaderships {
		if r.Start > l.Cleared {
			return l.TTL, r.Applied, true
		}
	}
	return l.TTL, clock.Instant{}, false
}

func (m *model) grant(id ID, ttl time.Duration, at Position, now clock.Instant) error {
	switch {
	case id == NoLease:
		return ErrNotFound
	case ttl > MaxTTL:
		return ErrTTLTooLarge
	case ttl <= 0:
		return ErrInvalidTTL
	case m.find(id) != nil:
		return ErrExists
	}
	l := &modelLease{Record: Record{ID: id, Generation: at, TTL: ttl, Cleared: at}}
	if m.primary {
		l.deadline = now.Add(ttl)
	}
	m.leases = append(m.leases, l)
	return nil
}

func (m *model) expire(e Expiry, term uint64) bool {
	l := m.findRef(e.Ref)
	if l == nil {
		return false
	}
	if e.Term == term && l.Cleared <= e.DecidedAt && !l.Pinned {
		m.remove(l)
		return true
	}
	if m.primary && m.term == e.Term {
		l.expiring = false
	}
	return false
}

func (m *model) checkpoint(c Checkpoint, term uint64, now clock.Instant) bool {
	l := m.findRef(c.Ref)
	if l == nil {
		return false
	}
	if m.primary && m.term == c.Term {
		l.inFlight = false
	}
	if c.Term != term || l.Cleared > c.DecidedAt {
		return false
	}
	left, since, known := m.checkpointOf(l)
	from, sooner := now, since.Add(left-c.Remaining)
	if known && sooner.Raw <= now.Raw && sooner.Boot <= now.Boot {
		from = sooner
	}
	l.Checkpointed, l.Remaining, l.Applied = true, c.Remaining, from
	return true
}

func (m *model) clear(c Cleared, term uint64, at Position) bool {
	l := m.findRef(c.Ref)
	if l == nil {
		return false
	}
	own := m.primary && m.term == c.Term
	if c.Term != term {
		m.clearDropped(c)
		return false
	}
	if l.RenewalRefused {
		if own {
			l.queued, l.sent = false, false
		}
		return false
	}
	l.Cleared, l.Checkpointed, l.Remaining, l.Applied = at, false, 0, clock.Instant{}
	if own {
		l.inDoubt, l.inFlight, l.queued, l.sent = false, false, false, false
	}
	return true
}

func (m *model) clearDropped(c Cleared) {
	if l := m.findRef(c.Ref); l != nil && m.primary && m.term == c.Term && l.sent {
		l.sent, l.queued = false, true
		m.clears = append(m.clears, c.Ref)
	}
}

func (m *model) promote(extend time.Duration, now clock.Instant, term uint64) {
	m.demote()
	m.primary, m.term, m.extend = true, term, extend
	for _, l := range m.leases {
		left, from, ok := m.checkpointOf(l)
		if !ok {
			from = now
		}
		l.deadline, l.long = from.Add(left).Add(extend), true
	}
}

func (m *model) demote() {
	m.primary, m.term, m.extend, m.clears = false, 0, 0, nil
	for _, l := range m.leases {
		*l = modelLease{Record: l.Record, items: l.items}
	}
}

func (m *model) renew(id ID, now clock.Instant) (time.Duration, error) {
	l := m.find(id)
	switch {
	case !m.primary:
		return 0, ErrNotPrimary
	case l == nil:
		return 0, ErrNotFound
	case l.RenewalRefused:
		return 0, ErrRenewalRefused
	case l.expiring:
		return 0, ErrEnding
	}
	l.deadline, l.long = now.Add(l.TTL), false
	_, _, checkpointed := m.checkpointOf(l)
	switch {
	case !m.checkpoints:
		l.Checkpointed, l.Remaining, l.Applied = false, 0, clock.Instant{}
		return l.TTL, nil
	case l.queued || l.sent:
		return l.TTL, ErrClearing
	case checkpointed || l.inDoubt:
		l.queued = true
		m.clears = append(m.clears, l.Ref())
		return l.TTL, ErrClearing
	}
	return l.TTL, nil
}

func (r Record) Ref() Ref { return Ref{r.ID, r.Generation} }

// promised returns the deadline without the extension of Promote.
func (m *model) promised(l *modelLease) clock.Instant {
	if l.long {
		return l.deadline.Add(-m.extend)
	}
	return l.deadline
}

func (m *model) checkpointDue(l *modelLease, now clock.Instant) bool {
	if !m.checkpoints || l.Pinned || l.inFlight || l.queued || l.sent {
		return false
	}
	left := l.TTL - SilenceThreshold(l.TTL)
	if l.Checkpointed {
		if l.Remaining < time.Second {
			return false
		}
		left = l.Remaining / 2
	}
	return now.After(m.promised(l).Add(-left))
}

func (m *model) due(now clock.Instant, applied Position) (expiries []Expiry, checkpoints []Checkpoint, cleared []Cleared) {
	if !m.primary {
		return nil, nil, nil
	}
	for _, l := range m.leases {
		switch {
		case l.expiring || l.Pinned:
		case now.After(l.deadline):
			l.expiring, l.inDoubt = true, true
			expiries = append(expiries, Expiry{l.Ref(), m.term, applied})
		case m.checkpointDue(l, now):
			l.inFlight, l.inDoubt = true, true
			left := max(0, now.Until(m.promised(l)))
			checkpoints = append(checkpoints, Checkpoint{l.Ref(), m.term, applied, left})
		}
	}
	for _, ref := range m.clears {
		if l := m.findRef(ref); l != nil && l.queued {
			l.queued, l.sent = false, true
			cleared = append(cleared, Cleared{ref, m.term})
		}
	}
	m.clears = nil
	return expiries, checkpoints, cleared
}

// anythingDue reports whether due would decide anything now.
func (m *model) anythingDue(now clock.Instant) bool {
	if len(m.clears) > 0 {
		return true
	}
	return m.primary && slices.ContainsFunc(m.leases, func(l *modelLease) bool {
		return !l.expiring && !l.Pinned && (now.After(l.deadline) || m.checkpointDue(l, now))
	})
}

func (m *model) attach(id ID, key string) error {
	l := m.find(id)
	if l == nil {
		return ErrNotFound
	}
	for _, other := range m.leases {
		other.items = slices.DeleteFunc(other.items, func(k string) bool { return k == key })
	}
	l.items = append(l.items, key)
	return nil
}

func (m *model) view(l *modelLease) Lease {
	left, _, checkpointed := m.checkpointOf(l)
	return Lease{
		ID: l.ID, Generation: l.Generation, TTL: l.TTL, Items: len(l.items), Cleared: l.Cleared,
		Checkpointed: checkpointed, Remaining: left, Pinned: l.Pinned, RenewalRefused: l.RenewalRefused,
		Deadline: l.deadline, Clearing: l.queued || l.sent, Ending: l.expiring,
	}
}
