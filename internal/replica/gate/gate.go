package gate

import (
	"fmt"
	"slices"
)

// A Version numbers what a member understands in the log, in the records that members share, and in their messages. A
// member of a version understands all earlier ones. Versions are on disks and in messages: no number gets a new meaning.
type Version uint32

// The gates. Whatever is as old as the log belongs to version 0.
const (
	// Marks came with ownership.Finish, RaiseMark, Prefer and claims with a priority.
	Marks Version = 1
	// Statements came with statements of the cluster version in log entries. Members of earlier versions ignore these.
	Statements Version = 2
	// Members came with changes of the members of a cluster.
	Members Version = 3
	// HoldOffs came with the hold-off of restored data. Members of earlier versions grant names during it. Every program
	// that knows [Members] knows hold-offs, so they need no number of their own.
	HoldOffs = Members

	// LargeTxns came with transactions of more than keyspace.UsualTxnOps operations. Members of earlier versions refuse
	// these when they apply them.
	LargeTxns Version = 4
	// Access came with users, roles and rights over names, and with callers of commands. Members of earlier versions check
	// nothing.
	Access Version = 5

	// MarkActs came with marks that clients replace in the audit log. Members of earlier versions record none of them, and
	// check the rights over the keys of marks.
	MarkActs Version = 6

	// Newest is the greatest version that this program understands.
	Newest = MarkActs
)

// State is what the log says of versions. All members that applied the same entries have the same State, unless one of
// them was of a version before [Statements] in between.
type State struct {
	// Cluster is the version that all members understand, as the leader last stated it. 0: it was never stated.
	Cluster Version
	// InUse is the greatest version of which the log has used something. It never falls.
	InUse Version
}

// A NewerError says that this program is too old for a cluster or for its data.
type NewerError struct{ InUse Version }

func (e *NewerError) Error() string {
	return fmt.Sprintf("the cluster uses version %d of its log, and this program knows versions up to %d: start the newer program again; "+
		"a cluster cannot go back once it has used a feature of a newer version", e.InUse, Newest)
}

// Check returns a [*NewerError] if this program does not understand a version in use.
func Check(inUse Version) error {
	if inUse > Newest {
		return &NewerError{inUse}
	}
	return nil
}

// Gates are what a member knows of versions. The zero Gates knows nothing. It is not safe for concurrent use.
type Gates struct {
	state  State
	heard  map[uint64]Version // by member: what it said last
	stated Version            // what the log of this leadership states, or will state once it is applied
}

// State returns what the log says, as far as it was applied.
func (g *Gates) State() State { return g.state }

// Recover sets the state to what is on the disk. The version in use does not fall.
func (g *Gates) Recover(s State) {
	s.InUse = max(s.InUse, g.state.InUse)
	g.state, g.stated = s, s.Cluster
}

// Hear notes which version another member understands. Members say it in every message of raft.
func (g *Gates) Hear(member uint64, v Version) {
	if known, heard := g.heard[member]; heard && known == v {
		return
	}
	if g.heard == nil {
		g.heard = make(map[uint64]Version)
	}
	g.heard[member] = v
}

// Knows reports whether a member has said that it understands a version. That suffices for a message to this member alone.
func (g *Gates) Knows(member uint64, v Version) bool { return g.heard[member] >= v }

// Lead begins a leadership of this member. What the others said before does not count: one of them may have been
// replaced by an older program since, in messages to another leader.
func (g *Gates) Lead() {
	clear(g.heard)
	g.stated = g.state.Cluster
}

// Open reports whether the log may have something of a version. Others are the other members, voters and learners.
func (g *Gates) Open(v Version, others []uint64) bool {
	return v <= g.state.InUse || v <= Newest && !slices.ContainsFunc(others, func(id uint64) bool { return g.heard[id] < v })
}

// Begin returns v if the log does not use that version yet and may; 0 otherwise.
func (g *Gates) Begin(v Version, others []uint64) Version {
	if v <= g.state.InUse || !g.Open(v, others) {
		return 0
	}
	return v
}

// Acts returns the version whose acts the audit log may record: [Access], or a later one that all members understand. It is 0
// if the audit log has not begun and may not begin. The log begins once it uses [Access] anyway, or by order: uses is the
// version that the member is to take in use. Before that a cluster can still return to an earlier program.
func (g *Gates) Acts(uses Version, others []uint64) Version {
	switch {
	case g.state.InUse < Access && g.Begin(uses, others) < Access:
		return 0
	case g.Open(MarkActs, others):
		return MarkActs
	}
	return Access
}

// Understood is Open for what the log may have while some members are down. A member counts as one that understands the
// version if it has said nothing since the leader was elected, and the log states that all members understood it. If an
// older program has started in its place meanwhile, the entry stops that program, which then says what it lacks.
func (g *Gates) Understood(v Version, others []uint64) bool {
	heard := slices.DeleteFunc(slices.Clone(others), func(id uint64) bool {
		_, heard := g.heard[id]
		return !heard && v <= g.state.Cluster
	})
	return g.Open(v, heard)
}

// Unheard reports whether one of the other members has not said yet what it understands.
func (g *Gates) Unheard(others []uint64) bool {
	return slices.ContainsFunc(others, func(id uint64) bool {
		_, heard := g.heard[id]
		return !heard
	})
}

// Due returns the cluster version that the leader is to state in the log; 0 means none. The leader states it when all
// others have said what they understand, or one of them has said that it understands less than the cluster version.
func (g *Gates) Due(others []uint64) Version {
	least, older := Newest, g.stated
	for _, id := range others {
		v, heard := g.heard[id]
		least = min(least, v)
		if heard {
			older = min(older, v)
		}
	}
	if g.Unheard(others) {
		least = older
	}
	if least = max(least, g.state.InUse); least == g.stated {
		return 0
	}
	return least
}

// Propose notes that the leader has proposed a statement.
func (g *Gates) Propose(v Version) { g.stated = v }

// Apply notes that an entry is applied that states a cluster version, 0 for none, and uses a version. It reports whether
// the state has changed. [Check] the version in use first.
func (g *Gates) Apply(states, uses Version) (changed bool) {
	before := g.state
	g.state.InUse = max(g.state.InUse, uses)
	if states != 0 {
		g.state.Cluster = states
	}
	g.state.Cluster = max(g.state.Cluster, g.state.InUse)
	return g.state != before
}
