package masterlease

import (
	"math"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Fault says why a holder does not trust the clocks.
type Fault uint8

const (
	// NoFault: they are trusted.
	NoFault Fault = iota
	// LaterLeader: a leader of a later term was there while the own authority was valid. It lasts until
	// [Holder.Trust].
	LaterLeader
	// EarlyPromise: a promise would have ended before the authority that rests on it. It lasts for the term.
	EarlyPromise
	// OwnRate: the clocks of a majority of the voters seem to be outside the bound, so it is rather the own
	// one. It lasts for the term.
	OwnRate
)

func (f Fault) outlastsTerm() bool { return f == LaterLeader }

func (f Fault) String() string {
	return [...]string{"none", "later leader", "early promise", "own rate"}[f]
}

// Trust takes back the verdict on the clocks: for an operator who has found out what it was.
func (h *Holder) Trust(now clock.Instant) {
	h.fault = NoFault
	h.update(now)
}

func (h *Holder) distrust(f Fault) {
	if !h.fault.outlastsTerm() {
		h.fault = f
	}
}

// Rate is how fast a peer's clocks run, seen from the own ones, in parts per million more or less.
type Rate struct {
	Raw, Boot int
	// Over is how long was measured; 0 if there is no measurement yet.
	Over time.Duration
}

// sample is a stamp, and what a peer's clocks showed when it processed it: at that moment or up to slack later.
type sample struct {
	stamp, reading clock.Instant
	raw, boot      time.Duration // slack on either of the own clocks
}

type rateMeter struct {
	known  bool
	domain uint64
	first  sample
	last   Rate
}

// judgeRate measures the rate of a peer's clocks over one window after another. A peer that was outside the bound in
// the last one is not counted: its promise may be too short.
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

// within says whether two clocks inside the bound can have shown this. The peer processed the first stamp up to early
// after it was taken, and the last one up to late after.
func within(d clock.Drift, own, peer int64, early, late time.Duration) bool {
	longest, shortest := time.Duration(own)+late, time.Duration(own)-early
	return time.Duration(peer) <= d.WaitRemote(longest) && time.Duration(peer) >= d.RelyRemote(shortest)
}

// deviation is only shown to people, so it may be inexact.
func deviation(own, peer int64) int {
	if own <= 0 {
		return 0
	}
	ppm := (float64(peer)/float64(own) - 1) * 1e6
	return int(math.Round(max(-1e6, min(ppm, 1e9))))
}

// judgeOwn suspects the own clock if that of a majority of voters seems wrong.
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

// Rate returns the last measurement of a peer's clocks, and whether they are suspected for it.
func (h *Holder) Rate(peer uint64) (r Rate, suspect bool) {
	if p := h.peers[peer]; p != nil {
		return p.rate.last, p.suspect
	}
	return Rate{}, false
}
