package replica

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// considerYield hands over if another member is better off, see package yield.
func (r *Replica) considerYield() {
	if !r.serving || r.soleVoter() || r.halted || r.left {
		r.yielding.Forget()
		return
	}
	faster, roomier := r.fasterMembers(), r.yielding.Roomier(r.now, r.space.Current(), r.voters)
	if len(faster)+len(roomier) == 0 || r.handing != nil || r.transferee != 0 {
		return
	}
	to := r.yielding.Choose(r.now, faster, roomier, r.furthestOf)
	if to == 0 {
		return
	}
	r.counts.Yields++
	r.handing = r.newHanding(0)
	r.transfer(to)
}

// oldestWrite returns the oldest write of the log that is in progress; nil if there is none.
func (r *Replica) oldestWrite() *persisting {
	i := slices.IndexFunc(r.persisting, func(p persisting) bool { return len(p.entries) > 0 })
	if i < 0 {
		return nil
	}
	return &r.persisting[i]
}

// fasterMembers returns the members that are quick while this one is slow.
func (r *Replica) fasterMembers() []uint64 {
	p := r.oldestWrite()
	if p == nil {
		return nil
	}
	return r.yielding.Faster(r.now, &p.Write, func() []uint64 { return r.have(p.entries[len(p.entries)-1].GetIndex()) })
}

// untilWriteIsSlow returns how long it takes until the oldest write of the log is compared with what the others have.
func (r *Replica) untilWriteIsSlow() time.Duration {
	if p := r.oldestWrite(); p != nil && !p.Compared() {
		return r.yielding.UntilCompared(r.now, &p.Write)
	}
	return TickInterval
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
			r.holdOffs.Left(id, r.now) == 0 && !r.yielding.LacksRoom(id) {
			best, match = id, p.Match
		}
	})
	return best
}
