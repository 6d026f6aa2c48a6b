package claimtest

import (
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// A mark is raised by the holder alone, and everything that follows leaves it as it is.
func testMarks(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	noon := backend.TickAt(time.Date(2026, 3, 1, 12, 0, 0, 1, time.UTC))
	later := backend.TickAt(time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC))
	is := func(what string, want backend.Mark) {
		s.Helper()
		for _, by := range []*actor{a, b} {
			if m, err := by.Mark(s.Context(), "jobs/x"); m != want || err != nil {
				s.Errorf("%s the mark is %q, and not %q: %v", what, m.Text(), want.Text(), err)
			}
		}
	}
	is("at first", backend.Mark{})
	l := a.take("jobs/x")
	s.must("RaiseMark", a.RaiseMark(s.Context(), l, noon))
	mark := backend.Mark{Tick: noon, Token: l.Token()}
	is("raised,", mark)
	a.keeps(l)
	s.must("ExtendAll", a.ExtendAll(s.Context(), []*claim.Lease{l, a.take("jobs/y")}, func(_ int, err error) { s.must("Extend", err) }))
	s.must("Announce", a.Announce(s.Context(), l, "busy"))
	s.must("Pin", b.Pin(s.Context(), "jobs/x", "kept"))
	is("held,", mark)
	s.must("RaiseMark", a.RaiseMark(s.Context(), l, noon))
	s.is("a tick of another kind", a.RaiseMark(s.Context(), l, backend.TickNumber(1)), backend.ErrInvalid)
	s.must("ReleaseAndUnpin", a.ReleaseAndUnpin(s.Context(), l))
	is("released,", mark)
	s.is("RaiseMark of what was released", a.RaiseMark(s.Context(), l, later), backend.ErrLost)
	l = b.take("jobs/x")
	resumed, err := a.Resume(s.Context(), "jobs/x", l.Token(), a.holder, backend.ID(claim.NewOp()))
	s.must("Resume", err)
	s.is("RaiseMark of what was resumed", b.RaiseMark(s.Context(), l, later), backend.ErrLost)
	is("resumed,", mark)
	s.must("RaiseMark", a.RaiseMark(s.Context(), resumed, later))
	mark = backend.Mark{Tick: later, Token: l.Token()}
	s.must("Revoke", b.Revoke(s.Context(), "jobs/x", 0, "x", true))
	is("revoked,", mark)
	if removed, err := b.Collect(s.Context(), claim.Collection{}); removed != 0 || err != nil {
		s.Errorf("%d records were collected, %v", removed, err)
	}
	is("after a collection", mark)
	if done, err := b.ReplaceMark(s.Context(), "jobs/x", backend.Mark{Tick: noon}, backend.Mark{}); done || err != nil {
		s.Errorf("another mark was replaced: %v, %v", done, err)
	}
	for _, name := range []string{"jobs/x", "jobs/new"} {
		old := backend.Mark{}
		if name == "jobs/x" {
			old = mark
		}
		if done, err := b.ReplaceMark(s.Context(), name, old, backend.Mark{Tick: noon}); !done || err != nil {
			s.Errorf("the mark of %s was not replaced: %v, %v", name, done, err)
		}
	}
	is("replaced,", backend.Mark{Tick: noon})
	s.must("InheritMark", b.InheritMark(s.Context(), "jobs/x", mark))
	s.must("InheritMark", b.InheritMark(s.Context(), "jobs/x", backend.Mark{Tick: noon, Token: 1}))
	is("inherited,", mark)
}

// A release that records a tick is one step.
func testFinish(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	for i := range 3 {
		l := a.take("jobs/x")
		tick := backend.TickNumber(int64(i - 1))
		s.must("Finish", a.Finish(s.Context(), l, backend.Finish{Tick: tick}))
		s.must("Finish again", a.Finish(s.Context(), l, backend.Finish{Tick: tick}))
		next := b.take("jobs/x")
		s.is("Finish of what was finished", b.Finish(s.Context(), next, backend.Finish{Hold: claim.MaxTTL + 1}), backend.ErrInvalid)
		b.keeps(next)
		b.gives(next)
		if m, err := b.Mark(s.Context(), "jobs/x"); err != nil || m != (backend.Mark{Tick: tick, Token: l.Token()}) {
			s.Errorf("the mark is %q, %v", m.Text(), err)
		}
		a.loses(l)
	}
	state, err := b.Get(s.Context(), "jobs/x")
	s.must("Get", err)
	if len(state.Record.Past) != 6 || state.Record.Past[1].Why != backend.Released {
		s.Errorf("the past is %+v", state.Record.Past)
	}
	l := a.take("jobs/x")
	a.pass(ttl+1, ttl+1)
	s.is("RaiseMark of what has expired", a.RaiseMark(s.Context(), l, backend.TickNumber(9)), backend.ErrLost)
	l = a.take("jobs/x")
	a.pass(ttl+1, ttl+1)
	s.is("Finish of what has expired", a.Finish(s.Context(), l, backend.Finish{Tick: backend.TickNumber(9)}), backend.ErrLost)
	next := a.onSameMachine("b").take("jobs/x")
	s.is("Finish of what was lost", a.Finish(s.Context(), l, backend.Finish{Tick: backend.TickNumber(9)}), backend.ErrLost)
	s.grows(l.Token(), next.Token())
	if m, err := b.Mark(s.Context(), "jobs/x"); err != nil || m.Tick != backend.TickNumber(1) {
		s.Errorf("the mark is %q, %v", m.Text(), err)
	}
}

// A name is held on for as long as its holder wanted, and no longer, whatever its TTL.
func testHeldOn(s *suite) {
	for name, hold := range map[string]time.Duration{"jobs/short": ttl / 2, "jobs/long": 5 * ttl} { // order: each for itself
		a := s.actor("a")
		b, other := a.onSameMachine("b"), s.actor("other")
		l := a.take(name)
		s.must("Pin", b.Pin(s.Context(), name, "ends with the tenure"))
		s.must("Finish", a.Finish(s.Context(), l, backend.Finish{Hold: hold}))
		a.loses(l)
		b.refused(name, l)
		other.refused(name, l)
		a.gives(l)
		_, err := b.Resume(s.Context(), name, l.Token(), b.holder, backend.ID(claim.NewOp()))
		s.is("Resume of what is held on", err, backend.ErrLost)
		wait := clock.Drift(clock.DefaultDrift).WaitRemote(hold)
		other.pass(wait, wait)
		a.pass(hold, hold)
		b.refused(name, l)
		other.refused(name, l)
		other.pass(1, 1)
		a.pass(1, 1)
		next := other.take(name)
		s.grows(l.Token(), next.Token())
		if state, err := b.Get(s.Context(), name); err != nil || len(state.Record.Past) != 1 || state.Record.Past[0].Why != backend.Expired || state.Record.Past[0].Note != "" {
			s.Errorf("the past of %s is %+v, %v", name, state.Record.Past, err)
		}
	}
}
