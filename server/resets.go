package server

import (
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

const (
	// resetsPerSecond is how many requests a second the clients of one identity may reset for long, and resetsAtOnce how
	// many of them in a moment. A request that is reset costs the server nearly as much as one that is answered, and its
	// client nearly nothing.
	resetsPerSecond = 2000
	resetsAtOnce    = 4000
	// resetPause bounds how long one connection is not read at a time. A connection of clients that would have to wait
	// for longer than resetPatience is closed.
	resetPause    = 250 * time.Millisecond
	resetPatience = 5 * time.Second
	// resetRead is how much is read at a time from a connection whose clients reset too much: room for some 20 requests.
	resetRead = 2 << 10
)

// resetPace bounds how fast the clients of one identity reset requests. Connections that do so faster are read more
// slowly. Its methods are safe for concurrent use.
type resetPace struct {
	connections int // that use it; guarded by the budget's mu

	mu sync.Mutex
	// paid is the moment at which all resets so far have been paid for, at resetsPerSecond.
	paid time.Time
}

// charge counts resets, and returns how long their connection is not to be read.
func (p *resetPace) charge(now time.Time, resets int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest := now.Add(-resetsAtOnce * time.Second / resetsPerSecond); p.paid.Before(earliest) {
		p.paid = earliest
	}
	p.paid = p.paid.Add(time.Duration(resets) * time.Second / resetsPerSecond)
	return max(0, p.paid.Sub(now))
}

// owes reports whether there were more resets than are paid for.
func (p *resetPace) owes(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paid.After(now)
}

// joinPace returns the pace of an identity for one more connection. b.mu is held.
func (b *budget) joinPace(of admission.Identity) *resetPace {
	p := b.paces[of]
	if p == nil {
		p = new(resetPace)
		b.paces[of] = p
	}
	p.connections++
	return p
}

// leavePace forgets a pace with its last connection, unless it is owed something: its client could come back. b.mu is
// held.
func (b *budget) leavePace(of admission.Identity, now time.Time) {
	p := b.paces[of]
	if p.connections--; p.connections == 0 && !p.owes(now) {
		delete(b.paces, of)
	}
}

// forgetPaces forgets the paces that nobody uses and nobody owes anything.
func (b *budget) forgetPaces(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, p := range b.paces { // order: all the same
		if p.connections == 0 && !p.owes(now) {
			delete(b.paces, of)
		}
	}
}

// next bounds what is read of a connection at a time, and afterResets waits for as long as the connection is not to be
// read. They concern only connections whose clients have reset requests.
func (m *meter) next(p []byte) []byte {
	if m.resetting && len(p) > resetRead && m.account.pace.owes(time.Now()) {
		return p[:resetRead]
	}
	return p
}

func (m *meter) afterResets() {
	m.mu.Lock()
	resets := m.resets
	m.resets = 0
	m.mu.Unlock()
	if resets == 0 {
		return
	}
	m.resetting = true
	wait := m.account.pace.charge(time.Now(), resets)
	if wait > resetPatience {
		m.account.abandon()
		return
	}
	if wait > 0 {
		m.account.pause(min(wait, resetPause))
	}
}

// pause waits, or until the connection is closed.
func (a *account) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.over:
	}
}
