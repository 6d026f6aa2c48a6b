package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/event"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
)

// An answer from memory rests on the master lease, which the leader checks after the act: after the state was read,
// or the deadline moved. If the lease does not hold, the answer waits for a ReadIndex round: one exchange of messages
// confirms that this member led when the act was done. All answers that wait share the round; answers that come
// during a round wait for the next one. A follower asks its leader in rounds of the same kind from which index on its
// own state is new enough.

const (
	// roundPatience is how many ticks a round may take before another one replaces it: messages get lost.
	roundPatience = 3
	// maxPendingReads bounds the rounds of a follower whose index is ahead of its own state. Until the state has
	// caught up with some of them, another round is useless.
	maxPendingReads = 4
	// roundKey is the length of what raft calls the context of a round.
	roundKey = 24
)

// confirming holds a leader's answers, and a follower's questions, that wait for a ReadIndex round.
type confirming struct {
	waiting []unconfirmed // for the next round; len ≤ intake.MaxQueue together with those of the round
	round   []unconfirmed // of the round in progress
	key     string        // of the round in progress; "" if there is none
	since   clock.Instant
	rounds  uint64
	pending []pendingReads // by index; len ≤ maxPendingReads
}

// unconfirmed is an answer that waits for a round, or a follower's question.
type unconfirmed struct {
	effect Effect // ReadAt, Reply or Renewed
	until  clock.Instant
}

// pendingReads are reads of a follower that wait until its own state is as new as the leader's was.
type pendingReads struct {
	index uint64
	reads []unconfirmed
}

// answerWithAuthority sends an answer if the master lease is still valid after the act. Otherwise the answer waits
// for the next round.
func (r *Replica) answerWithAuthority(effect Effect) {
	if r.holder.Check(r.term, r.now) {
		r.emitAnswer(event.Resting(effect, r.holder.Authority().End))
		return
	}
	r.confirmLater(effect)
}

func (r *Replica) confirmLater(effect Effect) {
	c := &r.confirming
	if len(c.waiting)+len(c.round) >= intake.MaxQueue {
		r.emitAnswer(event.Refusal(effect, ErrTooManyRequests))
		return
	}
	c.waiting = append(c.waiting, unconfirmed{effect, r.now.Add(r.cfg.ReadTimeout)})
}

// confirm begins a round if answers wait for one, and refuses answers that have waited for too long.
func (r *Replica) confirm() {
	c := &r.confirming
	c.waiting = r.stillAwaited(c.waiting)
	c.round = r.stillAwaited(c.round)
	for i := range c.pending {
		c.pending[i].reads = r.stillAwaited(c.pending[i].reads)
	}
	if c.key != "" && r.now.Elapsed(c.since) >= roundPatience*TickInterval {
		c.waiting, c.round, c.key = append(c.round, c.waiting...), nil, ""
	}
	if r.halted || c.key != "" || len(c.waiting) == 0 || len(c.pending) == maxPendingReads || r.leader == 0 || r.leading != r.serving {
		return
	}
	c.rounds++
	var key [roundKey]byte // unique over all members and their restarts
	binary.BigEndian.PutUint64(key[:], r.identity.MemberID)
	binary.BigEndian.PutUint64(key[8:], r.life)
	binary.BigEndian.PutUint64(key[16:], c.rounds)
	c.round, c.waiting, c.key, c.since = c.waiting, nil, string(key[:]), r.now
	r.raft.ReadIndex(key[:])
	r.observe()
}

// stillAwaited refuses the answers whose time is up, and returns the others.
func (r *Replica) stillAwaited(list []unconfirmed) []unconfirmed {
	if len(list) == 0 || !r.now.After(list[0].until) { // the list is in the order of arrival
		return list
	}
	reason := ErrNoLeader
	if r.leading {
		reason = ErrLeaseExpired
	}
	for len(list) > 0 && r.now.After(list[0].until) {
		r.emitAnswer(event.Refusal(list[0].effect, reason))
		list = list[1:]
	}
	return list
}

// confirmed processes the outcome of a round.
func (r *Replica) confirmed(s raft.ReadState) {
	c := &r.confirming
	if string(s.RequestCtx) != c.key {
		return
	}
	round := c.round
	c.round, c.key = nil, ""
	if !r.leading {
		c.pending = append(c.pending, pendingReads{s.Index, round})
		r.answerPendingReads()
		return
	}
	// Everything that the answers show, or have changed, was there before the round began.
	r.holder.Refreshed(len(round))
	for _, u := range round {
		r.emitAnswer(event.Resting(u.effect, forever))
	}
}

// answerPendingReads answers the reads of a follower for which its state is new enough by now.
func (r *Replica) answerPendingReads() {
	c := &r.confirming
	for len(c.pending) > 0 && c.pending[0].index <= r.applied.Index {
		for _, u := range c.pending[0].reads {
			read := u.effect.(ReadAt)
			read.Header, read.Authority = r.Header(), forever
			r.emitAnswer(read)
		}
		c.pending = c.pending[1:]
	}
}

// answerReadIndex answers a follower's question from the master lease, without messages to other members. It reports
// whether it did. It reads the index before it checks the lease.
func (r *Replica) answerReadIndex(m *raftpb.Message) bool {
	if !r.serving || len(m.GetEntries()) != 1 {
		return false
	}
	index := r.raft.BasicStatus().HardState.GetCommit()
	if !r.holder.Check(r.term, r.now) {
		return false
	}
	answer := &raftpb.Message{
		Type: raftpb.MsgReadIndexResp.Enum(), From: new(r.identity.MemberID), To: new(m.GetFrom()),
		Term: new(r.term), Index: new(index), Entries: m.GetEntries(),
	}
	r.sendMessage(Message{To: m.GetFrom(), Raft: answer}, r.holder.Authority().End)
	return true
}

// resubmit is called when this member follows another leader, or none, or leads again. Rounds that were begun before
// are void. Answers of a leader are refused, since no round confirms them. Questions of a follower wait for the next
// round.
func (r *Replica) resubmit() {
	c := &r.confirming
	list := append(c.round, c.waiting...)
	c.round, c.waiting, c.key = nil, nil, ""
	for _, u := range list {
		if read, ok := u.effect.(ReadAt); ok && read.Header == (Header{}) {
			c.waiting = append(c.waiting, u)
		} else {
			r.emitAnswer(event.Refusal(u.effect, ErrNoLeader))
		}
	}
}
