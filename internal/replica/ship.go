package replica

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// A member that was away for longer than the log reaches back, or whose data folder is new, gets the whole state of
// the leader. Raft only sees which entry that is of: the state itself travels beside its message, see state.go.

// sendState has raft's message sent together with the state. What was applied since raft made the message is in it, so
// the message is made to say so.
func (r *Replica) sendState(m *raftpb.Message, lease masterlease.Header) {
	snapshot, err := r.log.Snapshot()
	if err == nil {
		err = r.Flush() // the buffer is not part of what others get
	}
	if err != nil {
		r.onShipped(Shipped{To: m.GetTo(), Err: err})
		return
	}
	m = proto.CloneOf(m)
	m.Snapshot = snapshot
	m.Snapshot.Data = newRecord(record.KeyTerms, r.terms.Record()).Value
	message := Message{From: r.identity.MemberID, To: m.GetTo(), Raft: m, Lease: lease}
	r.emit(Ship{message, r.db.NewSnapshot()})
}

// errSilent says that a leader which keeps silent has not sent its state. Other messages of raft are repeated by themselves;
// after this one raft sends that member nothing until it hears of the outcome.
var errSilent = errors.New("the leader keeps silent")

// onShipped tells raft how it went. If it went wrong, raft finds out how far the member is, and has a state shipped
// again if it still takes that.
func (r *Replica) onShipped(e Shipped) {
	status := raft.SnapshotFinish
	if e.Err != nil {
		status = raft.SnapshotFailure
	}
	r.raft.ReportSnapshot(e.To, status)
}

// spareFactor is how many times as much of the log is kept as usual, at the most, for members that are on their way to catch
// up.
const spareFactor = 8

// spare returns up to where the log is truncated, if that is due, and whether it is. Entries that a member which is there
// goes on with are kept, behind the state that it is being sent among others, or it would need the next state as soon as it
// has that one, for ever while much is written.
func (r *Replica) spare(index uint64, due bool) (upTo uint64, still bool) {
	if !due || !r.leading {
		return index, due
	}
	upTo = index
	r.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		has := max(p.Match, p.PendingSnapshot)
		if p.State == tracker.StateProbe {
			has = p.Next - 1 // behind a state that has just been sent
		}
		if id != r.identity.MemberID && p.RecentActive {
			upTo = min(upTo, has)
		}
	})
	if r.applied.Index-upTo > spareFactor*r.cfg.LogKeep || r.log.Steps() > spareFactor*raftlog.MaxSteps {
		return index, true
	}
	// Not bit by bit: each time costs something.
	return upTo, upTo > r.log.Truncated().Index && upTo-r.log.Truncated().Index >= (index-r.log.Truncated().Index)/2
}
