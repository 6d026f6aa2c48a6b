package admission

import (
	"testing"
)

func TestEachIdentityLeavesPlacesToOthers(t *testing.T) {
	const most = 1000
	p := NewPlaces(most)
	full := func(who Identity) (s *Share, n int) {
		s = p.Join(who)
		for s.Take() == nil {
			n++
		}
		return s, n
	}
	wants := func(who Identity, want int) *Share {
		t.Helper()
		s, got := full(who)
		if got != want {
			t.Errorf("%s gets %d places, want %d", who, got, want)
		}
		return s
	}
	first := wants("a", most/2)
	wants("b", most/4)
	wants("c", most/8)
	honest := p.Join("honest")
	if err := honest.Take(); err != nil {
		t.Fatal(err)
	}
	first.Release(most / 2)
	if _, n := full("b"); n < most/8 {
		t.Errorf("the places that one identity gives back serve %d claims of another", n)
	}
	honest.Release(1)
	honest.Leave()
	if p.shares.Users("honest") != 0 || p.shares.Len() != 3 {
		t.Error("an identity without places is remembered")
	}
}

func TestKeptPlaceOutlivesItsShare(t *testing.T) {
	p := NewPlaces(2)
	s := p.Join("a")
	if err := s.Take(); err != nil {
		t.Fatal(err)
	}
	free := s.Keep()
	s.Release(1)
	s.Leave()
	if p.Taken() != 1 || p.Waiting() != 0 || p.shares.Users("a") != 1 {
		t.Errorf("%d places are taken, %d claims wait", p.Taken(), p.Waiting())
	}
	free()
	if p.Taken() != 0 || p.shares.Len() != 0 {
		t.Errorf("%d places are taken once the kept one is free", p.Taken())
	}
}

func TestCountedValueLastsUntilItsLastUserLeaves(t *testing.T) {
	var c Counted[string, int]
	first, leaveFirst := c.Join("k")
	*first = 7
	second, leaveSecond := c.Join("k")
	leaveFirst()
	if *second != 7 || c.Users("k") != 1 {
		t.Errorf("the second user sees %d of %d users", *second, c.Users("k"))
	}
	leaveSecond()
	if again, leave := c.Join("k"); *again != 0 {
		t.Errorf("an unused value is still %d", *again)
	} else {
		leave()
	}
	if c.Len() != 0 {
		t.Errorf("%d keys are in use", c.Len())
	}
}
