package yield

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
)

const (
	// Interval is the least time from one hand-over to the next, including the one by which this member took over.
	Interval = time.Minute
	// slowWrites is how many slow writes are enough, each within slowMemory election timeouts of the one before it.
	slowWrites, slowMemory = 2, 10
	// freshTicks is for how many ticks a member's report of its space counts.
	freshTicks = 5
)

// Reason is the reason for which a leader decides to hand over.
type Reason uint8

// The reasons to hand over.
const (
	None Reason = iota
	Slow        // the disk takes far longer than that of another member
	Full        // there is no space for clients, and another member has some
)

func (r Reason) String() string {
	return [...]string{"no reason", "the disk is far slower than that of another member", "there is no space for clients, and another member has some"}[r]
}

// Judge is what a leader knows to compare itself with the others. Make one with [New]. It belongs to one goroutine.
type Judge struct {
	timeout time.Duration // the election timeout
	fresh   time.Duration // how long a report counts

	rest    clock.Instant // no hand-over until then
	slow    int           // slow writes in a row
	struck  uint64        // the newest of them
	at      clock.Instant // when struck was found to be slow
	short   bool          // there is no space for clients
	since   clock.Instant // when that began
	reports map[uint64]report
	reason  Reason // of the newest hand-over
}

// report is a member's report of its space, and when it came.
type report struct {
	room memberpb.Room
	at   clock.Instant
}

// New returns the judge of a member with this election timeout. Members report their space at every tick.
func New(electionTimeout, tick time.Duration) Judge {
	return Judge{timeout: electionTimeout, fresh: freshTicks * tick}
}

// Hear notes a member's report of its space. A report that says nothing leaves the one before it.
func (j *Judge) Hear(now clock.Instant, from uint64, room memberpb.Room) {
	if room == memberpb.Room_ROOM_UNKNOWN {
		return
	}
	if j.reports == nil {
		j.reports = make(map[uint64]report)
	}
	j.reports[from] = report{room, now}
}

// LacksRoom reports whether a member's newest report was a lack of space.
func (j *Judge) LacksRoom(member uint64) bool {
	return j.reports[member].room == memberpb.Room_ROOM_SHORT
}

// TookOver notes that this member campaigns because another one handed over.
func (j *Judge) TookOver(now clock.Instant) { j.rest = now.Add(Interval) }

// Forget drops what the judge knows of this member's slowness and shortage. The member calls it while it does not lead.
func (j *Judge) Forget() { j.slow, j.short = 0, false }

// Reason returns the reason of the newest hand-over; [None] if there was none.
func (j *Judge) Reason() Reason { return j.reason }

// Faster returns the members that are quick while this one is slow. w is its oldest write in progress, and have returns
// the other members that have all entries of w on stable storage.
func (j *Judge) Faster(now clock.Instant, w *Write, have func() []uint64) []uint64 {
	age := now.Elapsed(w.Since)
	w.compare(age, j.timeout, have)
	if age < j.timeout/slowPart || len(w.quick) == 0 {
		return nil
	}
	if j.struck != w.Sequence {
		if j.slow > 0 && now.Elapsed(j.at) > slowMemory*j.timeout {
			j.slow = 0
		}
		j.slow, j.struck, j.at = j.slow+1, w.Sequence, now
	}
	if j.slow >= slowWrites || age >= j.timeout/verySlowPart {
		return w.quick
	}
	return nil
}

// UntilCompared returns how long it takes until a write that was not compared yet is compared with what the others have.
func (j *Judge) UntilCompared(now clock.Instant, w *Write) time.Duration {
	return max(0, j.timeout/quickPart-now.Elapsed(w.Since))
}

// Roomier returns those of the members that have space while this one has had none for an election timeout. An operator's
// alarm is no lack of space.
func (j *Judge) Roomier(now clock.Instant, shortage intake.Shortage, members []uint64) (roomy []uint64) {
	if short := shortage == intake.DiskFull || shortage == intake.QuotaExceeded; short != j.short {
		j.short, j.since = short, now
	}
	if !j.short || now.Elapsed(j.since) < j.timeout {
		return nil
	}
	for _, id := range members {
		if said := j.reports[id]; said.room == memberpb.Room_ROOM_ENOUGH && now.Elapsed(said.at) <= j.fresh {
			roomy = append(roomy, id)
		}
	}
	return roomy
}

// Choose returns the member that takes over, and notes the hand-over; 0 if this member stays. furthest returns which of
// some members can take over best, and 0 if none can.
func (j *Judge) Choose(now clock.Instant, faster, roomier []uint64, furthest func([]uint64) uint64) (to uint64) {
	if !now.After(j.rest) {
		return 0
	}
	reason := Slow
	if to = furthest(faster); to == 0 {
		reason, to = Full, furthest(roomier)
	}
	if to == 0 {
		return 0
	}
	*j = Judge{timeout: j.timeout, fresh: j.fresh, rest: now.Add(Interval), reports: j.reports, reason: reason}
	return to
}

// Room returns whether a member has space for clients' writes. An unknown amount does not count as enough, nor does one
// that is near a limit.
func Room(s *intake.SpaceGauge) memberpb.Room {
	switch {
	case s.Current() != intake.Enough:
		return memberpb.Room_ROOM_SHORT
	case s.Limits.MinFree > 0 && s.Seen.Free == intake.UnknownFree || s.Limits == intake.SpaceLimits{}:
		return memberpb.Room_ROOM_UNKNOWN
	case s.Near():
		return memberpb.Room_ROOM_UNKNOWN
	}
	return memberpb.Room_ROOM_ENOUGH
}
