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
	known   bool
	seen    Progress
	mark    uint64        // what was appended when unsynced began
	syncs   clock.Instant // since then something up to mark waits for the disk
	commits clock.Instant // since then something waits for the commit, which has not moved
	caught  clock.Instant // up to then a member may have been catching up
	tripped bool
	// late is when the commit was first seen to have come so far, oldest first, of what this disk does not have yet;
	// little more than lateMarks, since with one that is older than the limit the disk is slow.
	late     []mark
	compared clock.Instant // when that was looked at last
	slow     bool          // this disk was found to be slower than the others'; for as long as this member leads
}

// mark is the commit at a time.
type mark struct {
	index uint64
	at    clock.Instant
}

// lateMarks is how many marks there are in the lag limit.
const lateMarks = 32

// Progress says how far the log is: call it whenever that changes, and at every tick. While the disk, or the commit,
// has stood still for the stall timeout with something waiting, or the disk is slower than the others' by the lag limit,
// there is neither authority nor a request for it.
func (h *Holder) Progress(p Progress, now clock.Instant) {
	if !h.leading {
		return
	}
	h.stall.see(p, now)
	h.stall.compare(h.config.LagLimit, now)
	tripped := h.stall.trips(h.config.StallTimeout, now)
	if tripped && !h.stall.tripped {
		h.stats.Stalls++
	}
	h.stall.tripped = tripped
	h.settle(now)
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
	return s.slow || s.disk(limit, now) || s.commit(limit, now) && !now.Before(s.caught.Add(h.config.StallTimeout))
}

func (s *stall) see(p Progress, now clock.Instant) {
	if !s.known || p.Synced >= s.mark || p.Synced >= p.Last {
		s.mark, s.syncs = p.Last, now // what waits was appended just now at the earliest that is known
	}
	if !s.known || p.Committed > s.seen.Committed || s.seen.Committed >= s.seen.Last {
		s.commits = now
	}
	if !s.known || p.CatchingUp {
		s.caught = now
	}
	s.seen, s.known = p, true
}

// compare finds a disk that is slower than the others' by the limit. A disk that takes long for each call moves, and so
// never stands still for as long, but each entry waits for the call before its own as well. Who was not there to compare
// for long was paused, perhaps with what the disk had done waiting to be told, and starts over.
func (s *stall) compare(limit time.Duration, now clock.Instant) {
	if s.slow {
		return
	}
	if !now.Before(s.compared.Add(limit / 2)) {
		s.late = nil
	}
	s.compared = now
	s.late = slices.DeleteFunc(s.late, func(m mark) bool { return m.index <= s.seen.Synced })
	newest := len(s.late) - 1
	switch {
	case s.seen.Committed <= s.seen.Synced:
	case newest < 0 || s.late[newest].index < s.seen.Committed && !now.Before(s.late[newest].at.Add(limit/lateMarks)):
		s.late = append(s.late, mark{s.seen.Committed, now})
	}
	s.slow = len(s.late) > 0 && !now.Before(s.late[0].at.Add(limit))
}

func (s *stall) trips(timeout time.Duration, now clock.Instant) bool {
	return s.known && (s.slow || s.disk(timeout, now) || s.commit(timeout, now))
}

// disk says whether something has waited for so long to be on stable storage here.
func (s *stall) disk(timeout time.Duration, now clock.Instant) bool {
	return s.seen.Synced < s.seen.Last && !now.Before(s.syncs.Add(timeout))
}

// commit says whether the commit has not moved for so long, with something waiting for it.
func (s *stall) commit(timeout time.Duration, now clock.Instant) bool {
	return s.seen.Committed < s.seen.Last && !now.Before(s.commits.Add(timeout))
}
