package node

import (
	"context"
	"fmt"
	"io"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// ClusterConfig makes a [Node] one of several. Durations of 0 mean the defaults of [Config].
type ClusterConfig struct {
	// Self is this member's id, and Members are those of all, it among them. They and ClusterID are the same at every
	// start.
	Self      uint64
	Members   []uint64
	ClusterID uint64
	// Transport carries what members say to each other.
	Transport Transport

	ElectionTimeout time.Duration
	MasterLease     time.Duration
	ReadTimeout     time.Duration
	Drift           clock.Drift
}

// A Transport carries messages to other members. It may lose, double, delay and reorder them. Who carries them in
// the other direction calls [Node.Receive] and [Node.ReceiveState].
type Transport interface {
	// Send takes on a message. It never blocks, and drops what is too much. Urgent ones overtake the others: a group
	// should not lose its leader because much is being written. It keeps the message.
	Send(to uint64, urgent bool, message []byte)
	// Ship sends a message together with a state, and returns when the other member has taken both.
	Ship(ctx context.Context, to uint64, message []byte, state io.Reader) error
}

// alone reports whether the node is the only member.
func (n *Node) alone() bool { return n.cfg.Cluster == nil }

// maxReceived bounds the messages of others that wait for the member's goroutine.
const maxReceived = 4096

// Receive takes a message of another member, and who connected as that member with which data folder. It does not
// block, and keeps nothing of frame. What is malformed, or too much, is as good as lost.
func (n *Node) Receive(from, incarnation uint64, frame []byte) {
	m, err := message.Parse(from, n.identity.MemberID, frame)
	if err != nil {
		n.malformed.Add(1)
		return
	}
	if m.Raft != nil && m.Raft.GetType() == raftpb.MsgSnap {
		return // without its state it is nothing
	}
	n.receive(replica.Received{Message: m, Incarnation: incarnation})
}

// Connected says that a member has connected, and with which data folder: those that elect no leader together seldom
// have anything else to say to each other, and should know each other's folders all the same.
func (n *Node) Connected(from, incarnation uint64) {
	n.receive(replica.Received{Message: replica.Message{From: from, To: n.identity.MemberID}, Incarnation: incarnation})
}

func (n *Node) receive(e replica.Received) bool {
	select {
	case n.received <- e:
		return true
	default:
		n.overrun.Add(1)
		return false
	}
}

// Unreachable says that messages to a member are being lost.
func (n *Node) Unreachable(member uint64) {
	select {
	case n.received <- replica.Unreachable{Member: member}:
	default: // the next one will say so too
	}
}

// dispatch hands a message to the transport, if the authority that it rests on still holds.
func (n *Node) dispatch(e replica.Send) {
	if !replica.Holds(e, clock.Now) {
		return // the follower asks again
	}
	bulk := e.Message.Raft != nil && e.Message.Raft.GetType() == raftpb.MsgApp && len(e.Message.Raft.GetEntries()) > 0
	n.cfg.Cluster.Transport.Send(e.Message.To, !bulk, e.Message.AppendTo(nil))
}

// lastWords tells the others that this member cannot go on, if it has led them and Step does not know yet: it may be
// the database that has said so.
func (n *Node) lastWords() {
	for _, effect := range n.replica.Abandon(clock.Now()) {
		n.dispatch(effect.(replica.Send)) // it is nothing else
	}
}

// Incarnation returns the number of this data folder, by which other members know it again.
func (n *Node) Incarnation() uint64 { return n.incarnation }

// Leader returns the leader that this member knows of, 0 if none, and the term. It does not say that it still leads.
func (n *Node) Leader() (id, term uint64) {
	known := n.leader.Load()
	return known.id, known.term
}

// known is who leads in a term, 0 if nobody is known. The two are read together: with another's term a leader would
// be taken for the next one.
type known struct{ id, term uint64 }

// AwaitLeader returns the leader as soon as this member knows one. It waits for as long as ctx and the configured
// ReadTimeout allow; after that the error is [ErrNoLeader].
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

// leaderChange returns a channel that is closed when another leads, or nobody.
func (n *Node) leaderChange() <-chan struct{} {
	n.leaderMu.Lock()
	defer n.leaderMu.Unlock()
	return n.leaderChanged
}

// noticeLeader publishes who leads; it is called by who owns the replica.
func (n *Node) noticeLeader() {
	leader, term := n.replica.Leader()
	if leader == n.identity.MemberID && !n.replica.Serving() {
		leader = 0 // it is not yet of use to anybody
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

// noticeFault tells when the clocks are not trusted any more, or again; it is called by who owns the replica.
func (n *Node) noticeFault(now clock.Instant) {
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

// noticeYield tells when this member hands over on its own account; it is called by who owns the replica.
func (n *Node) noticeYield() {
	yields := n.replica.Yields()
	if yields == n.yields {
		return
	}
	n.yields = yields
	reason, to := n.replica.Yielding()
	n.log.Warn("this leader hands over to a member that is better off", "reason", reason,
		"to", fmt.Sprintf("%x", to), "next_in", replica.YieldInterval)
}

// rejectedInterval is how often it is told at most that a member is not listened to.
const rejectedInterval = time.Minute

// logRejectedPeer tells that a member is not listened to; it is called by who owns the replica.
func (n *Node) logRejectedPeer(now clock.Instant) {
	refused, last := n.replica.Refused()
	if refused == n.rejected || n.rejected > 0 && now.Elapsed(n.rejectedAt) < rejectedInterval {
		return
	}
	n.rejected, n.rejectedAt = refused, now
	n.log.Error("messages of a member are refused: it is not of this group, or its data folder is not the one that it had; "+
		"a member whose folder is lost has forgotten what it promised and cannot come back under its id",
		"member", fmt.Sprintf("%x", last), "refused", refused)
}

// newInterval is how often it is told at most for what a new member waits.
const newInterval = 30 * time.Second

// noticeNew tells for what a new member waits; it is called by who owns the replica.
func (n *Node) noticeNew(now clock.Instant) {
	awaits := n.replica.Awaits()
	if awaits == "" {
		n.awaits.Store(nil)
		return
	}
	n.awaits.Store(&awaits)
	if n.newAt == (clock.Instant{}) { // the others have not yet had the time to answer
		n.newAt = now.Add(2*time.Second - newInterval)
	}
	if now.Elapsed(n.newAt) < newInterval {
		return
	}
	n.newAt = now
	n.log.Warn("this member is new, and has no vote until all members of --initial-cluster know its data folder: a cluster is founded when all are there; "+
		"if one will never come, see leasekeeper found", "waits", awaits)
}

// Found has a new member found its group without the members that are missing. It refuses with [ErrFounding].
func (n *Node) Found(ctx context.Context) error {
	id := n.nextID.Add(1)
	_, _, err := typed[replica.Result](n.ask(ctx, id, replica.Found{ID: id}))
	return err
}

// HandOver makes another member the leader, 0 meaning the one that is furthest. Only the leader can; others return
// [ErrNotLeader]. With [ErrHandOver] this member leads on.
func (n *Node) HandOver(ctx context.Context, to uint64) error {
	id := n.nextID.Add(1)
	_, _, err := typed[replica.Result](n.ask(ctx, id, replica.HandOver{ID: id, To: to}))
	return err
}

// leave takes this member's leave, so that the others need not wait for it. It is bounded: a group that cannot elect
// another leader does not keep a process from ending.
func (n *Node) leave(ctx context.Context) {
	if n.alone() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*n.electionTimeout()+replica.TickInterval)
	defer cancel()
	id := n.nextID.Add(1)
	if _, err := n.ask(ctx, id, replica.Leave{ID: id}); err != nil && n.Err() == nil {
		n.log.Warn("member leaves without having handed over", "error", err)
	}
}

// Cluster returns how the group looks from here.
func (n *Node) Cluster(ctx context.Context) (replica.ClusterStatus, error) {
	s, err := look(ctx, n, (*replica.Replica).Cluster)
	if err != nil {
		return replica.ClusterStatus{}, err
	}
	s.Malformed, s.Overrun = n.malformed.Load()+s.Counts.Malformed, n.overrun.Load()
	return s, nil
}
