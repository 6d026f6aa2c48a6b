package replica

import (
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// A change of the members is an entry of its own in the log, proposed by a leader that has applied all changes before
// it. Package roster decides which changes are possible. A change takes effect when it is applied: the list, raft's
// record of the voters and the applied index are written in one batch, and then raft and the master lease use the new
// voters in the same Step. From the proposal on until then the leader has no authority, and confirms each answer by a
// round (rule L4 of docs/design/master-leases.md).
//
// A change of the voters is answered only when a majority of the new voters knows it, unless the leader removes itself.
// Before that, only the leader may know that it is committed. If the leader then vanished, the others would elect by the
// former voters, of which too few may be left. So the leader logs an empty entry after it has applied the change. A member
// that has written that entry knows the change too, because the message that brought it says what is committed. When it is
// committed, each majority of the new voters has a member that knows the change, and whose log is longer than that of each
// member that does not.
//
// A removed member learns of that from a member that has applied the removal. Until then it neither leads nor
// campaigns, but it votes: a cluster of two that loses its leader by a removal needs that vote.

// ErrChanging is [roster.ErrChanging].
var ErrChanging = roster.ErrChanging

// RemovedError is [roster.RemovedError].
type RemovedError = roster.RemovedError

// changing is this leader's change of the members that is not applied yet, or that not enough voters know.
type changing struct {
	id       uint64 // of the ChangeMembers; 0 if this member decided it
	sequence uint64 // of the entry that is waited for: the change, and then the empty entry after it
	applied  *Reply // the answer to an applied change of the voters; nil before
}

// isVoter reports whether this member has a vote, as far as it has applied the log.
func (r *Replica) isVoter() bool { return slices.Contains(r.voters, r.identity.MemberID) }

// everyone returns the ids of all voters and learners.
func (r *Replica) everyone() []uint64 { return slices.Concat(r.voters, r.learners) }

// setMembers sets the voters and the learners.
func (r *Replica) setMembers(voters, learners []uint64) {
	r.voters, r.learners = slices.Sorted(slices.Values(voters)), slices.Sorted(slices.Values(learners))
	r.others = slices.DeleteFunc(r.everyone(), func(id uint64) bool { return id == r.identity.MemberID })
}

// recoverMembers reads the members from the database.
func (r *Replica) recoverMembers() error {
	m := new(logpb.Roster)
	if _, err := record.Load(r.db, record.KeyRoster, m); err != nil {
		return err
	}
	list, err := roster.FromRecord(m)
	if err != nil {
		return &record.DamagedError{What: err.Error()}
	}
	conf := r.log.ConfState()
	r.roster, r.stableRoster = list, list
	r.setMembers(conf.GetVoters(), conf.GetLearners())
	if !list.Empty() && (!slices.Equal(list.Voters(), r.voters) || !slices.Equal(list.Learners(), r.learners)) {
		return &record.DamagedError{What: fmt.Sprintf("the voters are %x and the learners %x, and the list of members is %v", r.voters, r.learners, m)}
	}
	return nil
}

// list returns the members that this member has applied. Before the first change these are the founders, as its
// configuration describes them.
func (r *Replica) list() roster.Roster {
	if !r.roster.Empty() {
		return r.roster
	}
	incarnations := maps.Clone(r.peers)
	incarnations[r.identity.MemberID] = r.incarnation
	return roster.Founders(r.voters, r.cfg.Founders, incarnations)
}

// onChangeMembers begins a change of the members, or refuses it. While another one is under way, one change waits. A client
// would otherwise be refused for a change that it cannot know of, such as the note of a new member's data directory. A
// description does not wait, because the server that sent it tries again.
func (r *Replica) onChangeMembers(e ChangeMembers) {
	if r.delayed == nil && e.Change.Kind != roster.Describe && r.delaysChange() {
		r.delayed = &parked{event: e, until: r.now.Add(r.cfg.ReadTimeout)}
	} else if err := r.reconfigure(e.ID, e.Change, e.Caller); err != nil {
		r.emit(Reply{ID: e.ID, Err: err, Authority: forever})
	}
}

// delaysChange reports whether a change must wait until another one is made, or until committed entries are applied.
func (r *Replica) delaysChange() bool {
	return r.serving && !r.left && r.handing == nil && r.transferee == 0 && (r.changing != nil || len(r.deferred) > 0)
}

// resumeChange begins the change that waited, or refuses it if it has waited for too long.
func (r *Replica) resumeChange() {
	if d := r.delayed; d != nil && (!r.delaysChange() || r.now.After(d.until)) {
		r.onChangeMembers(d.event.(ChangeMembers)) // it does not wait again, since r.delayed is not nil
		r.delayed = nil
	}
}

// reconfigure proposes a change on behalf of a caller, or returns why it did not.
func (r *Replica) reconfigure(id uint64, c roster.Change, by access.Caller) error {
	list := r.list()
	switch {
	case !r.serving || r.left:
		return r.notLeader()
	case r.changing != nil || r.handing != nil || r.transferee != 0 || len(r.deferred) > 0:
		return ErrChanging
	}
	if err := r.checkMembersGate(c); err != nil {
		return err
	}
	if err := list.Check(c, r.leaderView()); err != nil {
		return err
	}
	needs := gate.Members
	if by != (access.Caller{}) && r.audits() > 0 {
		needs = gate.Access
	}
	if r.useGate(needs) != nil {
		return ErrNoLeader
	}
	e := roster.Entry{Sequence: r.sequence + 1, Change: c}
	if needs == gate.Access {
		e.By, e.Wall = by, r.wallNow()
	}
	if r.roster.Empty() {
		e.Founders = list
	}
	return r.proposeMembers(id, list, e)
}

// checkMembersGate is checkGate for a change of the members. A member that is gone for good prevents neither its own removal
// nor another change: if it has said nothing to this leader, what the log states about all members counts. But the first
// list must name the data directory of each founder that stays.
func (r *Replica) checkMembersGate(c roster.Change) error {
	others := r.others
	if c.Kind == roster.Remove {
		others = slices.DeleteFunc(slices.Clone(others), func(id uint64) bool { return id == c.Member.ID })
	}
	stranger := r.roster.Empty() && slices.ContainsFunc(others, func(id uint64) bool { return r.peers[id] == 0 })
	switch {
	case r.gates.Understood(gate.Members, others) && !stranger:
		return nil
	case r.gates.Unheard(others) && !r.now.After(r.served.Add(r.cfg.ReadTimeout)):
		return ErrNoLeader
	}
	return ErrTooNew
}

// useGate logs an entry by which members of earlier versions say what they lack, instead of meeting a change that they do
// not know.
func (r *Replica) useGate(needs gate.Version) error {
	if r.gates.State().InUse >= needs {
		return nil
	}
	return r.proposeEmpty(entry.Header{Needs: needs})
}

// proposeEmpty proposes an entry without commands. Its number is then r.sequence.
func (r *Replica) proposeEmpty(h entry.Header) error {
	r.sequence++
	h.Sequence = r.sequence
	err := r.raft.Propose(entry.New(h, slices.Values([]*entry.Prepared(nil))))
	r.observe()
	return err
}

// leaderView returns what this leader sees of the others.
func (r *Replica) leaderView() roster.View {
	up, match := make(map[uint64]bool), make(map[uint64]uint64)
	r.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		up[id], match[id] = p.RecentActive, p.Match
	})
	return roster.View{
		Self: r.identity.MemberID, Secure: r.policy().Enabled(), Up: func(id uint64) bool { return up[id] }, Match: func(id uint64) uint64 { return match[id] },
	}
}

// proposeMembers proposes a change that was checked. Raft replaces an entry that it refuses, so that is looked at.
func (r *Replica) proposeMembers(id uint64, before roster.Roster, e roster.Entry) error {
	after, _ := before.Apply(e.Change) // Check has applied it
	if e.Change.Kind.Voting() {
		r.holder.Pending(masterlease.Configuration{Voters: after.Voters(), Learners: after.Learners()}, r.now)
	}
	m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(r.identity.MemberID), Entries: []*raftpb.Entry{raftlog.MembersEntry(e)}}
	r.sequence = e.Sequence
	if !r.stepRaft(m) || m.GetEntries()[0].GetType() != raftpb.EntryConfChange {
		r.configureHolder()
		return ErrChanging
	}
	r.changing = &changing{id: id, sequence: e.Sequence}
	r.advance()
	return nil
}

// configureHolder tells the master lease which members there are. It ends what Pending began.
func (r *Replica) configureHolder() {
	r.holder.Configure(masterlease.Configuration{Voters: r.voters, Learners: r.learners}, r.now)
}

// bindMembers makes a leader bind members to the data directories with which it has heard them.
func (r *Replica) bindMembers() {
	if r.roster.Empty() || !r.serving || r.halted || r.changing != nil {
		return
	}
	for _, m := range r.roster.Members() {
		incarnation := r.peers[m.ID]
		if m.ID == r.identity.MemberID {
			incarnation = r.incarnation
		}
		if m.Incarnation != 0 || incarnation == 0 {
			continue
		}
		// A refusal is no matter: the next Step tries again.
		_ = r.reconfigure(0, roster.Change{Kind: roster.Bind, Member: roster.Member{ID: m.ID, Incarnation: incarnation}}, access.Caller{})
		return
	}
}

// applyMembers applies a change of the members to the list, in the batch being applied. configure then carries it out.
func (r *Replica) applyMembers(logged *raftpb.Entry) error {
	e, err := raftlog.ParseMembers(logged)
	if err != nil {
		return err
	}
	before := r.roster
	if before.Empty() {
		before = e.Founders
	}
	after, refused := before.ApplyIn(r.policy().Enabled(), e.Change)
	if refused == nil {
		batch := r.applying.writer.Batch()
		conf := &raftpb.ConfState{Voters: after.Voters(), Learners: after.Learners()}
		record.Put(batch, record.KeyRoster, after.Record())
		r.log.SetConfState(batch, conf)
		if len(conf.Voters) > 1 {
			if err := record.EnsurePromise(r.db, batch, r.cfg.Drift.GrantPromise(r.cfg.MasterLease)); err != nil {
				return err
			}
		}
		r.applying.members = &after
		if act, ok := audit.OfMembers(e.Change); ok && e.By != (access.Caller{}) {
			r.logAct(e.By, e.Wall, act)
		}
	}
	r.answerChange(logged, e, after, refused)
	return nil
}

// answerChange prepares the answer to the change, if this member proposed it in this term. A change of the voters waits
// for announceChange, unless this leader has removed itself: then it no longer leads.
func (r *Replica) answerChange(logged *raftpb.Entry, e roster.Entry, after roster.Roster, refused error) {
	c := r.awaitedChange(logged.GetTerm(), e.Sequence)
	if c == nil {
		return
	}
	header := r.identity
	header.Revision, header.Term = r.revision(), r.term
	reply := Reply{ID: c.id, Header: header, Err: refused, Authority: forever}
	if refused == nil {
		reply.Result = Members(after.Members())
		if e.Change.Kind.Voting() && slices.Contains(after.Voters(), r.identity.MemberID) {
			c.applied = &reply
			return
		}
	}
	r.changing = nil
	r.replyToChange(reply)
	if refused != nil {
		r.configureHolder() // the voters are those of before the proposal
	}
}

// announceChange logs an empty entry after a change of the voters, by which they learn that the change is committed.
func (r *Replica) announceChange() {
	c := r.changing
	if c == nil || c.applied == nil {
		return
	}
	c.sequence = r.sequence + 1
	if r.proposeEmpty(entry.Header{}) != nil && r.changing == c { // stepDown has not answered it
		r.changing = nil
		r.emit(Reply{ID: c.id, Err: ErrUnknownOutcome, Authority: forever})
	}
}

// changeKnown answers the change that announceChange announced by this entry, which is committed now.
func (r *Replica) changeKnown(term, sequence uint64) {
	c := r.awaitedChange(term, sequence)
	if c == nil || c.applied == nil {
		return
	}
	r.changing = nil
	r.replyToChange(*c.applied)
}

// awaitedChange returns the change that waits for this entry; nil if none does.
func (r *Replica) awaitedChange(term, sequence uint64) *changing {
	if c := r.changing; c != nil && r.leading && term == r.term && c.sequence == sequence {
		return c
	}
	return nil
}

// replyToChange prepares the answer to a change in the batch being applied. Nobody waits for a change that this member
// decided.
func (r *Replica) replyToChange(reply Reply) {
	if reply.ID != 0 {
		r.applying.replies = append(r.applying.replies, reply)
	}
}

// configure makes raft and the master lease use the members of the list that was just written. A member that joins
// learns of the founders and of the first change at the same entry.
func (r *Replica) configure(after roster.Roster) {
	r.roster = after
	r.setMembers(after.Voters(), after.Learners())
	for _, change := range raftlog.ConfChanges(r.raft.Status().Config, after) {
		r.raft.ApplyConfChange(change)
	}
	if left := raftlog.ConfChanges(r.raft.Status().Config, after); len(left) > 0 {
		panic(fmt.Sprintf("replica: raft has other members than the list, which differ by %v", left))
	}
	r.configureHolder()
	r.observe()
	r.emit(Reconfigured{Members: after.Members()})
}

// askRemoval makes a member that has applied its own removal contact the others at each tick, until one of them says
// that the removal is on its disk. Before that this member's vote may still be needed.
func (r *Replica) askRemoval() {
	if r.halted || !r.roster.Removed(r.identity.MemberID) || r.now.Elapsed(r.askedRemoval) < TickInterval {
		return
	}
	r.askedRemoval = r.now
	for _, id := range r.everyone() {
		r.sendMessage(Message{To: id}, forever)
	}
}

// onRemoved ends this member. The record of its removal precedes the end on the disk.
func (r *Replica) onRemoved() {
	err := record.SetRemoved(r.db)
	if err == nil {
		err = &RemovedError{Member: r.identity.MemberID}
	}
	r.haltWith(err)
}
