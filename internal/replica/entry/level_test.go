package entry

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
)

// A command of a level is taken on once all other members have said that they can apply it, or the log has had the level.
func TestCommandsWaitForAllMembers(t *testing.T) {
	members := []uint64{1, 2, 3}
	var l Levels
	expect := func(what string, want bool) {
		t.Helper()
		if got := l.TooNew(ownership.Finish{}, 1, members); got != want {
			t.Errorf("%s: too new is %v", what, got)
		}
		if l.TooNew(ownership.Release{}, 1, members) {
			t.Errorf("%s: a release is too new", what)
		}
	}
	unheard := func(want bool) {
		t.Helper()
		if got := l.Unheard(1, members); got != want {
			t.Errorf("a member is unheard: %v", got)
		}
	}
	expect("of nobody is anything known", true)
	l.Hear(2, NewestLevel)
	expect("one has not said anything", true)
	unheard(true)
	l.Hear(3, 0)
	expect("one is too old", true)
	unheard(false)
	l.Hear(3, NewestLevel)
	expect("all can apply it", false)
	l.Hear(2, 0)
	expect("one was replaced by an older version", true)
	l.Applied = Level(ownership.RaiseMark{})
	expect("the log has had it", false)
	for _, c := range []struct {
		op   Command
		want uint32
	}{{ownership.Claim{}, 0}, {ownership.Claim{Priority: -1}, 1}, {ownership.Prefer{}, 1}, {ownership.RaiseMark{}, 1}} {
		if got := Level(c.op); got != c.want {
			t.Errorf("%+v has level %d", c.op, got)
		}
	}
	if l = (Levels{}); l.TooNew(ownership.Finish{}, 1, []uint64{1}) {
		t.Error("for the only member a finish is too new")
	}
}
