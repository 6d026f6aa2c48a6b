package server

import (
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

const (
	// resetsPerSecond is the rate at which the clients of one identity may reset requests, and resetsAtOnce is the
	// burst above it. A request that is reset costs the server nearly as much as one that is answered, but costs its
	// client almost nothing.
	resetsPerSecond = 2000
	resetsAtOnce    = 4000
	// resetPause bounds how long the server stops reading a connection at a time. It closes a connection that would
	// have to wait for longer than resetPatience.
	resetPause    = 250 * time.Millisecond
	resetPatience = 5 * time.Second
	// resetRead is the number of bytes that the server reads at a time while the clients reset too much. About 20
	// requests fit into it.
	resetRead = 2 << 10
)

// resetLimiter bounds the rate at which the clients of one identity reset requests. The server reads the connections of
// faster clients more slowly. Its methods are safe for concurrent use.
type resetLimiter struct {
	connections int // that use the limiter; guarded by the budget's mu

	mu sync.Mutex
	// paid is the time at which all resets so far are within resetsPerSecond.
	paid time.Time
}

// charge counts resets, and returns for how long the server should not read their connection.
func (p *resetLimiter) charge(now time.Time, resets int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest := now.Add(-resetsAtOnce * time.Second / resetsPerSecond); p.paid.Before(earliest) {
		p.paid = earliest
	}
	p.paid = p.paid.Add(time.Duration(resets) * time.Second / resetsPerSecond)
	return max(0, p.paid.Sub(now))
}

// owes reports whether the resets so far are above resetsPerSecond.
func (p *resetLimiter) owes(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paid.After(now)
}

// joinResetLimiter returns the limiter of an identity for one more connection. The caller holds b.mu.
func (b *budget) joinResetLimiter(of admission.Identity) *resetLimiter {
	p := b.resetLimiters[of]
	if p == nil {
		p = new(resetLimiter)
		b.resetLimiters[of] = p
	}
	p.connections++
	return p
}

// leaveResetLimiter removes one connection from a limiter. It deletes the limiter with its last connection, unless that
// would let its clients start afresh. The caller holds b.mu.
func (b *budget) leaveResetLimiter(of admission.Identity, now time.Time) {
	p := b.resetLimiters[of]
	if p.connections--; p.connections == 0 && !p.owes(now) {
		delete(b.resetLimiters, of)
	}
}

// forgetResetLimiters deletes the limiters that have no connection and owe nothing.
func (b *budget) forgetResetLimiters(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, p := range b.resetLimiters { // order: each one separately
		if p.connections == 0 && !p.owes(now) {
			delete(b.resetLimiters, of)
		}
	}
}

// next bounds the next read of a connection, and afterResets pauses before it. Both affect only connections whose
// clients have reset requests.
func (m *meter) next(p []byte) []byte {
	if m.resetting && len(p) > resetRead && m.account.limiter.owes(time.Now()) {
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
	wait := m.account.limiter.charge(time.Now(), resets)
	if wait > resetPatience {
		m.account.abandon()
		return
	}
	if wait > 0 {
		m.account.pause(min(wait, resetPause))
	}
}

// pause waits for d, or until the connection is closed.
func (a *account) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.over:
	}
}
