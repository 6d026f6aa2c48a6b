package masterlease

import (
	"math"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Fault is why a holder does not trust the clocks.
type Fault uint8

const (
	// NoFault: the holder trusts the clocks.
	NoFault Fault = iota
	// LaterLeader: a leader of a later term existed while this member had valid authority. The fault lasts
	// until [Holder.Trust].
	LaterLeader
	// EarlyPromise: a promise would have ended before the authority that rests on it. The fault lasts for the
	// term.
	EarlyPromise
	// OwnRate: the clocks of a majority of the voters seem to be outside the bound, so this member's clock is
	// probably wrong. The fault lasts for the term.
	OwnRate
)

// outlastsTerm reports whether the fault remains in later terms.
func (f Fault) outlastsTerm() bool { return f == LaterLeader }

func (f Fault) String() string {
	return [...]string{"none", "later leader", "early promise", "own rate"}[f]
}

// Trust removes the fault, so that the member may lead again. Call it when an operator has repaired the cause.
func (h *Holder) Trust(now clock.Instant) {
	h.fault = NoFault
	h.update(now)
}

// distrust records a fault, unless the present one outlasts the term.
func (h *Holder) distrust(f Fault) {
	if !h.fault.outlastsTerm() {
		h.fault = f
	}
}

// Rate is by how much a peer's clocks run faster than this member's, in parts per million.
type Rate struct {
	Raw, Boot int
	// Over is the length of the measurement; 0 if there is none yet.
	Over time.Duration
}

// sample is a stamp of this member, and what a peer's clocks showed when it processed that stamp. The peer
// did so when the stamp was taken or up to the slack later.
type sample struct {
	stamp, reading clock.Instant
	raw, boot      time.Duration // slack by each of this member's clocks
}

// rateMeter measures the rate of one peer's clocks.
type rateMeter struct {
	known  bool   // a window has begun
	domain uint64 // of the peer's clocks in this window
	first  sample // with which the window began
	last   Rate   // of the last complete window
}

// judgeRate measures the rate of a peer's clocks in one window after another. The holder does not count a
// peer whose clocks were outside the bound in the last window, because its promise may be too short.
func (h *Holder) judgeRate(p *peer, g Grant, now clock.Instant) {
	s := sample{
		stamp: g.Echo, reading: g.Reading,
		raw: time.Duration(now.Raw - g.Echo.Raw), boot: time.Duration(now.Boot - g.Echo.Boot),
	}
	r := &p.rate
	if !r.known || r.domain != g.Domain || earlier(s.reading, r.first.reading) {
		*r = rateMeter{known: true, domain: g.Domain, first: s}
		return
	}
	over := s.stamp.Elapsed(r.first.stamp)
	if over < h.config.RateWindow {
		return
	}
	drift := max(g.Drift, h.config.Drift)
	rawOwn, rawPeer := s.stamp.Raw-r.first.stamp.Raw, s.reading.Raw-r.first.reading.Raw
	bootOwn, bootPeer := s.stamp.Boot-r.first.stamp.Boot, s.reading.Boot-r.first.reading.Boot
	p.suspect = !within(drift, rawOwn, rawPeer, r.first.raw, s.raw) && !within(drift, bootOwn, bootPeer, r.first.boot, s.boot)
	r.last = Rate{Raw: deviation(rawOwn, rawPeer), Boot: deviation(bootOwn, bootPeer), Over: over}
	r.first = s
	h.judgeOwn()
}

// within reports whether two clocks inside the bound can have shown these lengths. The peer processed the
// first stamp up to early after it was taken, and the last stamp up to late after it was taken.
func within(d clock.Drift, own, peer int64, early, late time.Duration) bool {
	longest, shortest := time.Duration(own)+late, time.Duration(own)-early
	return time.Duration(peer) <= d.WaitRemote(longest) && time.Duration(peer) >= d.RelyRemote(shortest)
}

// deviation returns by how much peer exceeds own, in parts per million. Only people read it, so
// floating-point arithmetic will do.
func deviation(own, peer int64) int {
	if own <= 0 {
		return 0
	}
	ppm := (float64(peer)/float64(own) - 1) * 1e6
	return int(math.Round(max(-1e6, min(ppm, 1e9))))
}

// judgeOwn suspects this member's clock if the clocks of a majority of the voters seem wrong.
func (h *Holder) judgeOwn() {
	for _, voters := range [][]uint64{h.members.Voters, h.members.Outgoing} {
		suspects := 0
		for _, id := range voters {
			if p := h.peers[id]; p != nil && p.suspect {
				suspects++
			}
		}
		if suspects >= len(voters)/2+1 {
			h.stats.OwnRates++
			h.distrust(OwnRate)
		}
	}
}

// Rate returns the last measurement of a peer's clocks, and whether the holder suspects them.
func (h *Holder) Rate(peer uint64) (r Rate, suspect bool) {
	if p := h.peers[peer]; p != nil {
		return p.rate.last, p.suspect
	}
	return Rate{}, false
}
