package simulation

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// heardStamp names a leader's request that a member received, and the reading of the member's clocks then. A member may
// receive the same request several times.
type heardStamp struct {
	member, life int
	leader       uint64
	term, epoch  uint64
	stamp, at    clock.Instant
}

// releasedBy names a leader whose release a member received.
type releasedBy struct {
	member, life int
	leader, term uint64
}

// duty is a promise of a member to a leader, by the member's own clocks.
type duty struct {
	to    masterlease.Release
	until clock.Instant
	life  int
}

// help holds the greatest terms in which a member voted for another one, and in which this process asked for votes. A
// candidate may ask before its own vote is on its disk. If it restarts then, the votes do not make it a leader.
type help struct {
	voted, asked uint64
	latest       []aid // in this life
}

// aid is a vote, or a request for votes or for the prospect of them.
type aid struct {
	at   clock.Instant
	term uint64
}

// keptAids is how many aids are kept for promises whose answers waited for the disk.
const keptAids = 16

func (h *help) add(a aid) {
	if len(h.latest) == keptAids {
		h.latest = slices.Delete(h.latest, 0, 1)
	}
	h.latest = append(h.latest, a)
}

// watchPromises checks, from outside, that a member keeps what it promised (I4): until a promise has ended on both of
// its clocks, the member helps no candidate of a later term, unless the leader has released it.
func (f *facts) watchPromises(m *member, now clock.Instant, events []replica.Event, effects []replica.Effect) {
	for _, event := range events {
		if e, ok := event.(replica.Received); ok {
			f.hears(m, now, e.Message)
		}
	}
	for _, effect := range effects {
		if e, ok := effect.(replica.Send); ok {
			f.promises(m, now, e.Message)
		}
	}
}

func (f *facts) hears(m *member, now clock.Instant, message replica.Message) {
	if r := message.Lease.Request; r != nil && message.Raft != nil {
		f.heard[heardStamp{m.index, m.life, message.From, r.Term, r.Epoch, r.Stamp, now}] = true
	}
	if r := message.Lease.Release; r != nil {
		key := releasedBy{m.index, m.life, r.Leader, r.Term}
		f.released[key] = max(f.released[key], r.Epoch)
		f.duties[m.index] = slices.DeleteFunc(f.duties[m.index], func(d duty) bool {
			return d.life == m.life && d.to.Leader == r.Leader && d.to.Term == r.Term && d.to.Epoch <= r.Epoch
		})
	}
	if message.Raft == nil {
		return
	}
	switch message.Raft.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		// A later leader had the votes of members without promises: no leader counts on older promises.
		f.duties[m.index] = slices.DeleteFunc(f.duties[m.index], func(d duty) bool { return d.to.Term < message.Raft.GetTerm() })
	case raftpb.MsgVote, raftpb.MsgPreVote:
		if f.bound(m, now, message.Raft.GetTerm()) != nil {
			f.w.mark("a request for a vote had to wait for a promise to end")
		}
	}
}

// promises checks a message that a member sends: it may make a promise or break one.
//
// A grant carries the reading at which the member received the request, and the promise binds from then on. This need not
// be the request's first arrival: one that came before the promise's length was recorded made no promise. The member may
// have asked for pre-votes in between. That does no harm: the leader counts from its send, which was earlier still, and the
// answers to those pre-votes reach a member that is bound.
func (f *facts) promises(m *member, now clock.Instant, message replica.Message) {
	if g := message.Lease.Grant; g != nil {
		heard := g.Reading
		if !f.heard[heardStamp{m.index, m.life, message.To, g.Term, g.Epoch, g.Echo, heard}] {
			f.w.fail("a promise answers a request (I4)", "%s promises m%d in term %d for a stamp that it never saw, or not at %v", m.name, message.To, g.Term, heard)
			return
		}
		if f.released[releasedBy{m.index, m.life, message.To, g.Term}] >= g.Epoch {
			return // the release arrived while the grant waited to be sent
		}
		d := duty{masterlease.Release{Leader: message.To, Term: g.Term, Epoch: g.Epoch}, heard.Add(g.Drift.GrantPromise(g.Duration)), m.life}
		if h := f.helped[m.index]; g.Term < max(h.voted, h.asked) && !now.After(d.until) {
			f.w.fail("a member that helped a later leader promises nothing to an earlier one (I4)", "%s promises m%d in term %d until %v, has voted in term %d, and its clocks show %v",
				m.name, message.To, g.Term, d.until, max(h.voted, h.asked), now)
		}
		for _, a := range f.helped[m.index].latest {
			if a.term > g.Term && a.at.After(heard) && !a.at.After(d.until) {
				f.w.fail("a promise binds from when the request for it is heard (I4)", "%s promises m%d in term %d from %v to %v, and at %v it helped a candidate of term %d",
					m.name, message.To, g.Term, heard, d.until, a.at, a.term)
			}
		}
		f.duties[m.index] = slices.DeleteFunc(f.duties[m.index], func(old duty) bool { return old.to == d.to || now.After(old.until) })
		f.duties[m.index] = append(f.duties[m.index], d)
	}
	if message.Raft == nil {
		return
	}
	r := message.Raft
	switch r.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
	case raftpb.MsgVoteResp:
		if r.GetReject() {
			return
		}
	default:
		return
	}
	if d := f.bound(m, now, r.GetTerm()); d != nil {
		f.w.fail("a promise is kept (I4)", "%s sends %v of term %d to m%d, but has promised m%d of term %d until %v, and it is %v there",
			m.name, r.GetType(), r.GetTerm(), message.To, d.to.Leader, d.to.Term, d.until, now)
	}
	h := &f.helped[m.index]
	h.add(aid{now, r.GetTerm()})
	switch r.GetType() {
	case raftpb.MsgVote:
		h.asked = max(h.asked, r.GetTerm())
	case raftpb.MsgVoteResp:
		h.voted = max(h.voted, r.GetTerm())
	}
}

// bound returns a promise that forbids a member to help a candidate of that term, or nil.
func (f *facts) bound(m *member, now clock.Instant, term uint64) *duty {
	for i, d := range f.duties[m.index] {
		if d.to.Term < term && !now.After(d.until) {
			return &f.duties[m.index][i]
		}
	}
	return nil
}

// checkAlways checks authority after every event, because time alone can break it.
func (w *world) checkAlways() {
	if w.failure != nil {
		return
	}
	var valid *member
	for _, m := range w.members {
		if !m.up {
			continue
		}
		a := m.replica.Authority()
		if !a.Holds(m.clocks.now(w)) {
			continue
		}
		if valid != nil {
			w.fail("two members never have authority at once (I1)", "%s has it in term %d, and %s in term %d",
				valid.name, valid.replica.Authority().Term, m.name, a.Term)
		}
		if a.Term < w.facts.newest {
			w.fail("no authority once a later leader was elected (I2)", "%s has it in term %d, but m%d was elected in term %d",
				m.name, a.Term, w.facts.leaders[w.facts.newest], w.facts.newest)
		}
		valid = m
	}
	if w.events%32 == 0 {
		w.checkFaults()
	}
	w.watchLeading(valid)
	if valid != nil {
		w.led += w.now - w.looked
	}
	w.looked = w.now
	w.checkSteady(valid)
}

// checkFaults checks that no member distrusts clocks within the bound (I9).
func (w *world) checkFaults() {
	if w.rates > int64(w.drift) {
		return
	}
	for _, m := range w.members {
		if !m.up || len(w.members) == 1 {
			continue
		}
		if fault := m.replica.Cluster(m.clocks.now(w)).Holder.Fault; fault != masterlease.NoFault {
			w.fail("a clock is distrusted only if it is wrong (I9)", "%s reports: %v", m.name, fault)
		}
	}
}

// leader returns the member that serves with authority, or else the newest that serves, or else nil.
func (w *world) leader() *member {
	var found *member
	for _, m := range w.members {
		if !m.up || !m.replica.Serving() {
			continue
		}
		if m.replica.Authority().Holds(m.clocks.now(w)) {
			return m
		}
		if found == nil || m.replica.Header().Term > found.replica.Header().Term {
			found = m
		}
	}
	return found
}
