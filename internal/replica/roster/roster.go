package roster

import (
	"errors"
	"fmt"
	"slices"
)

// Member is one member of a cluster.
type Member struct {
	ID uint64
	// Name is empty until the member has started and said it.
	Name string
	// PeerURLs are where the other members connect, ClientURLs where clients do. No two members share a peer URL.
	PeerURLs, ClientURLs []string
	// Learner: the member follows the leader and has no vote.
	Learner bool
	// Incarnation is that of the member's data directory; 0 until a leader has heard the member.
	Incarnation uint64
}

// Kind says what a [Change] does.
type Kind uint8

// The kinds of changes. Their numbers are in the log.
const (
	Add      Kind = iota + 1 // Member joins, as a voter or a learner
	Remove                   // the member with Member.ID leaves for good
	Promote                  // the learner with Member.ID becomes a voter
	Update                   // the member with Member.ID gets Member.PeerURLs
	Describe                 // the member with Member.ID has Member.Name and Member.ClientURLs
	Bind                     // the member with Member.ID has the data directory Member.Incarnation
)

func (k Kind) String() string {
	if k < Add || k > Bind {
		return "unknown"
	}
	return [...]string{"add", "remove", "promote", "update", "describe", "bind"}[k-Add]
}

// Voting reports whether a change of this kind can change who votes or follows.
func (k Kind) Voting() bool { return k == Add || k == Remove || k == Promote }

// A Change is one change of a roster. Its kind says which fields of Member count.
type Change struct {
	Kind   Kind
	Member Member
}

// Reasons for which a change is refused. Nothing was changed.
var (
	ErrNotFound         = errors.New("no such member")
	ErrIDExists         = errors.New("a member has this id already")
	ErrRemoved          = errors.New("a member with this id was removed, and its id never comes back")
	ErrPeerURLExists    = errors.New("a member has this peer URL already")
	ErrNotLearner       = errors.New("the member is no learner")
	ErrLastVoter        = errors.New("the last voter cannot be removed")
	ErrBound            = errors.New("the member has another data directory")
	ErrInvalid          = errors.New("the change makes no sense")
	ErrTooManyLearners  = errors.New("too many learners")
	ErrNotEnoughStarted = errors.New("too few members have started")
	ErrUnhealthy        = errors.New("too few members are up")
	ErrLearnerNotInStep = errors.New("the learner has not caught up with the leader")
	// ErrChanging says that another change is under way.
	ErrChanging          = errors.New("another change of the members is under way: try again when it is done")
	errImpossibleFounder = errors.New("the founders of a cluster cannot be its members")
)

// RemovedError says that a member was removed from its cluster.
type RemovedError struct{ Member uint64 }

func (e *RemovedError) Error() string {
	return fmt.Sprintf("member %x was removed from the cluster, and does not come back under this id: add it again, and start it with an empty data directory", e.Member)
}

// Roster is the list. The zero Roster is that of a cluster whose members never changed. A Roster is never modified, so
// copies may be shared.
type Roster struct {
	members []Member // by id
	removed []uint64 // sorted
}

// Founded returns the roster of a cluster before its first change. It panics if two founders have one id, or one has none.
func Founded(founders []Member) Roster {
	r := Roster{members: slices.Clone(founders)}
	slices.SortFunc(r.members, byID)
	for i, m := range r.members {
		if m.ID == 0 || i > 0 && r.members[i-1].ID == m.ID {
			panic(errImpossibleFounder)
		}
	}
	return r
}

// Founders returns the roster of founders with these ids, as far as they are described, with the data directories that
// are known.
func Founders(ids []uint64, described []Member, incarnations map[uint64]uint64) Roster {
	var list []Member
	for _, id := range ids {
		m := Member{ID: id, Incarnation: incarnations[id]}
		if i := slices.IndexFunc(described, func(d Member) bool { return d.ID == id }); i >= 0 {
			m.Name, m.PeerURLs, m.ClientURLs = described[i].Name, described[i].PeerURLs, described[i].ClientURLs
		}
		list = append(list, m)
	}
	return Founded(list)
}

func byID(a, b Member) int {
	switch {
	case a.ID < b.ID:
		return -1
	case a.ID > b.ID:
		return 1
	}
	return 0
}

// Empty reports whether there is no list, because the members never changed.
func (r Roster) Empty() bool { return len(r.members) == 0 }

// Members returns the members in order of ids. The caller must not modify them.
func (r Roster) Members() []Member { return r.members }

// Member returns the member with an id.
func (r Roster) Member(id uint64) (Member, bool) {
	if i, ok := r.find(id); ok {
		return r.members[i], true
	}
	return Member{}, false
}

func (r Roster) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(r.members, Member{ID: id}, byID)
}

// Removed reports whether a member with this id was removed.
func (r Roster) Removed(id uint64) bool {
	_, ok := slices.BinarySearch(r.removed, id)
	return ok
}

// Voters returns the ids of the members with a vote, in order.
func (r Roster) Voters() []uint64 { return r.ids(false) }

// Learners returns the ids of the learners, in order.
func (r Roster) Learners() []uint64 { return r.ids(true) }

func (r Roster) ids(learners bool) (ids []uint64) {
	for _, m := range r.members {
		if m.Learner == learners {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// Unbound reports whether the member has no known data directory. A cluster without a list has no such member.
func (r Roster) Unbound(id uint64) bool {
	m, ok := r.Member(id)
	return ok && m.Incarnation == 0
}

// Apply returns the roster after a change, or why the change is refused. The outcome depends on nothing else, so all
// members that apply a change agree.
func (r Roster) Apply(c Change) (Roster, error) {
	i, found := r.find(c.Member.ID)
	switch {
	case c.Member.ID == 0 || c.Kind < Add || c.Kind > Bind:
		return r, ErrInvalid
	case r.Removed(c.Member.ID):
		return r, ErrRemoved
	case c.Kind == Add && found:
		return r, ErrIDExists
	case c.Kind != Add && !found:
		return r, ErrNotFound
	}
	after := Roster{members: slices.Clone(r.members), removed: r.removed}
	switch c.Kind {
	case Add:
		return after.add(i, c.Member)
	case Remove:
		return after.remove(i)
	case Promote:
		if !after.members[i].Learner {
			return r, ErrNotLearner
		}
		after.members[i].Learner = false
	case Update:
		if r.usesURL(c.Member) {
			return r, ErrPeerURLExists
		}
		after.members[i].PeerURLs = slices.Clone(c.Member.PeerURLs)
	case Describe:
		after.members[i].Name, after.members[i].ClientURLs = c.Member.Name, slices.Clone(c.Member.ClientURLs)
	case Bind:
		bound := &after.members[i].Incarnation
		if c.Member.Incarnation == 0 || *bound != 0 && *bound != c.Member.Incarnation {
			return r, ErrBound
		}
		*bound = c.Member.Incarnation
	}
	return after, nil
}

func (r Roster) add(at int, m Member) (Roster, error) {
	if r.usesURL(m) {
		return r, ErrPeerURLExists
	}
	m.PeerURLs, m.ClientURLs, m.Incarnation = slices.Clone(m.PeerURLs), slices.Clone(m.ClientURLs), 0
	r.members = slices.Insert(r.members, at, m)
	return r, nil
}

func (r Roster) remove(at int) (Roster, error) {
	gone := r.members[at]
	if !gone.Learner && len(r.Voters()) == 1 {
		return r, ErrLastVoter
	}
	r.members = slices.Delete(r.members, at, at+1)
	i, _ := slices.BinarySearch(r.removed, gone.ID)
	r.removed = slices.Insert(slices.Clone(r.removed), i, gone.ID)
	return r, nil
}

// usesURL reports whether another member has one of this member's peer URLs.
func (r Roster) usesURL(m Member) bool {
	return slices.ContainsFunc(r.members, func(other Member) bool {
		return other.ID != m.ID && slices.ContainsFunc(m.PeerURLs, func(url string) bool { return slices.Contains(other.PeerURLs, url) })
	})
}
