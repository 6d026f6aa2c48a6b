package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/internal/replica/yield"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// ClusterConfig makes a [Node] a member of a cluster that can have several. Durations of 0 mean the defaults of
// [replica.Config].
type ClusterConfig struct {
	// Members are the IDs of the founders of the cluster, Self among them. Self, Members and ClusterID must be the same at
	// every start until the members of the cluster change; from then on they do not matter. Without Members the node is
	// the only founder, or goes on as the single server whose data directory it has. Self and ClusterID do not matter then.
	Self      uint64
	Members   []uint64
	ClusterID uint64
	// Founders describe the founders, for the list of members. A founder with ID 0 is the only one.
	Founders []roster.Member
	// Join, if not nil, makes a member with an empty data directory join a cluster. It returns which cluster that is. Start
	// calls it once, and its errors say how to fix the cause. A data directory that has a member belongs to that member's
	// cluster, and Join is not called. A founder still needs Members then, so both may be set.
	Join func(context.Context) (Invitation, error)
	// Reconfigured, if not nil, receives the list of members when the node starts, and whenever this member has applied a
	// change of it. It must not block. The list must not be modified.
	Reconfigured func([]roster.Member)
	// Transport carries the messages between members.
	Transport Transport

	ElectionTimeout time.Duration
	MasterLease     time.Duration
	ReadTimeout     time.Duration
	Drift           clock.Drift
}

// A Transport carries messages to other members. It may lose, duplicate, delay and reorder them. On the receiving
// side it calls [Node.Receive] and [Node.ReceiveState].
type Transport interface {
	// Send queues a message. It never blocks, keeps message, and drops what exceeds its queue. Urgent messages
	// overtake the others, so that a cluster does not lose its leader because of many writes.
	Send(to uint64, urgent bool, message []byte)
	// Ship sends a message together with a state. It returns when the other member has taken both.
	Ship(ctx context.Context, to uint64, message []byte, state io.Reader) error
}

// alone reports whether the node is the only member, and can never have another: it has no address for others.
func (n *Node) alone() bool { return n.cfg.Cluster == nil }

// maxReceived bounds the messages of other members that wait for the member's goroutine.
const maxReceived = 4096

// Receive queues a message of another member; incarnation identifies the data directory with which that member
// connected. Receive does not block and keeps no reference to frame. It drops a malformed message, and any message
// if the queue is full.
func (n *Node) Receive(from, incarnation uint64, frame []byte) {
	m, err := message.Parse(from, n.identity.MemberID, frame)
	if err != nil {
		n.malformed.Add(1)
		return
	}
	if m.Raft != nil && m.Raft.GetType() == raftpb.MsgSnap {
		return // a snapshot message without its state is useless
	}
	n.enqueueReceived(replica.Received{Message: m, Incarnation: incarnation})
}

// Connected reports that a member has connected, and with which data directory. Members that elect no leader together
// seldom send other messages, but they must still know each other's directories.
func (n *Node) Connected(from, incarnation uint64) {
	n.enqueueReceived(replica.Received{Message: replica.Message{From: from, To: n.identity.MemberID}, Incarnation: incarnation})
}

func (n *Node) enqueueReceived(e replica.Received) bool {
	select {
	case n.received <- e:
		return true
	default:
		n.overrun.Add(1)
		return false
	}
}

// Unreachable reports that messages to a member are being lost.
func (n *Node) Unreachable(member uint64) {
	select {
	case n.received <- replica.Unreachable{Member: member}:
	default: // a later report will say the same
	}
}

// dispatch hands a message to the transport, if the authority behind the message still holds.
func (n *Node) dispatch(e replica.Send) {
	if !replica.Holds(e, clock.Now) {
		return // the follower will ask once more
	}
	bulk := e.Message.Raft != nil && e.Message.Raft.GetType() == raftpb.MsgApp && len(e.Message.Raft.GetEntries()) > 0
	n.cfg.Cluster.Transport.Send(e.Message.To, !bulk, e.Message.AppendTo(nil))
}

// announceFailure notifies the other members that this leader cannot go on. Step may not know yet, because the
// database itself may have reported the failure.
func (n *Node) announceFailure() {
	for _, effect := range n.replica.Abandon(clock.Now()) {
		n.dispatch(effect.(replica.Send)) // Abandon returns Sends only
	}
}

// Incarnation returns the number of this data directory, by which other members recognise it.
func (n *Node) Incarnation() uint64 { return n.incarnation }

// Leader returns the leader that this member knows, 0 if none, and the term. That leader may have lost its leadership
// since.
func (n *Node) Leader() (id, term uint64) {
	known := n.leader.Load()
	return known.id, known.term
}

// known is the leader of a term; id 0 means that none is known. Readers load both together: with a stale id and a new
// term, the old leader would pass for the new one.
type known struct{ id, term uint64 }

// AwaitLeader returns the leader as soon as this member knows one. It waits for at most the configured ReadTimeout,
// and then returns [replica.ErrNoLeader].
func (n *Node) AwaitLeader(ctx context.Context) (uint64, error) {
	timeout := n.readTimeout()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		changed := n.leaderChange()
		if id := n.leader.Load().id; id != 0 {
			return id, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return 0, replica.ErrNoLeader
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-n.done:
			return 0, ErrStopped
		}
	}
}

func (n *Node) readTimeout() time.Duration {
	if n.cfg.Cluster == nil || n.cfg.Cluster.ReadTimeout == 0 {
		return replica.DefaultReadTimeout
	}
	return n.cfg.Cluster.ReadTimeout
}

func (n *Node) electionTimeout() time.Duration {
	if n.cfg.Cluster == nil || n.cfg.Cluster.ElectionTimeout == 0 {
		return replica.DefaultElectionTimeout
	}
	return n.cfg.Cluster.ElectionTimeout
}

// leaderChange returns a channel that is closed when the known leader changes.
func (n *Node) leaderChange() <-chan struct{} {
	n.leaderMu.Lock()
	defer n.leaderMu.Unlock()
	return n.leaderChanged
}

// publishLeader stores the leader that the replica knows, and wakes AwaitLeader. The caller holds owner.
func (n *Node) publishLeader() {
	leader, term := n.replica.Leader()
	if leader == n.identity.MemberID && !n.replica.Serving() {
		leader = 0 // it cannot serve requests yet
	}
	before := *n.leader.Load()
	if before == (known{leader, term}) {
		return
	}
	n.leader.Store(&known{leader, term})
	if leader == before.id {
		return
	}
	n.leaderMu.Lock()
	close(n.leaderChanged)
	n.leaderChanged = make(chan struct{})
	n.leaderMu.Unlock()
	if !n.alone() {
		n.log.Info("leader", "member", fmt.Sprintf("%x", leader), "term", term, "self", leader == n.identity.MemberID)
	}
}

// logClockFault logs when the clocks stop being trusted, and when they are trusted again. The caller holds owner.
func (n *Node) logClockFault(now clock.Instant) {
	fault := n.replica.ClockFault(now)
	if n.alone() || fault == n.fault {
		return
	}
	n.fault = fault
	if fault == masterlease.NoFault {
		n.log.Info("clocks are trusted again")
	} else {
		n.log.Error("a clock is beyond its bound: no answers by master lease, each costs a round of messages; see to the clocks, or raise --clock-drift", "fault", fault.String())
	}
}

// logHandOver logs when this leader hands over voluntarily. The caller holds owner.
func (n *Node) logHandOver() {
	yields := n.replica.Yields()
	if yields == n.handOvers {
		return
	}
	n.handOvers = yields
	reason, to := n.replica.Yielding()
	n.log.Warn("this leader hands over to a member that can serve better", "reason", reason,
		"to", fmt.Sprintf("%x", to), "next_in", yield.Interval)
}

// rejectedLogInterval is the minimum time between two log lines about rejected messages.
const rejectedLogInterval = time.Minute

// logRejectedPeer logs that the replica rejects a member's messages. The caller holds owner.
func (n *Node) logRejectedPeer(now clock.Instant) {
	refused, last := n.replica.Refused()
	if refused == n.rejected || n.rejected > 0 && now.Elapsed(n.rejectedAt) < rejectedLogInterval {
		return
	}
	n.rejected, n.rejectedAt = refused, now
	n.log.Error("messages of a member are refused: it is not of this cluster, or its data directory is not the one that it had; "+
		"a member whose data directory is lost has forgotten its promises and cannot come back under its id",
		"member", fmt.Sprintf("%x", last), "refused", refused)
}

// foundingLogInterval is the minimum time between two log lines about a new member's wait.
const foundingLogInterval = 30 * time.Second

// logFounding logs what a new member waits for. The caller holds owner.
func (n *Node) logFounding(now clock.Instant) {
	awaits := n.replica.Awaits()
	if awaits == "" {
		n.awaits.Store(nil)
		return
	}
	n.awaits.Store(&awaits)
	if n.foundingLogged == (clock.Instant{}) { // first give the other members two seconds to answer
		n.foundingLogged = now.Add(2*time.Second - foundingLogInterval)
	}
	if now.Elapsed(n.foundingLogged) < foundingLogInterval {
		return
	}
	n.foundingLogged = now
	n.log.Warn("this member is new, and has no vote until all members of --initial-cluster know its data directory: a cluster is founded when all are there; "+
		"if one will never come, see leasekeeper found", "waits", awaits)
}

// Found makes a new member found its cluster without the missing members. It refuses with [replica.ErrFounding].
func (n *Node) Found(ctx context.Context) error {
	id := n.nextID.Add(1)
	_, _, err := typed[replica.Result](n.ask(ctx, id, replica.Found{ID: id}))
	return err
}

// HandOver makes another member the leader; to 0 chooses the member with the most complete log. Only the leader can
// do this; others return [replica.ErrNotLeader]. After [replica.ErrHandOver] this member remains the leader.
func (n *Node) HandOver(ctx context.Context, to uint64) error {
	id := n.nextID.Add(1)
	_, _, err := typed[replica.Result](n.ask(ctx, id, replica.HandOver{ID: id, To: to}))
	return err
}

// leave announces this member's end, so that the others need not wait for its leases. Its time is bounded: a cluster
// that cannot elect another leader does not keep a process from ending.
func (n *Node) leave(ctx context.Context) {
	if n.alone() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*n.electionTimeout()+replica.TickInterval)
	defer cancel()
	id := n.nextID.Add(1)
	if _, err := n.ask(ctx, id, replica.Leave{ID: id}); err != nil && !errors.Is(err, ErrStopped) {
		n.log.Warn("member leaves without having handed over", "error", err)
	}
}

// Cluster returns the cluster's state as this member sees it.
func (n *Node) Cluster(ctx context.Context) (replica.ClusterStatus, error) {
	s, err := look(ctx, n, (*replica.Replica).Cluster)
	if err != nil {
		return replica.ClusterStatus{}, err
	}
	s.Malformed, s.Overrun = n.malformed.Load()+s.Counts.Malformed, n.overrun.Load()
	return s, nil
}
