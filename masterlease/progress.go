package masterlease

import (
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Progress is how far a leader's log is.
type Progress struct {
	Last      uint64 // index of the last entry appended here
	Synced    uint64 // index up to which entries are on stable storage here
	Committed uint64 // the commit index
	// CatchingUp: a reachable member is receiving the whole state. If nothing commits because of that,
	// another leader would do no better: it would send the state again from the start.
	CatchingUp bool
}

// stall watches whether the log moves. A leader whose disk hangs can still send heartbeats. So the others
// would keep it as leader while nothing commits.
type stall struct {
	known            bool          // Progress was called in this leadership
	seen             Progress      // the last progress
	unsyncedMark     uint64        // index of the last entry when unsyncedSince was set
	unsyncedSince    clock.Instant // since then an entry up to unsyncedMark has waited for the disk
	uncommittedSince clock.Instant // since then the commit index has not moved while an entry waits
	catchingUpAt     clock.Instant // when a member was last catching up
	active           bool          // isStalled, when Progress was last called
	// lagging holds commit indexes that this disk does not have yet, oldest first, each with the time at
	// which it was first seen. It has little more than marksPerLimit elements: once the oldest is older than
	// the limit, the disk is slow.
	lagging    []mark
	comparedAt clock.Instant // when compareDisks was called last
	slow       bool          // this disk has lagged by the limit; stays set while this member leads
}

// mark is a commit index, and when it was first seen.
type mark struct {
	index uint64
	at    clock.Instant
}

// marksPerLimit is how many marks the lag limit is divided into.
const marksPerLimit = 32

// Progress records how far the log is. Call it when that changes, and at every tick. There is neither
// authority nor a request in these cases:
//
//   - The disk has hung for the stall timeout while an entry waits for it.
//   - The commit index has hung for the stall timeout while an entry waits for it.
//   - The disk lags behind the others by the lag limit.
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

// Silent reports whether the leader should send no more appends and heartbeats, so that the others elect
// another leader. That is the case when a stall has lasted twice the stall timeout.
//
// It is also the case for the rest of a leadership in which the disk once lagged by the lag limit. Then
// enough other disks had stored an entry to commit it, and this disk had not. If all disks are slow, commits
// are slow too, and another leader would do no better.
func (h *Holder) Silent(now clock.Instant) bool {
	if !h.leading || !h.stall.known {
		return false
	}
	s, limit := &h.stall, 2*h.config.StallTimeout
	return s.slow || s.diskStalled(limit, now) || s.commitStalled(limit, now) && !now.Before(s.catchingUpAt.Add(h.config.StallTimeout))
}

// observe records the progress.
func (s *stall) observe(p Progress, now clock.Instant) {
	if !s.known || p.Synced >= s.unsyncedMark || p.Synced >= p.Last {
		s.unsyncedMark, s.unsyncedSince = p.Last, now // entries that wait now count from now
	}
	if !s.known || p.Committed > s.seen.Committed || s.seen.Committed >= s.seen.Last {
		s.uncommittedSince = now
	}
	if !s.known || p.CatchingUp {
		s.catchingUpAt = now
	}
	s.seen, s.known = p, true
}

// compareDisks finds a disk that lags behind the others by the limit. A disk with slow calls moves, so it
// never hangs for as long as the limit. But each entry also waits for the call before its own.
//
// If compareDisks was not called for half the limit, the process was paused. The disk may have done work that
// is not reported yet, so the comparison starts again.
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

// isStalled reports whether the disk lags, or the disk or the commit index has hung for the timeout.
func (s *stall) isStalled(timeout time.Duration, now clock.Instant) bool {
	return s.known && (s.slow || s.diskStalled(timeout, now) || s.commitStalled(timeout, now))
}

// diskStalled reports whether something has waited for the local disk for the timeout.
func (s *stall) diskStalled(timeout time.Duration, now clock.Instant) bool {
	return s.seen.Synced < s.seen.Last && !now.Before(s.unsyncedSince.Add(timeout))
}

// commitStalled reports whether the commit index has not moved for the timeout while something waits for it.
func (s *stall) commitStalled(timeout time.Duration, now clock.Instant) bool {
	return s.seen.Committed < s.seen.Last && !now.Before(s.uncommittedSince.Add(timeout))
}
