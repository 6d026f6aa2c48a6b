package masterlease

import (
	"slices"
	"testing"
	"time"
)

func voters(ids ...uint64) Configuration { return Configuration{Voters: ids} }

var scripts = []script{
	{name: "one to two", configs: []Configuration{voters(1), voters(1, 2)}, ticks: 2, sends: 3, crashes: 2, terms: 3},
	{name: "one to three", configs: []Configuration{voters(1), voters(1, 2), voters(1, 2, 3)}, ticks: 0, sends: 4, terms: 2},
	{name: "two to one", configs: []Configuration{voters(1, 2), voters(1)}, ticks: 2, sends: 4, crashes: 1, terms: 3},
	{name: "two to one, without the leader", configs: []Configuration{voters(1, 2), voters(2)}, ticks: 2, sends: 4, crashes: 1, terms: 3},
	{name: "three to two", configs: []Configuration{voters(1, 2, 3), voters(1, 2)}, ticks: 1, sends: 2, crashes: 1, terms: 2},
	{name: "three to two, without the leader", configs: []Configuration{voters(1, 2, 3), voters(2, 3)}, ticks: 1, sends: 2, crashes: 1, terms: 2},
	{name: "replace one of two", configs: []Configuration{voters(1, 2), voters(1, 2, 3), voters(1, 3)}, ticks: 0, sends: 4, terms: 2},
	{name: "replace the leader of two", configs: []Configuration{voters(1, 2), voters(1, 2, 3), voters(2, 3)}, ticks: 0, sends: 4, terms: 2},
	{name: "four to three", configs: []Configuration{voters(1, 2, 3, 4), voters(1, 2, 3)}, logged: true, ticks: 0, sends: 2, terms: 2},
	{name: "promote a learner of three", configs: []Configuration{{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}, voters(1, 2, 3, 4)}, ticks: 0, sends: 2, terms: 2},
	{name: "promote a learner of two", configs: []Configuration{{Voters: []uint64{1, 2}, Learners: []uint64{3}}, voters(1, 2, 3)}, logged: true, ticks: 0, sends: 3, terms: 2},
}

// visit is a state, and how the model came there.
type visit struct {
	s    *stage
	from int
	by   deed
}

// explore visits all states of a script, up to the first in which something is broken. It returns what is broken and the
// events that lead there.
func (m *model) explore() (path string, states int) {
	m.did = make(map[string]int)
	queue := []visit{{s: m.begin(), from: -1}}
	seen := map[string]bool{queue[0].s.key(): true}
	for i := 0; i < len(queue) && path == ""; i++ {
		s := queue[i].s
		queue[i].s = nil
		m.next(s, func(next *stage, by deed) {
			if path != "" {
				return
			}
			if m.check(next); m.broken != "" {
				path = by.String() + ": " + m.broken
				for k := i; k > 0; k = queue[k].from {
					path = queue[k].by.String() + "; " + path
				}
				return
			}
			if key := next.key(); !seen[key] {
				seen[key] = true
				queue = append(queue, visit{next, i, by})
			}
		})
		if len(seen) > modelStates {
			m.t.Fatalf("more than %d states", modelStates)
		}
	}
	return path, len(seen)
}

// check notes what is broken in a state.
func (m *model) check(s *stage) {
	v := &move{m: m, s: s}
	valid := uint64(0)
	for _, p := range s.parts {
		if !p.h.Valid(now(s.tick)) {
			continue
		}
		if p.h.term < s.elected {
			v.fail("member %d has authority for term %d, and a leader of term %d was elected", p.id, p.h.term, s.elected)
		}
		if p.applied < s.acked {
			v.fail("member %d has authority and has applied %d entries, but %d were acknowledged", p.id, p.applied, s.acked)
		}
		if valid != 0 {
			v.fail("members %d and %d have authority", valid, p.id)
		}
		valid = p.id
	}
	if valid != 0 {
		m.did["authority"]++
		if s.elected > 1 {
			m.did["authority of a later leader"]++
		}
	}
}

// In no state of a cluster whose voters change do two members have authority, or one that a later leader has replaced.
func TestNoChangeOfVotersGivesTwoLeadersAuthority(t *testing.T) {
	for _, c := range scripts {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			m := &model{t: t, script: c, rules: defaultRules}
			path, states := m.explore()
			t.Logf("%d states, %v, %v", states, m.did, time.Since(began).Round(time.Millisecond))
			if path != "" {
				t.Error(path)
			}
			for _, what := range []string{"promise", "authority", "election", "authority of a later leader"} {
				if m.did[what] == 0 {
					t.Errorf("no %s in %d states", what, states)
				}
			}
			if m.did["change"] == 0 && !c.logged || m.did["crash in the midst of a change"] == 0 && c.crashes > 0 {
				t.Errorf("too little happens: %v", m.did)
			}
		})
	}
}

// mistakes are rules of a change that are broken, and the script that shows it.
var mistakes = []struct {
	name     string
	breach   breach
	bend     func(r *rules) // nil changes none
	script   string
	harmless bool // other rules protect the cluster as well
}{
	{name: "a member alone skips its wait although its directory had a second voter", breach: breach{aloneSkipsWait: true}, script: "one to two"},
	{name: "a member alone campaigns in spite of its promise", breach: breach{aloneIsFree: true}, script: "one to two"},
	{name: "the lease keeps its first voters", breach: breach{firstVoters: true}, script: "one to three"},
	{name: "a removed member's promise counts", breach: breach{countsRemoved: true}, bend: countLearners, script: "four to three"},
	{name: "a learner's promise counts", bend: countLearners, script: "promote a learner of three"},
	{name: "a learner votes in spite of its promise", breach: breach{freeLearners: true}, script: "promote a learner of two"},
	{name: "a member votes right after its start", bend: func(r *rules) {
		r.holdOff = func(time.Duration) time.Duration { return 0 }
	}, script: "three to two"},
	{name: "authority before an entry of the own term", bend: func(r *rules) {
		r.usable = func(bool) bool { return true }
	}, script: "two to one, without the leader"},
	// A leader with an unapplied change has no authority, so that nothing rests on the promise of a member that the change
	// leaves alone. The member waits nevertheless. Either rule is enough.
	{name: "changes that are not applied end no authority", breach: breach{unreported: true}, script: "two to one, without the leader", harmless: true},
	{name: "a member that a change leaves alone skips its wait", breach: breach{aloneSkipsWait: true}, script: "two to one, without the leader", harmless: true},
	{name: "changes that are not applied end no authority, and a member alone skips its wait",
		breach: breach{unreported: true, aloneSkipsWait: true}, script: "two to one, without the leader"},
}

// countLearners makes learners count like voters, while the size of a quorum is that of the voters.
func countLearners(r *rules) {
	learners := 0
	r.voterSets = func(c Configuration) [2][]uint64 {
		learners = len(c.Learners)
		return [2][]uint64{distinct(append(append([]uint64(nil), c.Voters...), c.Learners...))}
	}
	r.quorum = func(voters int) int { return (voters-learners)/2 + 1 }
}

// Each rule that protects a change is needed: without it, a script shows two leaders. Where two rules protect the same, both are
// missing.
func TestEveryRuleOfAChangeIsNeeded(t *testing.T) {
	for _, v := range mistakes {
		t.Run(v.name, func(t *testing.T) {
			m := &model{t: t, script: scripts[slices.IndexFunc(scripts, func(s script) bool { return s.name == v.script })], breach: v.breach, rules: defaultRules}
			if v.bend != nil {
				v.bend(&m.rules)
			}
			path, states := m.explore()
			if v.harmless != (path == "") {
				t.Fatalf("%d states, %v, harmless %v: %s", states, m.did, v.harmless, path)
			}
			t.Logf("%d states: %s", states, path)
		})
	}
}
