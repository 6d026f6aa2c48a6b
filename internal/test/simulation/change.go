package simulation

import (
	"errors"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// In some worlds the members change: learners are added and promoted, voters are added at once, and members are removed,
// also the leader, and again and again. The machines behind the founders are spare. Each has one id, and is used once.

// fewestVoters bounds the voters that the world aims at. The swarm has the other bound.
const fewestVoters = 1

// membersChange is an order to change the members.
type membersChange struct{ change roster.Change }

// slots returns the number of machines.
func (s *swarm) slots() int { return s.members + s.spares }

// founders are the machines with which the cluster begins.
func (w *world) founders() []*member { return w.members[:w.swarm.members] }

// anyMachine draws the index of a machine that founded the cluster or was added, and was not removed.
func (w *world) anyMachine() int {
	if w.spares == 0 {
		return w.dice.work.IntN(len(w.members))
	}
	var all []int
	for _, m := range w.members {
		if m.spawned && !m.removed {
			all = append(all, m.index)
		}
	}
	return all[w.dice.work.IntN(len(all))]
}

// list returns the members as the leader has them; nil without a leader.
func (w *world) list() []roster.Member {
	leader := w.leader()
	if leader == nil {
		return nil
	}
	return leader.replica.Members()
}

// listed returns the machines that are members at the end.
func (w *world) listed() []*member {
	if w.spares == 0 {
		return w.members
	}
	var all []*member
	for _, m := range w.list() {
		if machine := w.memberOf(m.ID); machine.up {
			all = append(all, machine)
		}
	}
	return all
}

// change orders a member, mostly the leader, to change the members. A process may end in the midst of the change.
func (w *world) change(m *member, f fault) {
	if w.spares == 0 || !m.up {
		return
	}
	list := w.list()
	voters, learner := 0, uint64(0)
	for _, l := range list {
		if l.Learner {
			learner = l.ID
		} else {
			voters++
		}
	}
	c := roster.Change{}
	switch dice := f.bits % 4; {
	case learner != 0 && dice > 0:
		c = roster.Change{Kind: roster.Promote, Member: roster.Member{ID: learner}}
	case len(list) > fewestVoters && (dice == 1 || voters >= w.mostVoters):
		c = roster.Change{Kind: roster.Remove, Member: roster.Member{ID: list[f.target%len(list)].ID}}
		if f.leader {
			c.Member.ID = m.id
		}
	default:
		spare := slices.IndexFunc(w.members, func(m *member) bool { return !m.spawned })
		if spare < 0 {
			return
		}
		joins := w.members[spare]
		joins.spawned = true
		c = roster.Change{Kind: roster.Add, Member: roster.Member{ID: joins.id, Learner: dice != 2}}
		w.after(w.upTo(w.dice.faults, 300*time.Millisecond), joins.start)
	}
	w.calls++
	w.changes[w.calls] = &membersChange{c}
	m.event(replica.ChangeMembers{ID: w.calls, Change: c})
	if f.lasts > time.Second { // in the midst of it
		w.after(w.upTo(w.dice.faults, 20*time.Millisecond), func() {
			if !w.calm {
				m.end(f.bits&1 == 0)
				w.after(w.upTo(w.dice.faults, time.Second), m.start)
			}
		})
	}
}

// changed takes the answer to such an order.
func (w *world) changed(c *membersChange, reply replica.Reply) {
	switch {
	case reply.Err == nil:
		w.mark("members changed: " + c.change.Kind.String())
	case errors.Is(reply.Err, replica.ErrChanging):
		w.mark("a second change of the members was refused")
	}
}

// leftForGood reports whether a member halts because it was removed. Then it never runs again.
func (m *member) leftForGood(err error) bool {
	var removed *replica.RemovedError
	if !errors.As(err, &removed) {
		return false
	}
	if leader := m.w.leader(); leader != nil && leader != m && leader.replica.Authority().Holds(leader.clocks.now(m.w)) &&
		slices.ContainsFunc(leader.replica.Members(), func(l roster.Member) bool { return l.ID == m.id }) {
		m.w.fail("only a removed member ends", "%s ends, and %s leads with it: %v", m.name, leader.name, leader.replica.Members())
	}
	m.removed = true
	m.end(false)
	m.w.mark("a removed member ended")
	return true
}
