package roster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// model is a roster as maps, written as plainly as possible.
type model struct {
	members map[uint64]Member
	removed map[uint64]bool
}

func (m model) voters() (n int) {
	for _, member := range m.members {
		if !member.Learner {
			n++
		}
	}
	return n
}

func (m model) uses(url string, but uint64) bool {
	for id, member := range m.members {
		if id != but && slices.Contains(member.PeerURLs, url) {
			return true
		}
	}
	return false
}

func (m model) apply(c Change) error {
	id := c.Member.ID
	old, there := m.members[id]
	switch {
	case id == 0:
		return ErrInvalid
	case m.removed[id]:
		return ErrRemoved
	case c.Kind == Add && there:
		return ErrIDExists
	case c.Kind != Add && !there:
		return ErrNotFound
	}
	switch c.Kind {
	case Add:
		for _, url := range c.Member.PeerURLs {
			if m.uses(url, id) {
				return ErrPeerURLExists
			}
		}
		c.Member.Incarnation = 0
		m.members[id] = c.Member
	case Remove:
		if !old.Learner && m.voters() == 1 {
			return ErrLastVoter
		}
		delete(m.members, id)
		m.removed[id] = true
	case Promote:
		if !old.Learner {
			return ErrNotLearner
		}
		old.Learner = false
		m.members[id] = old
	case Update:
		for _, url := range c.Member.PeerURLs {
			if m.uses(url, id) {
				return ErrPeerURLExists
			}
		}
		old.PeerURLs = c.Member.PeerURLs
		m.members[id] = old
	case Describe:
		old.Name, old.ClientURLs = c.Member.Name, c.Member.ClientURLs
		m.members[id] = old
	case Bind:
		if c.Member.Incarnation == 0 || old.Incarnation != 0 && old.Incarnation != c.Member.Incarnation {
			return ErrBound
		}
		old.Incarnation = c.Member.Incarnation
		m.members[id] = old
	}
	return nil
}

func randomChange(rng *rand.Rand) Change {
	return Change{Kind: Kind(1 + rng.IntN(6)), Member: Member{
		ID: uint64(rng.IntN(9)), Name: fmt.Sprint("m", rng.IntN(9)), PeerURLs: []string{fmt.Sprint("http://", rng.IntN(12))},
		ClientURLs: []string{"http://c"}, Learner: rng.IntN(2) == 0, Incarnation: uint64(rng.IntN(3)),
	}}
}

// Any list of changes has the same outcomes in a roster and in the model. No change modifies an earlier roster. A change
// of the voters leaves any two majorities a common voter.
func TestRosterFollowsTheModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := Founded([]Member{{ID: 1}, {ID: 2, Incarnation: 1}})
		m := model{map[uint64]Member{1: {ID: 1}, 2: {ID: 2, Incarnation: 1}}, make(map[uint64]bool)}
		for range 100 {
			c := randomChange(rng)
			before := r.Record()
			after, err := r.Apply(c)
			if want := m.apply(c); !errors.Is(err, want) {
				t.Fatalf("seed %d: %+v: %v, and by the model %v", seed, c, err, want)
			}
			if !reflect.DeepEqual(r.Record(), before) {
				t.Fatalf("seed %d: %+v changed the roster before it", seed, c)
			}
			checkMajorities(t, r.Voters(), after.Voters())
			r = after
			checkModel(t, r, m)
		}
	}
}

func checkMajorities(t *testing.T, before, after []uint64) {
	t.Helper()
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(before, after))))
	if majority(len(before))+majority(len(after)) <= len(all) {
		t.Fatalf("majorities of %v and of %v need have no voter in common", before, after)
	}
}

func checkModel(t *testing.T, r Roster, m model) {
	t.Helper()
	again, err := FromRecord(r.Record())
	if err != nil || !reflect.DeepEqual(again.Record(), r.Record()) {
		t.Fatalf("read back: %v, %v", again, err)
	}
	if len(r.Members()) != len(m.members) || len(r.Voters()) != m.voters() || len(r.Learners()) != len(m.members)-m.voters() {
		t.Fatalf("%+v, and by the model %+v", r.Members(), m.members)
	}
	for id := range uint64(9) {
		got, there := r.Member(id)
		want, known := m.members[id]
		if there != known || !reflect.DeepEqual(got, want) || r.Removed(id) != m.removed[id] || r.Unbound(id) != (known && want.Incarnation == 0) {
			t.Fatalf("member %d: %+v, removed %v; by the model %+v, %v", id, got, r.Removed(id), want, m.removed[id])
		}
	}
}

// view is that of a leader with id 1 which hears the members named.
func view(up ...uint64) View {
	return View{Self: 1, Up: func(id uint64) bool { return slices.Contains(up, id) }, Match: func(id uint64) uint64 { return 100 - id }}
}

func TestLeaderChecksChanges(t *testing.T) {
	bound := func(ids ...uint64) (list []Member) {
		for _, id := range ids {
			list = append(list, Member{ID: id, Incarnation: id, PeerURLs: []string{fmt.Sprint(id)}})
		}
		return list
	}
	learner := Member{ID: 4, Learner: true, Incarnation: 4}
	add, remove, promote := Change{Add, Member{ID: 9}}, func(id uint64) Change { return Change{Remove, Member{ID: id}} }, Change{Promote, Member{ID: 4}}
	for what, c := range map[string]struct {
		list   []Member
		change Change
		view   View
		want   error
	}{
		"a voter":                                 {bound(1, 2, 3), add, view(2, 3), nil},
		"a voter while another is down":           {bound(1, 2, 3), add, view(2), ErrUnhealthy},
		"a voter while another has not started":   {append(bound(1, 2), Member{ID: 3}), add, view(2, 3), ErrNotEnoughStarted},
		"a learner while a voter is down":         {bound(1, 2, 3), Change{Add, Member{ID: 9, Learner: true}}, view(2), nil},
		"a second learner":                        {append(bound(1, 2, 3), learner), Change{Add, Member{ID: 9, Learner: true}}, view(2, 3, 4), ErrTooManyLearners},
		"an address that is taken":                {bound(1, 2, 3), Change{Add, Member{ID: 9, PeerURLs: []string{"2"}}}, view(2, 3), ErrPeerURLExists},
		"the removal of one that is up":           {bound(1, 2, 3), remove(3), view(2, 3), nil},
		"the removal of one that is down":         {bound(1, 2, 3), remove(3), view(2), nil},
		"the removal of the only other one up":    {bound(1, 2, 3), remove(2), view(2), ErrUnhealthy},
		"the removal of the only started ones":    {append(bound(1, 2), Member{ID: 3}), remove(2), view(2, 3), ErrNotEnoughStarted},
		"the removal of the last voter":           {append(bound(1), learner), remove(1), view(4), ErrLastVoter},
		"the removal of a learner":                {append(bound(1, 2, 3), learner), remove(4), view(), nil},
		"the promotion of a learner":              {append(bound(1, 2, 3), learner), promote, view(2, 3, 4), nil},
		"the promotion of a learner that is down": {append(bound(1, 2, 3), learner), promote, view(2, 3), ErrLearnerNotInStep},
		"the promotion of one never heard":        {append(bound(1, 2, 3), Member{ID: 4, Learner: true}), promote, view(2, 3, 4), ErrLearnerNotInStep},
		"the promotion of one that lags": {append(bound(1, 2, 3), learner), promote,
			View{Self: 1, Up: func(uint64) bool { return true }, Match: func(id uint64) uint64 { return map[uint64]uint64{1: 100, 4: 89}[id] }}, ErrLearnerNotInStep},
		"the promotion of a voter": {bound(1, 2, 4), promote, view(2, 4), ErrNotLearner},
	} {
		if err := Founded(c.list).Check(c.change, c.view); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, and not %v", what, err, c.want)
		}
	}
}

func TestEntriesReadBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		e := Entry{Sequence: rng.Uint64(), Change: randomChange(rng)}
		e.Change.Member.ID++
		if rng.IntN(2) == 0 {
			e.Founders = Founded([]Member{{ID: 3, Name: "a"}, {ID: 1, PeerURLs: []string{"x"}}})
		}
		if got, err := ParseEntry(e.Marshal()); err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("%+v was read back as %+v, %v", e, got, err)
		}
	}
	for what, e := range map[string]Entry{"no kind": {Change: Change{Member: Member{ID: 1}}}, "an unknown kind": {Change: Change{Kind: Bind + 1, Member: Member{ID: 1}}}, "no member": {Change: Change{Kind: Add}}} {
		if _, err := ParseEntry(e.Marshal()); err == nil {
			t.Errorf("an entry with %s was read", what)
		}
	}
}

func TestDamagedListsAreRefused(t *testing.T) {
	for what, r := range map[string]Roster{
		"no id":                    {members: []Member{{}}},
		"an id twice":              {members: []Member{{ID: 1}, {ID: 1}}},
		"ids out of order":         {members: []Member{{ID: 2}, {ID: 1}}},
		"a member that is removed": {members: []Member{{ID: 1}}, removed: []uint64{1}},
		"removals out of order":    {members: []Member{{ID: 1}}, removed: []uint64{3, 2}},
	} {
		if _, err := FromRecord(r.Record()); err == nil {
			t.Errorf("a list with %s was read", what)
		}
	}
}
