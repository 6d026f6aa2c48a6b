package gate

import (
	"errors"
	"strings"
	"testing"
)

// A leader opens a version once all other members have said, since it was elected, that they understand it.
func TestGateOpensWhenAllMembersKnowIt(t *testing.T) {
	others := []uint64{2, 3}
	var g Gates
	expect := func(what string, open, unheard bool) {
		t.Helper()
		if got := g.Open(Newest, others); got != open {
			t.Errorf("%s: open is %v", what, got)
		}
		if got := g.Unheard(others); got != unheard {
			t.Errorf("%s: unheard is %v", what, got)
		}
		if !g.Open(0, others) {
			t.Errorf("%s: what is as old as the log is refused", what)
		}
	}
	expect("of nobody is anything known", false, true)
	g.Hear(2, Newest)
	expect("one has not said anything", false, true)
	g.Hear(3, Newest-1)
	expect("one is too old", false, false)
	if g.Knows(3, Newest) || !g.Knows(2, Newest) || !g.Knows(3, Newest-1) {
		t.Error("what one member knows is wrong")
	}
	g.Hear(3, Newest)
	expect("all know it", true, false)
	if g.Open(Newest+1, others) {
		t.Error("a version is open that this program does not know")
	}
	g.Hear(2, 0)
	expect("one was replaced by an older program", false, false)
	g.Hear(2, Newest)
	g.Lead()
	expect("a new leader has heard nobody", false, true)
	g.Apply(0, Newest)
	expect("the log has used it", true, true)
	if g = (Gates{}); !g.Open(Newest, nil) || g.Unheard(nil) {
		t.Error("the only member waits for others")
	}
	if g.Open(Newest+1, nil) {
		t.Error("the only member uses a version that its program does not know")
	}
}

// A version is taken in use once all members understand it, and only once.
func TestVersionIsTakenInUseOnce(t *testing.T) {
	var g Gates
	others := []uint64{2}
	expect := func(what string, v, want Version) {
		t.Helper()
		if got := g.Begin(v, others); got != want {
			t.Errorf("%s: %d, not %d", what, got, want)
		}
	}
	expect("nobody has said anything", Access, 0)
	g.Hear(2, Access-1)
	expect("the other is too old", Access, 0)
	g.Hear(2, Access)
	expect("all understand it", Access, Access)
	expect("none is wanted", 0, 0)
	g.Apply(0, Access)
	expect("it is in use", Access, 0)
}

// The audit log records the acts that all members record, once it has begun or may begin.
func TestAuditLogRecordsWhatAllMembersRecord(t *testing.T) {
	others := []uint64{2}
	for _, c := range []struct {
		what          string
		inUse, uses   Version
		other, expect Version
	}{
		{"it has not begun", Members, 0, Newest, 0},
		{"it may not begin", Members, Access, Members, 0},
		{"it may begin", Members, Access, Newest, MarkActs},
		{"it may begin, and a member is older", Members, Access, Access, Access},
		{"it has begun", Access, 0, Newest, MarkActs},
		{"it has begun, and a member is older", Access, 0, Access, Access},
		{"it has a replaced mark", MarkActs, 0, Access, MarkActs},
	} {
		var g Gates
		g.Apply(0, c.inUse)
		g.Hear(2, c.other)
		if got := g.Acts(c.uses, others); got != c.expect {
			t.Errorf("%s: %d, not %d", c.what, got, c.expect)
		}
	}
}

// A member that is down counts as one that understands what the log states of all members. One that says less does not.
func TestMemberThatIsDownUnderstandsWhatTheLogStates(t *testing.T) {
	others := []uint64{2, 3}
	var g Gates
	expect := func(what string, v Version, want bool) {
		t.Helper()
		if got := g.Understood(v, others); got != want {
			t.Errorf("%s: version %d is understood: %v", what, v, got)
		}
	}
	g.Hear(2, Newest)
	expect("the log states nothing", Members, false)
	g.Apply(Members, 0)
	expect("the log states it", Members, true)
	expect("the log states less", Members+1, false)
	g.Hear(3, Members-1)
	expect("an older program has started", Members, false)
	g.Lead()
	expect("a new leader has heard nobody", Members, true)
	if g.Open(Members, others) {
		t.Error("the gate is open to what no member has confirmed")
	}
}

// The cluster version rises when the last member knows it, falls when an older program comes, and never below the version
// in use.
func TestClusterVersionFollowsTheOldestMember(t *testing.T) {
	others := []uint64{2, 3}
	var g Gates
	state := func(what string, want Version) {
		t.Helper()
		got := g.Due(others)
		if got != want {
			t.Errorf("%s: %d is due, not %d", what, got, want)
		}
		if got == 0 {
			return
		}
		g.Propose(got)
		if again := g.Due(others); again != 0 {
			t.Errorf("%s: %d is due while a statement is on its way", what, again)
		}
		if !g.Apply(got, 0) || g.State().Cluster != got {
			t.Errorf("%s: the state is %+v", what, g.State())
		}
	}
	g.Hear(2, Newest)
	state("one is unheard", 0)
	g.Hear(3, Marks)
	state("one is old", Marks)
	g.Hear(3, Newest)
	state("all are new", Newest)
	state("nothing has changed", 0)
	g.Lead()
	state("a new leader has heard nobody", 0)
	g.Hear(3, Marks)
	state("an older program comes, and another is unheard", Marks)
	g.Hear(2, Newest)
	g.Hear(3, Newest)
	g.Propose(Newest)
	g.Lead() // the statement is lost, or will be applied
	g.Hear(2, Newest)
	g.Hear(3, Newest)
	state("a statement of the former leadership is repeated", Newest)
	g.Apply(0, Newest)
	g.Hear(3, Marks)
	state("the version in use is the least", 0)
	if g.Apply(0, Marks) || g.Apply(Newest, 0) {
		t.Error("the state changes although nothing new was said")
	}
}

func TestUseRaisesTheClusterVersion(t *testing.T) {
	var g Gates
	if !g.Apply(0, Marks) || g.State() != (State{Cluster: Marks, InUse: Marks}) {
		t.Errorf("%+v", g.State())
	}
	g.Recover(State{Cluster: Newest})
	if g.State() != (State{Cluster: Newest, InUse: Marks}) {
		t.Errorf("recovered: %+v", g.State())
	}
}

func TestProgramRefusesNewerVersions(t *testing.T) {
	if err := Check(Newest); err != nil {
		t.Error(err)
	}
	var newer *NewerError
	if err := Check(Newest + 1); !errors.As(err, &newer) || newer.InUse != Newest+1 || !strings.Contains(err.Error(), "start the newer program again") {
		t.Errorf("%v", err)
	}
}
