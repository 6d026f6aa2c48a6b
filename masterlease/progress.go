package masterlease

import (
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Progress is how far a leader's log is.
type Progress struct {
	Last      uint64 // appended here, on its way to the disk
	Synced    uint64 // on stable storage here
	Committed uint64
	// CatchingUp says that a member which is there is being sent the whole state. If nothing commits because of that,
	// another leader would do no better, and have it sent from the start.
	CatchingUp bool
}

// stall watches whether the log moves. A leader whose disk hangs can send heartbeats for ever, and would be kept in
// office by them while nothing commits.
type stall struct {
	known            bool
	seen             Progress
	unsyncedMark     uint64        // what was appended when unsynced began
	unsyncedSince    clock.Instant // since then something up to mark waits for the disk
	uncommittedSince clock.Instant // since then something waits for the commit, which has not moved
	catchingUpAt     clock.Instant // up to then a member may have been catching up
	active           bool
	// late is when the commit was first seen to have come so far, oldest first, of what this disk does not have yet;
	// little more than marksPerLimit, since with one that is older than the limit the disk is slow.
	lagging    []mark
	comparedAt clock.Instant // when that was looked at last
	slow       bool          // this disk was found to be slower than the others'; for as long as this member leads
}

// mark is the commit at a time.
type mark struct {
	index uint64
	at    clock.Instant
}

// marksPerLimit is how many marks there are in the lag limit.
const marksPerLimit = 32

// Progress says how far the log is: call it whenever that changes, and at every tick. While the disk, or the commit,
// has stood still for the stall timeout with something waiting, or the disk is slower than the others' by the lag limit,
// there is neither authority nor a request for it.
func (h *Holder) Progress(p Progress, now clock.Instant) {
	if !h.leading {
		return
	}
	h.stall.observe(p, now)
	h.stall.compareDisks(h.config.LagLimit, now)
	tripped := h.stall.isStalled(h.config.StallTimeout, now)
	if tripped && !h.stall.active {
		h.stats.Stalls++
	}
	h.stall.active = tripped
	h.update(now)
}

// Silent reports whether a stall has gone on for so long that the leader should send no more appends and heartbeats, so
// that the others elect one that works. So it should for the rest of its leadership if its disk does move, but was once slower
// than the others' by the lag limit: what enough of them had stored to commit it was not stable here. Where all disks are
// slow, those that commit are, too, and another leader would do no better.
func (h *Holder) Silent(now clock.Instant) bool {
	if !h.leading || !h.stall.known {
		return false
	}
	s, limit := &h.stall, 2*h.config.StallTimeout
	return s.slow || s.diskStalled(limit, now) || s.commitStalled(limit, now) && !now.Before(s.catchingUpAt.Add(h.config.StallTimeout))
}

func (s *stall) observe(p Progress, now clock.Instant) {
	if !s.known || p.Synced >= s.unsyncedMark || p.Synced >= p.Last {
		s.unsyncedMark, s.unsyncedSince = p.Last, now // what waits was appended just now at the earliest that is known
	}
	if !s.known || p.Committed > s.seen.Committed || s.seen.Committed >= s.seen.Last {
		s.uncommittedSince = now
	}
	if !s.known || p.CatchingUp {
		s.catchingUpAt = now
	}
	s.seen, s.known = p, true
}

// compare finds a disk that is slower than the others' by the limit. A disk that takes long for each call moves, and so
// never stands still for as long, but each entry waits for the call before its own as well. Who was not there to compare
// for long was paused, perhaps with what the disk had done waiting to be told, and starts over.
func (s *stall) compareDisks(limit time.Duration, now clock.Instant) {
	if s.slow {
		return
	}
	if !now.Before(s.comparedAt.Add(limit / 2)) {
		s.lagging = nil
	}
	s.comparedAt = now
	s.lagging = slices.DeleteFunc(s.lagging, func(m mark) bool { return m.index <= s.seen.Synced })
	newest := len(s.lagging) - 1
	switch {
	case s.seen.Committed <= s.seen.Synced:
	case newest < 0 || s.lagging[newest].index < s.seen.Committed && !now.Before(s.lagging[newest].at.Add(limit/marksPerLimit)):
		s.lagging = append(s.lagging, mark{s.seen.Committed, now})
	}
	s.slow = len(s.lagging) > 0 && !now.Before(s.lagging[0].at.Add(limit))
}

func (s *stall) isStalled(timeout time.Duration, now clock.Instant) bool {
	return s.known && (s.slow || s.diskStalled(timeout, now) || s.commitStalled(timeout, now))
}

// disk says whether something has waited for so long to be on stable storage here.
func (s *stall) diskStalled(timeout time.Duration, now clock.Instant) bool {
	return s.seen.Synced < s.seen.Last && !now.Before(s.unsyncedSince.Add(timeout))
}

// commit says whether the commit has not moved for so long, with something waiting for it.
func (s *stall) commitStalled(timeout time.Duration, now clock.Instant) bool {
	return s.seen.Committed < s.seen.Last && !now.Before(s.uncommittedSince.Add(timeout))
}
