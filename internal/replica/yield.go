package replica

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/event"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
)

// A leader whose disk is slow, or that has no space for clients, hands over to a member that is better off. A
// hand-over costs some 30 ms. A slow leader delays every write, since nothing is applied before it is stable there. A
// full leader refuses writes for which others have space.
//
// Slowness is relative to the others, and measured with the leader's clock alone. A write of the log is slow if it is
// still in progress here although another member acknowledged it long ago. One very slow write is enough, or two slow
// ones in a row. Members report their space themselves. A member about which too little is known never counts as
// better.

const (
	// YieldInterval is the least time from one hand-over to the next, including the one by which this member took
	// over.
	YieldInterval = time.Minute
	// A write is slow after 1/slowPart of the election timeout if another member had it after 1/quickPart, and very
	// slow after 1/verySlowPart.
	quickPart, slowPart, verySlowPart = 8, 4, 2
	// slowWrites is how many slow writes are enough, each within slowMemory election timeouts of the one before it.
	slowWrites, slowMemory = 2, 10
	// spaceFresh is for how many ticks a member's report of its space counts.
	spaceFresh = 5
)

// Yield is [event.Yield].
type Yield = event.Yield

// The reasons to hand over.
const NoYield, YieldSlow, YieldFull = event.NoYield, event.YieldSlow, event.YieldFull

// yieldState is what a leader knows to compare itself with the others.
type yieldState struct {
	rest    clock.Instant // no hand-over until then
	slow    int           // slow writes in a row
	struck  uint64        // the newest of them
	at      clock.Instant // when struck was found to be slow
	short   bool          // there is no space for clients
	since   clock.Instant // when that began
	reports map[uint64]spaceReport
	reason  Yield // of the newest hand-over
}

// spaceReport is a member's report of its space, and when it came.
type spaceReport struct {
	space memberpb.Room
	at    clock.Instant
}

// ownSpace returns whether this member has space for clients' writes. An unknown amount does not count as enough.
func (r *Replica) ownSpace() memberpb.Room {
	switch s := &r.space; {
	case s.Current() != Enough:
		return memberpb.Room_ROOM_SHORT
	case s.Limits.MinFree > 0 && s.Seen.Free == UnknownFree || s.Limits == SpaceLimits{}:
		return memberpb.Room_ROOM_UNKNOWN
	case s.Near():
		return memberpb.Room_ROOM_UNKNOWN
	}
	return memberpb.Room_ROOM_ENOUGH
}

// hearSpace notes a member's report of its space.
func (r *Replica) hearSpace(from uint64, space memberpb.Room) {
	if space == memberpb.Room_ROOM_UNKNOWN {
		return
	}
	if r.yielding.reports == nil {
		r.yielding.reports = make(map[uint64]spaceReport)
	}
	r.yielding.reports[from] = spaceReport{space, r.now}
}

// tookOver notes that this member campaigns because another one handed over.
func (r *Replica) tookOver() { r.yielding.rest = r.now.Add(YieldInterval) }

// considerYield hands over if another member is better off.
func (r *Replica) considerYield() {
	if !r.serving || r.soleVoter() || r.halted || r.left {
		r.yielding.slow, r.yielding.short = 0, false
		return
	}
	slow, full := r.fasterMembers(), r.roomierMembers()
	if len(slow)+len(full) == 0 || r.handing != nil || r.transferee != 0 || !r.now.After(r.yielding.rest) {
		return
	}
	reason, to := YieldSlow, uint64(0)
	if len(slow) > 0 {
		to = r.furthestOf(slow)
	}
	if to == 0 && len(full) > 0 {
		reason, to = YieldFull, r.furthestOf(full)
	}
	if to == 0 {
		return
	}
	r.yielding = yieldState{rest: r.now.Add(YieldInterval), reports: r.yielding.reports, reason: reason}
	r.counts.Yields++
	r.handing = r.newHanding(0)
	r.transfer(to)
}

// fasterMembers returns the members that are quick while this one is slow.
func (r *Replica) fasterMembers() []uint64 {
	i := slices.IndexFunc(r.persisting, func(p persisting) bool { return len(p.entries) > 0 })
	if i < 0 {
		return nil
	}
	y, p, timeout := &r.yielding, &r.persisting[i], r.cfg.ElectionTimeout
	age := r.now.Elapsed(p.since)
	if age >= timeout/quickPart && !p.compared {
		p.compared = true
		if age < timeout/slowPart { // otherwise this process stood still, and how quick the others were is unknown
			p.quick = r.have(p.entries[len(p.entries)-1].GetIndex())
		}
	}
	if age < timeout/slowPart || len(p.quick) == 0 {
		return nil
	}
	if y.struck != p.sequence {
		if y.slow > 0 && r.now.Elapsed(y.at) > slowMemory*timeout {
			y.slow = 0
		}
		y.slow, y.struck, y.at = y.slow+1, p.sequence, r.now
	}
	if y.slow >= slowWrites || age >= timeout/verySlowPart {
		return p.quick
	}
	return nil
}

// untilWriteIsSlow returns how long it takes until the oldest write of the log is compared with what the others have.
func (r *Replica) untilWriteIsSlow() time.Duration {
	if i := slices.IndexFunc(r.persisting, func(p persisting) bool { return len(p.entries) > 0 }); i >= 0 && !r.persisting[i].compared {
		return max(0, r.cfg.ElectionTimeout/quickPart-r.now.Elapsed(r.persisting[i].since))
	}
	return TickInterval
}

// roomierMembers returns the members that have space while this one has had none for an election timeout.
func (r *Replica) roomierMembers() (roomy []uint64) {
	y := &r.yielding
	shortage := r.space.Current()
	if short := shortage == DiskFull || shortage == QuotaExceeded; short != y.short {
		y.short, y.since = short, r.now
	}
	if !y.short || r.now.Elapsed(y.since) < r.cfg.ElectionTimeout {
		return nil
	}
	for _, id := range r.voters {
		if said := y.reports[id]; said.space == memberpb.Room_ROOM_ENOUGH && r.now.Elapsed(said.at) <= spaceFresh*TickInterval {
			roomy = append(roomy, id)
		}
	}
	return roomy
}

// have returns the other members that are known to have an entry of the log on stable storage.
func (r *Replica) have(index uint64) (ids []uint64) {
	r.raft.WithProgress(func(id uint64, kind raft.ProgressType, p tracker.Progress) { // in order of ids
		if id != r.identity.MemberID && kind == raft.ProgressTypePeer && p.RecentActive && p.Match >= index {
			ids = append(ids, id)
		}
	})
	return ids
}

// furthestOf returns which of these members has most of the log. It skips members that were not active lately, do not
// follow closely, or reported a lack of space. It returns 0 if none is left.
func (r *Replica) furthestOf(ids []uint64) (best uint64) {
	match := uint64(0)
	r.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) { // in order of ids
		if slices.Contains(ids, id) && p.RecentActive && p.State == tracker.StateReplicate && p.Match > match &&
			r.holdOffs.Left(id, r.now) == 0 && r.yielding.reports[id].space != memberpb.Room_ROOM_SHORT {
			best, match = id, p.Match
		}
	})
	return best
}
