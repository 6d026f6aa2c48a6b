package replica

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/internal/replica/yield"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// membership is what a member knows of the others, and the promises between them.
type membership struct {
	incarnation uint64
	life        uint64 // where this process's numbers of requests to others begin; no earlier process of the member reached it
	// roster is the applied list of members; empty while the members never changed. voters and learners are sorted. others
	// are all of them but this member.
	roster                   roster.Roster
	stableRoster             roster.Roster // the newest that is on stable storage: others hear only of removals in it
	askedRemoval             clock.Instant
	voters, learners, others []uint64
	changing                 *changing // nil: no change that this leader proposed is under way
	delayed                  *parked   // the change that waits until another one is made; nil: none
	// peers holds the incarnation of each other member that ever connected. An incarnation is on stable storage before a
	// message of that member counts.
	peers   map[uint64]uint64
	grantor *masterlease.Grantor
	holder  *masterlease.Holder

	holdOffs masterlease.HoldOffs // of members that have just started, as they said

	leader     uint64        // the leader that raft follows; 0: none
	transferee uint64        // the member to which this leader is handing over; 0: none
	heard      clock.Instant // when a leader was last heard, or this member started
	campaignAt clock.Instant // when this member campaigns at the earliest
	attempts   int           // campaigns since a leader was last heard
	asked      uint64        // the newest of raft's rounds that a heartbeat of this term named
	// carried is the release that came with the order to campaign. This member sends it along with its requests for votes.
	carried *masterlease.Release
	handing *handing
	// ordered is an order to campaign that came during this member's vote hold-off. It is processed after the hold-off, as
	// if it came only then. nil: none.
	ordered *Received
	left    bool   // this member has left, see Leave
	fresh   *fresh // nil: this member has joined a founded cluster

	founding bool // since its start this member has founded the cluster without some members, by order

	refusedLast uint64 // the member whose message was rejected last; see Counts.RejectedPeers
}

// DefaultElectionTimeout is how long members go without a leader before they elect another one.
const DefaultElectionTimeout = time.Second

// DefaultReadTimeout bounds how long a question waits for a leader, or for its lease.
const DefaultReadTimeout = time.Second

// alone reports whether this member is the only one of its cluster. Then it waits for no other member.
func (r *Replica) alone() bool { return r.soleVoter() && len(r.learners) == 0 }

// soleVoter reports whether this member is the only voter. Then it needs no other member to lead.
func (r *Replica) soleVoter() bool { return len(r.voters) == 1 && r.voters[0] == r.identity.MemberID }

// silence returns after which silence a leader counts as gone. It is shorter than the usual promise by a heartbeat,
// because appends end the silence too and make no promise. The promise then decides when another leader is elected.
func (r *Replica) silence() time.Duration {
	if r.cfg.Eager {
		return 0
	}
	return r.cfg.ElectionTimeout / 10 * 8
}

// silent reports whether the leader counts as gone, or there is none.
func (r *Replica) silent() bool { return !r.leading && r.now.Elapsed(r.heard) >= r.silence() }

// join sets up the relations to the other members when the member starts.
func (r *Replica) join() error {
	if removed, err := record.IsRemoved(r.db); err != nil || removed {
		return cmp.Or(err, error(&RemovedError{Member: r.identity.MemberID}))
	}
	if err := r.checkSameCluster(); err != nil {
		return err
	}
	peers, promised := new(logpb.Peers), new(logpb.Promised)
	if _, err := record.Load(r.db, record.KeyPeers, peers); err != nil {
		return err
	}
	r.peers = make(map[uint64]uint64)
	for _, p := range peers.Peers {
		r.peers[p.MemberId] = p.Incarnation
	}
	recorded, err := record.Load(r.db, record.KeyPromised, promised)
	if err != nil {
		return err
	}
	// An empty directory does not prove that nothing was ever promised, so a founder with other members waits as well. A
	// member that is alone now has a record if its cluster ever had another voter.
	past := masterlease.Past{Bootstrap: r.soleVoter() && !recorded, Longest: time.Duration(promised.LongestNs)}
	r.grantor, err = masterlease.NewGrantor(masterlease.GrantorConfig{
		Drift: r.cfg.Drift, Domain: r.clockID(), MaxDuration: max(masterlease.DefaultMaxDuration, r.cfg.MasterLease),
	}, past, r.cfg.Now)
	if err != nil {
		return err
	}
	r.holder, err = masterlease.NewHolder(masterlease.HolderConfig{
		ID: r.identity.MemberID, Drift: r.cfg.Drift, Duration: r.cfg.MasterLease,
		LagLimit: max(2*r.cfg.MasterLease, r.cfg.ElectionTimeout*3/2), // longer than healthy disks may pause
	})
	if err != nil {
		return err
	}
	// An answer to an earlier process of this member must not fit a request of this one.
	r.life = r.clockID() + uint64(r.cfg.Now.Raw)
	r.forwarded.sequence = r.life &^ otherIDs
	if err := r.recoverFresh(); err != nil {
		return err
	}
	r.configureHolder()
	r.heard = r.cfg.Now
	r.awaitLeader()
	return nil
}

// checkSameCluster compares the cluster in the configuration with the one to which the data belongs.
func (r *Replica) checkSameCluster() error {
	if !r.roster.Empty() || r.cfg.Joins || len(r.voters) == 0 { // the data says who the members are, so only the cluster is compared
		if r.cfg.ClusterID != 0 && r.cfg.ClusterID != r.identity.ClusterID {
			return fmt.Errorf("the data belongs to cluster %x, and the configuration says cluster %x: use another data directory", r.identity.ClusterID, r.cfg.ClusterID)
		}
		return nil
	}
	wanted := r.cfg.Members
	if len(wanted) == 0 {
		wanted = []uint64{r.identity.MemberID}
	}
	if !slices.Equal(slices.Sorted(slices.Values(wanted)), r.voters) || len(r.cfg.Members) > 0 &&
		(r.cfg.ClusterID != r.identity.ClusterID || r.cfg.MemberID != r.identity.MemberID) {
		return fmt.Errorf("the data belongs to member %x of cluster %x with members %x, and the configuration says member %x of cluster %x "+
			"with members %x: start it with the names it was founded with, or use another data directory",
			r.identity.MemberID, r.identity.ClusterID, r.voters, r.cfg.MemberID, r.cfg.ClusterID, wanted)
	}
	return nil
}

// clockID identifies this process's clocks to the other members, which only compare it with its former value.
func (r *Replica) clockID() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, r.cfg.Domain, r.incarnation, r.instants.Domain()) // the last differs if one domain had two sets of clocks
	if r.cfg.Domain == clock.UnknownDomain {
		fmt.Fprint(h, r.cfg.Now)
	}
	return h.Sum64()
}

// onReceived processes a message of another member.
func (r *Replica) onReceived(e Received) {
	m := e.Message
	r.receiving(e)
	if r.halted {
		return
	}
	acquainted := r.acquainted(m.From, e.Incarnation)
	if m.Removed && acquainted {
		r.onRemoved()
		return
	}
	if m.Standing != nil {
		r.onStanding(m.From, *m.Standing, acquainted)
	}
	if !acquainted {
		return
	}
	r.holdOffs.Hear(m.From, m.HoldOff, r.now)
	if m.Raft != nil {
		r.gates.Hear(m.From, gate.Version(m.Level))
		r.receiveRaft(e)
	} else if m.Lease.Release != nil {
		r.released(*m.Lease.Release)
	}
	for _, renewal := range m.Renewals {
		r.renewForOther(m.From, renewal)
	}
	for _, renewed := range m.Renewed {
		r.renewedByLeader(renewed)
	}
}

// acquainted reports whether a message of that member counts: it was not removed, and its data directory is the one
// that it always had. An emptied directory has forgotten votes, entries and promises. The sender need not be in the list
// of members that this one has applied: the next leader may be a member that this one has not heard of yet. The first
// message of a member only makes this member write down the incarnation; otherwise it is lost, and its sender repeats it.
func (r *Replica) acquainted(member, incarnation uint64) bool {
	if r.roster.Removed(member) {
		r.rejectPeer(member)
		if r.stableRoster.Removed(member) {
			r.sendMessage(Message{To: member, Removed: true}, forever)
		}
		return false
	}
	listed, _ := r.roster.Member(member)
	if member == r.identity.MemberID || listed.Incarnation != 0 && listed.Incarnation != incarnation {
		r.rejectPeer(member)
		return false
	}
	known, ok := r.peers[member]
	if !ok {
		if len(r.peers) >= maxPeers && !slices.Contains(r.everyone(), member) {
			r.rejectPeer(member)
		} else if incarnation != 0 {
			r.acquaint(member, incarnation)
		}
		return false
	}
	bound := listed.Incarnation != 0 // to this incarnation: the member had another one before a leader heard it
	if known != incarnation && (bound || r.mayReplaceDirectory(incarnation)) {
		r.acquaint(member, incarnation)
	} else if known != incarnation {
		r.rejectPeer(member)
	}
	return known == incarnation
}

// maxPeers bounds the members whose directories this member remembers, if they are not in its list.
const maxPeers = 256

func (r *Replica) rejectPeer(member uint64) {
	r.counts.RejectedPeers++
	r.refusedLast = member
}

func (r *Replica) acquaint(member, incarnation uint64) {
	if slices.ContainsFunc(r.persisting, func(p persisting) bool { return p.peer == member }) {
		return
	}
	m := &logpb.Peers{Peers: []*logpb.Peer{{MemberId: member, Incarnation: incarnation}}}
	for _, id := range slices.Sorted(maps.Keys(r.peers)) {
		if id != member && !r.roster.Removed(id) {
			m.Peers = append(m.Peers, &logpb.Peer{MemberId: id, Incarnation: r.peers[id]})
		}
	}
	for _, p := range r.persisting { // other members whose first message came at the same time
		if p.peer != 0 {
			m.Peers = append(m.Peers, &logpb.Peer{MemberId: p.peer, Incarnation: p.incarnation})
		}
	}
	if r.fresh != nil {
		delete(r.fresh.Stands, member) // it was about a former directory
	}
	batch := r.db.NewBatch()
	record.Put(batch, record.KeyPeers, m)
	r.persistOwn(persisting{peer: member, incarnation: incarnation}, batch)
}

// receiveRaft lets raft see a message, unless a promise of this member forbids it.
func (r *Replica) receiveRaft(e Received) {
	m, lease := e.Message.Raft, e.Message.Lease
	if !r.plausible(m) {
		r.counts.Malformed++
		return
	}
	if err := r.forked(m); err != nil {
		r.haltWith(err)
		return
	}
	if !r.mayStep(e) || !r.stepRaft(m) {
		return
	}
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		r.heardLeader(m, lease.Request)
	case raftpb.MsgAppResp, raftpb.MsgHeartbeatResp:
		r.yielding.Hear(r.now, m.GetFrom(), e.Message.Room)
		if lease.Grant != nil {
			r.holder.Receive(m.GetFrom(), *lease.Grant, r.now)
		}
	}
}

// mayStep reports whether raft may see a message now. A request for a vote waits in the grantor until no promise forbids
// the vote; a read index from a follower is answered from the master lease if that is valid.
func (r *Replica) mayStep(e Received) bool {
	m, lease := e.Message.Raft, e.Message.Lease
	switch m.GetType() {
	case raftpb.MsgPreVote, raftpb.MsgVote:
		r.ballot(m, lease.Release)
		return false
	case raftpb.MsgTimeoutNow:
		if r.left || r.fresh != nil || !r.grantor.TimeoutNow(lease.Release, r.now) {
			r.ordered = nil
			if r.fresh == nil && r.grantor.InHoldOff(r.now) {
				r.ordered = &e
			}
			return false
		}
		r.carried = lease.Release
		r.yielding.TookOver(r.now)
	case raftpb.MsgPreVoteResp, raftpb.MsgVoteResp:
		return m.GetReject() || !r.doubtfulVote(m.GetFrom()) && r.grantor.VoteAnswer(r.now)
	case raftpb.MsgApp, raftpb.MsgHeartbeat:
		if r.lacks(m) {
			return false
		}
		r.holder.HearLeader(m.GetTerm(), r.now)
	case raftpb.MsgSnap:
		if e.State == nil {
			return false // without the state the message is useless
		}
		r.holder.HearLeader(m.GetTerm(), r.now)
	case raftpb.MsgReadIndex:
		// raft would forward it under the follower's name. Dropping it is as good as losing it: the follower asks again.
		// Of a sole voter raft answers even before an entry of its term is committed, and so with an index that may be old.
		return r.leading && (r.serving || !r.soleVoter()) && !r.answerReadIndex(m)
	case raftpb.MsgReadIndexResp:
		if _, known := r.settledTerm(m.GetIndex()); !known && m.GetIndex() <= r.settled {
			return false // it does not show that the leader has what this member has; the follower asks again
		}
	case raftpb.MsgAppResp, raftpb.MsgHeartbeatResp:
	default:
		return false // a message of no other type comes from another member
	}
	return true
}

// doubtfulVote reports whether a vote must not count, because the voter was added without being bound to a data
// directory yet: it may have acknowledged entries with another one. With two voters both must agree to everything, so
// there the vote counts.
func (r *Replica) doubtfulVote(from uint64) bool { return r.roster.Unbound(from) && len(r.voters) > 2 }

// plausible reports whether raft can be trusted with a message. raft has three weaknesses:
//
//   - A message without a term counts as raft's own.
//   - The context of an answer to a heartbeat counts as the number of a round, whatever its length. It confirms all
//     rounds up to that number, even rounds that never began.
//   - An acknowledgement of entries that this leader never had counts as soon as it has other entries in their places.
func (r *Replica) plausible(m *raftpb.Message) bool {
	round := m.GetContext()
	switch {
	case m.GetTerm() == 0:
		return m.GetType() == raftpb.MsgReadIndex // raft sends these without a term
	case m.GetType() == raftpb.MsgHeartbeatResp && m.GetTerm() == r.term && len(round) > 0:
		return len(round) == 8 && binary.LittleEndian.Uint64(round) <= r.asked
	case m.GetType() == raftpb.MsgAppResp && m.GetTerm() == r.term && r.leading && !m.GetReject():
		return m.GetIndex() <= r.log.Written()
	}
	return true
}

// lacks halts a member whose leader believes that it has more entries than it has. A heartbeat names the commit index
// of entries that the member has acknowledged. So those were lost here, and its vote may be lost too.
func (r *Replica) lacks(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgHeartbeat || m.GetTerm() < r.term || m.GetCommit() <= r.log.Written() || r.installing {
		return false
	}
	r.haltWith(fmt.Errorf("this member has acknowledged entry %d to its cluster, and its log ends at %d: the data directory was emptied or is an old copy, "+
		"or the disk has lost writes that it had confirmed; put the right directory back, or leave this member out", m.GetCommit(), r.log.Written()))
	return true
}

// stepRaft lets raft see a message, and reports whether raft accepted it.
func (r *Replica) stepRaft(m *raftpb.Message) bool {
	err := r.raft.Step(m)
	r.observe()
	return err == nil
}

// heardLeader notes a message of the leader, after raft has processed it.
func (r *Replica) heardLeader(m *raftpb.Message, request *masterlease.Request) {
	state := r.raftState()
	if state.Role != masterlease.Follower || state.Leader != m.GetFrom() || state.Term != m.GetTerm() {
		return
	}
	r.heard, r.attempts, r.carried = r.now, 0, nil
	r.awaitLeader()
	if request == nil {
		return
	}
	r.grantor.Hear(masterlease.Heard{From: m.GetFrom(), Term: m.GetTerm(), Request: *request}, state, r.now)
	if longest, needed := r.grantor.ToPersist(); needed {
		r.rememberPromise(longest)
	}
}

// rememberPromise persists the longest promise before the first promise of that length is made.
func (r *Replica) rememberPromise(longest time.Duration) {
	if slices.ContainsFunc(r.persisting, func(p persisting) bool { return p.promised >= longest }) {
		return
	}
	batch := r.db.NewBatch()
	record.Put(batch, record.KeyPromised, &logpb.Promised{LongestNs: int64(longest)})
	r.persistOwn(persisting{promised: longest}, batch)
}

// raftState returns this member's role as raft sees it.
func (r *Replica) raftState() masterlease.State {
	status := r.raft.BasicStatus()
	s := masterlease.State{Term: status.HardState.GetTerm(), Leader: status.Lead, Transferee: status.LeadTransferee}
	switch status.RaftState {
	case raft.StateLeader:
		s.Role = masterlease.Leader
	case raft.StateCandidate:
		s.Role = masterlease.Candidate
	case raft.StatePreCandidate:
		s.Role = masterlease.PreCandidate
	}
	return s
}

// observe notes what a call of raft has changed. It is called after each such call, and before any of its results is
// handed out: a deposed leader has no authority when others learn of it.
func (r *Replica) observe() {
	s := r.raftState()
	release, gaveUp := r.holder.Observe(s, r.now)
	r.transferee = s.Transferee
	if s.Term != r.term || r.leading != (s.Role == masterlease.Leader) {
		if r.leading { // even if it never served: commands may wait in its queue
			r.stepDown()
		}
		r.term, r.leading, r.asked = s.Term, s.Role == masterlease.Leader, 0
		r.gates.Lead()
		r.configureHolder() // a change that an earlier leadership proposed no longer counts
		if r.leading && !r.grantor.Elected(r.now) {
			panic(fmt.Sprintf("replica: member %x was elected in term %d in spite of its promise: %+v", r.identity.MemberID, r.term, r.grantor.Stats(r.now)))
		}
	}
	if s.Leader != r.leader {
		r.leader = s.Leader
		r.leaderChanged()
	}
	if gaveUp && s.Transferee == 0 {
		r.sendRelease(release)
	}
}

// sendRelease informs all other members that they need not wait for the end of their promises.
func (r *Replica) sendRelease(release masterlease.Release) {
	for _, id := range r.others {
		r.sendMessage(Message{To: id, Lease: masterlease.Header{Release: &release}}, forever)
	}
}

func (r *Replica) sendMessage(m Message, authority clock.Instant) {
	m.From = r.identity.MemberID
	if m.Raft != nil {
		m.Level = uint32(gate.Newest)
	}
	if r.grantor.InHoldOff(r.now) {
		m.HoldOff = r.grantor.Stats(r.now).HoldOffLeft
	}
	r.emit(Send{Message: m, Authority: authority})
}

// sendRaft hands out a message of raft.
func (r *Replica) sendRaft(m *raftpb.Message) {
	lease, ok := r.leaseHeader(m)
	if round := m.GetContext(); ok && m.GetType() == raftpb.MsgHeartbeat && len(round) == 8 {
		r.asked = max(r.asked, binary.LittleEndian.Uint64(round))
	}
	switch {
	case !ok && m.GetType() == raftpb.MsgSnap:
		r.onShipped(Shipped{To: m.GetTo(), Err: errSilent})
	case !ok:
	case m.GetType() == raftpb.MsgSnap:
		r.sendState(m, lease)
	case m.GetType() == raftpb.MsgHeartbeatResp:
		r.sendMessage(Message{To: m.GetTo(), Raft: m, Lease: lease, Room: yield.Room(&r.space)}, forever)
	default:
		r.sendMessage(Message{To: m.GetTo(), Raft: m, Lease: lease}, forever)
	}
}

// Authority returns this member's present right to answer from memory.
func (r *Replica) Authority() masterlease.Authority { return r.holder.Authority() }

// Leader returns the leader that this member follows, 0 if it knows none, and the term.
func (r *Replica) Leader() (id, term uint64) { return r.leader, r.term }

// MemberID returns the id of this member, and Incarnation that of its data directory.
func (r *Replica) MemberID() uint64    { return r.identity.MemberID }
func (r *Replica) Incarnation() uint64 { return r.incarnation }
