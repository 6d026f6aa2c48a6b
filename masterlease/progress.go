package masterlease

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Progress is how far a leader's log is.
type Progress struct {
	Last      uint64 // appended here, on its way to the disk
	Synced    uint64 // on stable storage here
	Committed uint64
	// CatchingUp says that a member which is there is being sent the whole state. If nothing commits because of that,
	// another leader would do no better, and have it sent anew.
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
}

// Progress says how far the log is: call it whenever that changes, and at every tick. While the disk, or the commit,
// has stood still for the stall timeout with something waiting, there is neither authority nor a request for it.
func (h *Holder) Progress(p Progress, now clock.Instant) {
	if !h.leading {
		return
	}
	h.stall.see(p, now)
	tripped := h.stall.trips(h.config.StallTimeout, now)
	if tripped && !h.stall.tripped {
		h.stats.Stalls++
	}
	h.stall.tripped = tripped
	h.settle(now)
}

// Silent reports whether a stall has gone on for so long that the leader should send no more appends and heartbeats, so
// that the others elect one that works.
func (h *Holder) Silent(now clock.Instant) bool {
	if !h.leading || !h.stall.known {
		return false
	}
	s, limit := &h.stall, 2*h.config.StallTimeout
	return s.disk(limit, now) || s.commit(limit, now) && !now.Before(s.caught.Add(h.config.StallTimeout))
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

func (s *stall) trips(timeout time.Duration, now clock.Instant) bool {
	return s.known && (s.disk(timeout, now) || s.commit(timeout, now))
}

// disk says whether something has waited for so long to be on stable storage here.
func (s *stall) disk(timeout time.Duration, now clock.Instant) bool {
	return s.seen.Synced < s.seen.Last && !now.Before(s.syncs.Add(timeout))
}

// commit says whether the commit has not moved for so long, with something waiting for it.
func (s *stall) commit(timeout time.Duration, now clock.Instant) bool {
	return s.seen.Committed < s.seen.Last && !now.Before(s.commits.Add(timeout))
}
