package peer

import (
	"time"
)

const (
	// A member that comes and goes is in the log logBurst times, and then once in logInterval, with how it is then.
	logBurst    = 4
	logInterval = 5 * time.Second
)

// linkState is how it is with a member, and what the log knows of it.
type linkState struct {
	connected   bool
	since       time.Time
	err         error // why it was not connected the last time, nil if it always was
	incarnation uint64
	roundTrip   time.Duration
	heard       time.Time // when it last began a call to this member
	oversized   uint64

	logged struct {
		any       bool
		connected bool
		text      string
		at        time.Time
		left      int // of the burst
	}
}

// A PeerStatus tells how it is with another member.
type PeerStatus struct {
	Member  uint64
	Address string
	// Connected says whether this member can send frames to it, since when that is so, and Err why it cannot or could
	// not the last time.
	Connected bool
	Since     time.Time
	Err       error
	// Listening says whether it has connected to this member and can send frames.
	Listening bool
	// Heard is when it last began a call to this member, zero if never.
	Heard time.Time
	// Incarnation is that of its data folder, 0 if it has not said so yet.
	Incarnation uint64
	// RoundTrip is how long the last ping took. It includes the time that it waited here.
	RoundTrip    time.Duration
	Urgent, Bulk QueueStatus
	// Oversized counts frames that were too large to be sent.
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
	l.state.connected, l.state.since = true, now
	l.mu.Unlock()
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

// oversized counts a frame that cannot be sent, and says so once.
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

// announce has the log told what it does not know yet. It is called again and again, so what it keeps back for now is
// told later, unless it has changed by then.
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
