package peer

import (
	"time"
)

const (
	// logBurst and logInterval bound the log lines about a member that comes and goes: the first logBurst changes are
	// logged, then the current state once in logInterval.
	logBurst    = 4
	logInterval = 5 * time.Second
)

// linkState is the state of the connection to a member, and the last state that was logged.
type linkState struct {
	connected   bool
	since       time.Time
	err         error // why the last connection ended or failed; nil if none did
	incarnation uint64
	roundTrip   time.Duration
	heard       time.Time // when the member last called this one
	oversized   uint64

	logged struct {
		any       bool
		connected bool
		text      string
		at        time.Time
		left      int // remaining lines of the burst
	}
}

// A PeerStatus is the state of the connections to and from another member.
type PeerStatus struct {
	Member  uint64
	Address string
	// Connected is set if this member can send frames to it. Since is the time of the last change, and Err the last
	// reason for not being connected.
	Connected bool
	Since     time.Time
	Err       error
	// Listening is set if the other member has connected to this one and can send frames.
	Listening bool
	// Heard is when it last called this member; zero if never.
	Heard time.Time
	// Incarnation is the number of its data directory; 0 if unknown.
	Incarnation uint64
	// RoundTrip is the time of the last ping, including its wait in the queue.
	RoundTrip    time.Duration
	Urgent, Bulk QueueStatus
	// Oversized is the number of frames that were too large to be sent.
	Oversized uint64
}

func (l *link) status() PeerStatus {
	s := PeerStatus{
		Member: l.member, Address: l.address, Urgent: l.urgent.status(), Bulk: l.bulk.status(), Listening: l.inbound.listening(),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Connected, s.Since, s.Err, s.Heard = l.state.connected, l.state.since, l.state.err, l.state.heard
	s.Incarnation, s.RoundTrip, s.Oversized = l.state.incarnation, l.state.roundTrip, l.state.oversized
	return s
}

func (l *link) connected() {
	now := time.Now()
	l.mu.Lock()
	l.state.connected, l.state.since, l.reached = true, now, true
	here, calls := l.target(), l.callsTarget()
	l.mu.Unlock()
	l.hangUp(here, calls) // calls of clients may have gone to the address at which the member is not
	l.announce(now)
}

func (l *link) disconnected(err error) {
	now := time.Now()
	l.mu.Lock()
	if l.state.connected {
		l.state.connected, l.state.since = false, now
	}
	l.state.err = err
	l.mu.Unlock()
	l.announce(now)
}

func (l *link) introduced(incarnation uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.incarnation = incarnation
}

func (l *link) measured(roundTrip time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.roundTrip = roundTrip
}

// oversized counts a frame that is too large to be sent, and logs the first one.
func (l *link) oversized(size int) {
	l.mu.Lock()
	l.state.oversized++
	first := l.state.oversized == 1
	l.mu.Unlock()
	if first {
		l.t.cfg.Logger.Error("a message to a member is too large to be sent; it will not catch up",
			"member", memberID(l.member), "bytes", size, "limit", l.t.cfg.MaxFrame)
	}
	l.markLost()
}

// announce logs changes of the state that are not logged yet. It is called regularly, so a line that it withholds is
// logged later unless the state has changed again.
func (l *link) announce(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.state
	text := ""
	if !s.connected && s.err != nil {
		text = s.err.Error()
	}
	if s.logged.any && s.logged.connected == s.connected && s.logged.text == text {
		return
	}
	s.logged.left = min(s.logged.left+int(now.Sub(s.logged.at)/logInterval), logBurst)
	if s.logged.left == 0 {
		return
	}
	s.logged.any, s.logged.connected, s.logged.text, s.logged.at = true, s.connected, text, now
	s.logged.left--
	if s.connected {
		l.t.cfg.Logger.Info("member is reachable", "member", memberID(l.member), "address", l.address)
		return
	}
	l.t.cfg.Logger.Warn("member is unreachable", "member", memberID(l.member), "address", l.address, "error", text)
}
