package replica

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// This file drives elections. Raft's own timer does not: it knows nothing of promises. A member campaigns if it has
// not heard a leader for long enough and no promise forbids it. Members campaign one after the other, so that they do
// not split the votes. Their order differs from term to term.

// eagerJitter is the most by which the campaigns of eager members are apart.
const eagerJitter = 20 * time.Millisecond

// awaitLeader sets when this member campaigns if it hears no leader until then.
func (r *Replica) awaitLeader() {
	r.campaignAt = r.heard.Add(r.silence() + r.turn())
}

// turn returns how long this member waits for the campaigns of others before its own.
func (r *Replica) turn() time.Duration {
	if r.soleVoter() {
		return 0
	}
	mine, rank := r.lot(r.identity.MemberID), 0
	if r.cfg.Eager {
		return time.Duration(mine % uint64(eagerJitter))
	}
	for _, id := range r.voters {
		if lot := r.lot(id); id != r.leader && lot < mine {
			rank++
		}
	}
	return time.Duration(rank) * TickInterval
}

// lot returns a number that is different for each member, term and attempt.
func (r *Replica) lot(member uint64) uint64 {
	h := fnv.New64a()
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], member)
	binary.BigEndian.PutUint64(b[8:], r.term)
	binary.BigEndian.PutUint64(b[16:], uint64(r.attempts))
	h.Write(b[:]) // never fails
	return h.Sum64()
}

// elect campaigns if it is time.
func (r *Replica) elect() {
	if r.leading || r.halted || r.left || r.fresh != nil || r.handing != nil || r.installing || !r.isVoter() {
		return
	}
	if r.soleVoter() {
		// It may still be bound by a promise to a leader that has not applied the removal of the other voters.
		if r.raft.BasicStatus().RaftState == raft.StateFollower && r.grantor.Campaign(r.now) == nil {
			r.campaign()
		}
		return
	}
	if !r.now.After(r.campaignAt) {
		return
	}
	var promised *masterlease.PromisedError
	if err := r.grantor.Campaign(r.now); errors.As(err, &promised) {
		r.campaignAt = r.now.Add(promised.Wait + r.turn())
		return
	}
	r.attempts++
	r.awaitElection()
	r.campaign()
}

// awaitElection sets when this member campaigns if the election in progress, its own or another's, has no outcome.
func (r *Replica) awaitElection() {
	wait := r.cfg.ElectionTimeout / 4
	if r.cfg.Eager {
		wait = eagerJitter
	}
	r.campaignAt = r.now.Add(wait + 2*r.turn())
}

func (r *Replica) campaign() {
	r.counts.Campaigns++
	r.forgetLeader()
	if err := r.raft.Campaign(); err != nil {
		panic(fmt.Sprintf("replica: raft refuses to campaign: %v", err))
	}
	r.observe()
}

// forgetLeader makes raft take part in an election although raft gets no ticks while this member follows.
func (r *Replica) forgetLeader() {
	if err := r.raft.ForgetLeader(); err != nil {
		panic(fmt.Sprintf("replica: raft does not forget its leader: %v", err))
	}
}

// released processes a release that came without a message of raft. Its sender no longer leads in that term, so the
// members need not wait until it has been silent for long.
func (r *Replica) released(release masterlease.Release) {
	r.grantor.Release(release)
	if !r.leading && release.Leader == r.leader && release.Term == r.term {
		r.heard = r.now.Add(-r.silence())
		r.awaitLeader()
	}
}

// ballot processes another member's request for a vote.
func (r *Replica) ballot(m *raftpb.Message, release *masterlease.Release) {
	if r.left || r.fresh != nil {
		return
	}
	b := masterlease.Ballot{
		Candidate: m.GetFrom(), Term: m.GetTerm(), Pre: m.GetType() == raftpb.MsgPreVote, Release: release, Message: m,
	}
	if r.grantor.Vote(b, r.leads(), r.now) {
		r.vote(m)
	}
}

// leads reports whether this member leads with authority. Then no vote may depose it.
func (r *Replica) leads() bool { return r.leading && r.holder.Valid(r.now) }

// vote lets raft see a request for a vote. raft counts in ticks how long a leader was silent, and gets no ticks while
// this member follows. So this method makes raft forget a silent leader. A request of a past term is dropped.
func (r *Replica) vote(m *raftpb.Message) {
	if !r.silent() || m.GetTerm() <= r.term {
		r.stepRaft(m)
		return
	}
	r.forgetLeader()
	r.stepRaft(m)
	switch status := r.raft.BasicStatus(); {
	case r.hasMoreLog(m):
		r.campaignAt = r.now.Add(r.turn() / overtaking)
	case status.HardState.GetTerm() == m.GetTerm() && status.HardState.GetVote() == m.GetFrom():
		r.awaitElection()
	}
}

// overtaking is how much faster members take turns after a candidate that lacks their entries has asked for votes.
const overtaking = 10

// hasMoreLog reports whether this member has more of the log than a candidate, which therefore does not get its vote.
// If this member left the first turn to the candidate, it takes that turn now.
func (r *Replica) hasMoreLog(m *raftpb.Message) bool {
	term, err := r.log.Term(r.log.Last())
	return err == nil && cmp.Or(cmp.Compare(term, m.GetLogTerm()), cmp.Compare(r.log.Last(), m.GetIndex())) > 0
}

// unpark processes the requests for votes that waited until a promise ended.
func (r *Replica) unpark() {
	if r.left || r.halted {
		return
	}
	if order := r.ordered; order != nil && !r.grantor.InHoldOff(r.now) {
		r.ordered = nil
		r.receiveRaft(*order)
	}
	for _, b := range r.grantor.Unpark(r.leads(), r.now) {
		r.vote(b.Message.(*raftpb.Message))
	}
}

// untilVote returns how long it takes until a parked vote, or a campaign of this member, may have its turn. At a
// leader it returns how long it takes until the next heartbeat. Heartbeats are regular, so that members promise no
// longer than needed.
func (r *Replica) untilVote() time.Duration {
	wait := TickInterval
	if r.alone() && r.leading || r.left || r.fresh != nil {
		return wait
	}
	if opens, closed := r.grantor.Opens(r.now); closed {
		wait = min(wait, r.now.Until(opens)+1)
	}
	if r.leading {
		wait = min(wait, TickInterval-r.now.Elapsed(r.ticked))
	}
	if !r.leading && r.handing == nil && !r.installing && r.isVoter() && !r.soleVoter() {
		wait = min(wait, r.now.Until(r.campaignAt)+1)
	}
	return max(wait, 0)
}

// handing is an ordered change of leadership.
type handing struct {
	id      uint64 // of the HandOver or the Leave; 0 if this member decided it
	leaving bool
	led     bool          // this member led when it was ordered
	until   clock.Instant // when this member stops waiting for a new leader
	to      uint64        // the member that takes over as soon as it can; 0 once it is ordered to
	latest  clock.Instant // when it is ordered in any case
	futile  bool          // the member that should take over cannot be reached
}

// onUnreachable notes that messages to a member are being lost. A leaving member does not wait for such a successor:
// most likely it is shutting down too.
func (r *Replica) onUnreachable(member uint64) {
	r.raft.ReportUnreachable(member)
	if h := r.handing; h != nil && h.leaving && member == r.transferee {
		h.futile = true
	}
}

// ErrHandOver says that leadership could not be handed over. This member continues to lead.
var ErrHandOver = errors.New("the other member did not take over in time and this one goes on: see whether it is up and has caught up, and try again")

// onHandOver begins to hand over.
func (r *Replica) onHandOver(e HandOver) {
	to := cmp.Or(e.To, r.furthest())
	switch {
	case !r.serving:
		r.emit(Reply{ID: e.ID, Err: r.notLeader(), Authority: forever})
	case to == r.identity.MemberID:
		r.emit(Reply{ID: e.ID, Authority: forever})
	case !slices.Contains(r.voters, to):
		r.emit(Reply{ID: e.ID, Err: fmt.Errorf("%w: %x is no member", ErrNoMember, to), Authority: forever})
	case r.handing != nil || r.transferee != 0:
		r.emit(Reply{ID: e.ID, Err: ErrTooManyRequests, Authority: forever})
	default:
		r.handing = r.newHanding(e.ID)
		r.handing.to, r.handing.latest = to, r.now.Add(r.cfg.ElectionTimeout)
	}
}

// drains reports whether this leader proposes nothing more, because it will hand over when its commands are applied.
func (r *Replica) drains() bool {
	return r.handing != nil && r.handing.to != 0 && r.holdOffs.Left(r.handing.to, r.now) == 0
}

// transferWhenDrained orders the other member to take over. Until that member may be elected, this one serves. Then it
// proposes nothing more, and waits until its commands are applied, so that each of them has an outcome. Requests that
// come meanwhile fail as those without a leader do: nothing of them was proposed, and they can be repeated at once.
func (r *Replica) transferWhenDrained() {
	h := r.handing
	if h == nil || h.to == 0 || !r.serving || !r.now.After(h.latest) && (!r.drains() || len(r.proposals) > 0 || r.changing != nil) {
		return
	}
	to := h.to
	h.to, h.until = 0, r.now.Add(2*r.cfg.ElectionTimeout)
	r.transfer(to)
	r.advance()
}

// ErrNoMember says that there is no member with that id.
var ErrNoMember = errors.New("no such member")

func (r *Replica) transfer(to uint64) {
	r.raft.TransferLeader(to)
	r.observe()
}

// furthest returns the other member that can take over first, of those that were active lately. Of several it returns
// the one with most of the log. A member in its vote hold-off cannot be elected before that ends, while a member that
// lacks the newest entries gets them in a moment. It returns this member if there is no other.
func (r *Replica) furthest() uint64 {
	best, match, wait := r.identity.MemberID, uint64(0), time.Duration(0)
	r.raft.WithProgress(func(id uint64, kind raft.ProgressType, p tracker.Progress) { // in order of ids
		if id == r.identity.MemberID || kind == raft.ProgressTypeLearner || !p.RecentActive || p.Match == 0 {
			return
		}
		holdOff := r.holdOffs.Left(id, r.now)
		if p.State != tracker.StateReplicate {
			holdOff = max(holdOff, masterlease.MaxHoldOff) // it is not known when it will have the missing entries
		}
		if match == 0 || cmp.Or(cmp.Compare(holdOff, wait), cmp.Compare(match, p.Match)) < 0 {
			best, match, wait = id, p.Match, holdOff
		}
	})
	return best
}

// onLeave begins to leave: a leader hands over if it can.
func (r *Replica) onLeave(e Leave) {
	if r.handing != nil {
		r.answerHandOver(ErrUnknownOutcome)
	}
	r.handing = r.newHanding(e.ID)
	r.handing.leaving = true
	if !r.serving || r.soleVoter() {
		return
	}
	if to := r.furthest(); to != r.identity.MemberID {
		r.transfer(to)
	}
}

func (r *Replica) newHanding(id uint64) *handing {
	return &handing{id: id, led: r.leading, until: r.now.Add(2 * r.cfg.ElectionTimeout)}
}

// settleHandOver answers an order to hand over, or to leave, once its outcome is clear.
func (r *Replica) settleHandOver() {
	h := r.handing
	if h == nil || r.halted {
		return
	}
	aborted := r.leading && r.transferee == 0 && h.to == 0
	elsewhere := !r.leading && r.leader != 0
	lost := !r.leading && (!h.led || r.now.After(h.until))
	switch {
	case h.leaving && (aborted || elsewhere || lost || h.futile):
		r.withdraw()
		r.answerHandOver(nil)
	case h.leaving:
	case elsewhere:
		r.answerHandOver(nil)
	case aborted:
		r.answerHandOver(ErrHandOver)
	case lost:
		r.answerHandOver(ErrUnknownOutcome)
	}
}

func (r *Replica) answerHandOver(err error) {
	if r.handing.id == 0 { // no operator ordered it: see considerYield
		r.handing = nil
		return
	}
	r.emit(Reply{ID: r.handing.id, Header: r.Header(), Err: err, Authority: forever})
	r.handing = nil
}

// withdraw ends this member's rights: it no longer answers with authority, and takes no part in elections.
func (r *Replica) withdraw() {
	r.left = true
	if r.serving {
		r.stepDown()
	}
	r.resign()
}

// resign gives up this member's authority for good, and informs the others.
func (r *Replica) resign() {
	if release, gaveUp := r.holder.Stop(r.now); gaveUp {
		r.sendRelease(release)
	}
}
