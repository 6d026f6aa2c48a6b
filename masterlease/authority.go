package masterlease

import (
	"cmp"
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Authority is a leader's right to answer from its own state. Until End, on the leader's own clocks, no
// leader of a later term can be elected, unless the leader gives up the right itself. The zero value is no
// authority. Authority is a plain value, so other goroutines can read a published copy without a lock.
type Authority struct {
	Term  uint64
	Epoch uint64
	End   clock.Instant
}

// Holds reports whether now is before the end on both clocks. First read or change the state, then load the
// published authority, then read the clock: see [Holder.Check].
func (a Authority) Holds(now clock.Instant) bool { return a.Term != 0 && now.Before(a.End) }

// Authority returns this member's authority. Every other method of the holder may change it, so publish it
// after each call.
func (h *Holder) Authority() Authority { return h.authority }

// Valid reports whether this member has authority now.
func (h *Holder) Valid(now clock.Instant) bool {
	return h.authority.Term != 0 && !h.rules.isOver(now, h.authority.End)
}

// Comfortable reports whether more than half of a master lease is left. Then it is enough to send requests
// with heartbeats. Requests with every append would make the promises end later, and so delay the next
// election after a crash.
func (h *Holder) Comfortable(now clock.Instant) bool {
	return h.Valid(now) && now.Remaining(h.authority.End) > h.config.Duration/2
}

// Check reports whether what was done in the given term may be answered with authority now. Use it in this
// order:
//
//   - Note the term.
//   - Read, or move a deadline, on a state that contains everything committed when the request came.
//   - Read the clock and call Check.
//   - Call Check with a new now just before the answer leaves.
//
// In between the authority may have been renewed. No other member can have led in between, because then the
// term would differ.
func (h *Holder) Check(term uint64, now clock.Instant) bool {
	h.stats.Checks++
	if h.authority.Term == term && h.Valid(now) {
		return true
	}
	h.stats.Misses++
	return false
}

// Refreshed counts one round of messages that confirmed this number of readers, for which Check had failed.
func (h *Holder) Refreshed(readers int) {
	h.stats.Rounds++
	h.stats.Readers += uint64(max(0, readers))
}

// update accounts for the time that has passed, and recomputes the authority.
func (h *Holder) update(now clock.Instant) {
	if h.leading {
		since := h.accountedUntil
		if h.authority.Term != 0 {
			since = later(since, h.authority.End)
		}
		h.stats.Without += now.Elapsed(since)
		h.accountedUntil = later(h.accountedUntil, now)
	}
	h.authority = Authority{}
	if !h.leading || h.stopped || h.rules.withdraws(h.transferring) || h.fault != NoFault || h.stall.active || h.pending ||
		!h.rules.usable(h.applied) || !h.isVoter() {
		return
	}
	if end, ok := h.quorumEnd(); ok {
		h.authority = Authority{Term: h.term, Epoch: h.epoch, End: end}
	}
}

// quorumEnd returns until when a quorum of each set of voters has promised (L3). It reports false if one of
// the sets has no quorum.
func (h *Holder) quorumEnd() (clock.Instant, bool) {
	end, any := forever, false
	for _, voters := range h.rules.voterSets(h.members) {
		if len(voters) == 0 {
			continue
		}
		of, ok := h.endOf(voters)
		if !ok {
			return clock.Instant{}, false
		}
		end = clock.Instant{Raw: min(end.Raw, of.Raw), Boot: min(end.Boot, of.Boot)}
		any = true
	}
	return end, any
}

// endOf returns the instant until which one quorum of voters has promised on both clocks. The quorum must be
// the same for both clocks. Otherwise a voter could count by its wrong clock in one quorum and be missing in
// the other.
func (h *Holder) endOf(voters []uint64) (clock.Instant, bool) {
	h.ends = h.ends[:0]
	for _, id := range voters {
		if id == h.config.ID {
			h.ends = append(h.ends, forever)
		} else if p := h.peers[id]; p != nil && p.epoch != 0 && h.rules.sameEpoch(p.epoch, h.epoch) && !p.suspect {
			h.ends = append(h.ends, p.end)
		}
	}
	quorum := h.rules.quorum(len(voters))
	if len(h.ends) < quorum {
		return clock.Instant{}, false
	}
	slices.SortFunc(h.ends, func(a, b clock.Instant) int {
		return cmp.Or(cmp.Compare(b.Raw, a.Raw), cmp.Compare(b.Boot, a.Boot))
	})
	end := forever
	for _, e := range h.ends[:quorum] {
		end = clock.Instant{Raw: min(end.Raw, e.Raw), Boot: min(end.Boot, e.Boot)}
	}
	return end, true
}
