package replica

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// A member that lacks entries which the log no longer has, or whose data directory is new, gets the leader's whole
// state. Raft only sees the index of that state: the state itself travels alongside its message, see package
// statexfer.

// sendState sends raft's message together with the state. The state contains entries that were applied after raft made
// the message, so sendState first writes the index and term of the newest of them into the message.
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
	m.Snapshot.Data = raftlog.SnapshotData(r.terms, r.level())
	message := Message{From: r.identity.MemberID, To: m.GetTo(), Raft: m, Lease: lease}
	r.emit(Ship{Message: message, State: r.db.NewSnapshot()})
}

// errSilent says that a silent leader has not sent its state. raft repeats other messages by itself. After this one
// raft sends that member nothing until it hears of the outcome.
var errSilent = errors.New("the leader keeps silent")

// onShipped reports the outcome to raft. After a failure raft finds out how far the member is, and sends a state
// again if needed.
func (r *Replica) onShipped(e Shipped) {
	status := raft.SnapshotFinish
	if e.Err != nil {
		status = raft.SnapshotFailure
	}
	r.raft.ReportSnapshot(e.To, status)
}

// spareFactor is how many times as much of the log as usual is kept, at most, for members that are catching up.
const spareFactor = 8

// spare returns up to where the log is truncated, and whether that is still due. It keeps the entries that an active
// member needs next, among them those after a state that is being sent. Without these, that member would need the
// next state as soon as it has this one, for ever while clients write much.
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
	// Truncating costs something each time, so a small part is not worth it.
	return upTo, upTo > r.log.Truncated().Index && upTo-r.log.Truncated().Index >= (index-r.log.Truncated().Index)/2
}
