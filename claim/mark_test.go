package claim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

// markless is a store without marks.
type markless struct{ claim.Store }

func (markless) CanMark() error {
	return &backend.UnsupportedError{Backend: "memory", What: backend.Marks}
}

func number(n int64) backend.Tick { return backend.TickNumber(n) }

func (a *actor) marked(name string) backend.Mark {
	a.Helper()
	m, err := a.Mark(a.Context(), name)
	if err != nil {
		a.Fatal(err)
	}
	return m
}

// A store that keeps no marks leases names, and holds them on, as others do.
func TestStoreWithoutMarksSaysSo(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	c, err := claim.NewClient(markless{a.Store()}, claim.Options{Clock: a.clocks, Domain: "a", Drift: 1})
	if err != nil {
		t.Fatal(err)
	}
	a.Client = c
	l := a.hold("job", time.Minute)
	for what, call := range map[string]func() error{
		"Mark":        func() error { _, err := a.Mark(t.Context(), "job"); return err },
		"ReplaceMark": func() error { _, err := a.ReplaceMark(t.Context(), "job", backend.Mark{}, backend.Mark{}); return err },
		"RaiseMark":   func() error { return a.RaiseMark(t.Context(), l, number(1)) },
		"InheritMark": func() error { return a.InheritMark(t.Context(), "job", backend.Mark{Tick: number(1)}) },
		"Finish":      func() error { return a.Finish(t.Context(), l, backend.Finish{Tick: number(1)}) },
		"CheckFinish": func() error { return a.CheckFinish(backend.Finish{Tick: number(1)}) },
	} {
		w.is(what, call(), backend.ErrUnsupported)
	}
	a.extend(l, time.Minute) // what was refused has changed nothing
	w.is("no mark to inherit", a.InheritMark(t.Context(), "job", backend.Mark{}), nil)
	w.is("Finish without a tick", a.Finish(t.Context(), l, backend.Finish{Hold: time.Second}), nil)
	a.refused("job")
}

func TestMarksAndFinishesAreCheckedFirst(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", time.Minute)
	a.wire.counted()
	for what, err := range map[string]error{
		"no tick":                    a.RaiseMark(t.Context(), l, backend.Tick{}),
		"another client's lease":     b.RaiseMark(t.Context(), l, number(1)),
		"another client finishes it": b.Finish(t.Context(), l, backend.Finish{}),
		"no lease":                   a.Finish(t.Context(), nil, backend.Finish{}),
		"negative":                   a.Finish(t.Context(), l, backend.Finish{Hold: -1}),
		"too long":                   a.Finish(t.Context(), l, backend.Finish{Hold: claim.MaxTTL + 1}),
		"no name to inherit":         a.InheritMark(t.Context(), "/", backend.Mark{Tick: number(1)}),
	} {
		w.is(what, err, backend.ErrInvalid)
	}
	_, err := a.Mark(t.Context(), "/")
	w.is("no name", err, backend.ErrInvalid)
	_, err = a.ReplaceMark(t.Context(), "/", backend.Mark{}, backend.Mark{})
	w.is("no name to replace", err, backend.ErrInvalid)
	_, err = a.ReplaceMark(t.Context(), "job", backend.Mark{}, backend.Mark{Tick: number(1), Token: 1 << 63})
	w.is("a token that no holder has", err, backend.ErrInvalid)
	same(w, "calls", a.wire.counted(), "map[]")
	w.is("the longest time", a.Finish(t.Context(), l, backend.Finish{Hold: claim.MaxTTL}), nil)
}

// A lease whose claim is unknown holds nothing that can be finished.
func TestUnknownClaimIsNotFinished(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	w.is("release", a.Release(t.Context(), a.hold("job", time.Minute)), nil)
	b := a.onSameMachine("b")
	w.is("release", b.Release(t.Context(), b.hold("job", time.Minute)), nil) // b remembers the record
	b.wire.next, b.wire.down = []string{"lost"}, backend.ErrUnavailable
	l, err := b.try("job", time.Minute)
	w.is("claim", err, backend.ErrUnknownOutcome)
	w.is("finish", b.Finish(t.Context(), l, backend.Finish{}), backend.ErrInvalid)
	w.is("mark", b.RaiseMark(t.Context(), l, number(1)), backend.ErrInvalid)
	b.wire.down = nil
	w.is("release", b.Release(t.Context(), l), nil)
}

// An answer that rests on no write rests on a read.
func TestNoMarkIsConfirmedFromMemory(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", time.Minute)
	w.is("raise", a.RaiseMark(t.Context(), l, number(5)), nil)
	a.wire.counted()
	w.is("raise", a.RaiseMark(t.Context(), l, number(6)), nil)
	same(w, "to raise it costs", a.wire.counted(), "map[swap:1]")
	w.is("raise", a.RaiseMark(t.Context(), l, number(6)), nil)
	same(w, "to leave it costs", a.wire.counted(), "map[get:1]")
	done, err := b.ReplaceMark(t.Context(), "job", backend.Mark{Tick: number(6), Token: 1}, backend.Mark{})
	w.is("reset", err, nil)
	same(w, "reset", done, true)
	w.is("raise", a.RaiseMark(t.Context(), l, number(5)), nil)
	same(w, "mark", a.marked("job"), backend.Mark{Tick: number(5), Token: 1})
	a.wire.counted()
	w.is("finish", a.Finish(t.Context(), l, backend.Finish{Tick: number(7)}), nil)
	same(w, "to finish costs", a.wire.counted(), "map[swap:1]")
	w.is("again", a.Finish(t.Context(), l, backend.Finish{Tick: number(7)}), nil)
	a.hold("job", time.Minute)
	same(w, "again and to claim costs", a.wire.counted(), "map[swap:1]")
}

// A mark that was raised under a lease, and whose answer was lost, is confirmed also when the lease was lost since.
func TestRaisedMarkIsConfirmedAfterTheLeaseWasLost(t *testing.T) {
	for landed, kind := range map[string]error{"unanswered": nil, "lost": backend.ErrLost} {
		w := newWorld(t)
		a := w.actor("a", time.Hour)
		b := a.onSameMachine("b")
		l := a.hold("job", time.Minute)
		a.wire.next, a.wire.down = []string{landed}, backend.ErrUnavailable
		w.is(landed, a.RaiseMark(t.Context(), l, number(1)), backend.ErrUnknownOutcome)
		a.wire.down = nil
		w.pass(2 * time.Minute)
		b.hold("job", time.Minute)
		w.is("extend", a.Extend(t.Context(), l, 0), backend.ErrLost)
		w.is(landed+", again", a.RaiseMark(t.Context(), l, number(1)), kind)
	}
}

// A tick that was reached by a later tenure may have been reached before, too.
func TestDoubtAboutAMarkRemains(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	b := a.onSameMachine("b")
	l := a.hold("job", time.Minute)
	a.wire.next, a.wire.down = []string{"unanswered"}, backend.ErrUnavailable
	w.is("finish", a.Finish(t.Context(), l, backend.Finish{Tick: number(1), Hold: time.Second}), backend.ErrUnknownOutcome)
	a.wire.down = nil
	w.pass(2 * time.Minute)
	w.is("b", b.Finish(t.Context(), b.hold("job", time.Minute), backend.Finish{Tick: number(2)}), nil)
	w.is("again", a.Finish(t.Context(), l, backend.Finish{Tick: number(1), Hold: time.Second}), backend.ErrUnknownOutcome)
	w.is("an earlier kind of tick", a.Finish(t.Context(), l, backend.Finish{Tick: number(3)}), backend.ErrLost)
}

// The lost answer to a replacement is found, even when the record was changed since.
func TestReplacedMarkIsFound(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := b.hold("job", time.Minute)
	a.wire.next = []string{"unanswered"}
	a.wire.slow = func() { b.extend(l, 0) }
	done, err := a.ReplaceMark(t.Context(), "job", backend.Mark{}, backend.Mark{Tick: number(1)})
	if !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	a.wire.next, a.wire.slow = []string{"unanswered"}, func() { a.wire.down = backend.ErrUnavailable }
	done, err = a.ReplaceMark(t.Context(), "job", backend.Mark{Tick: number(1)}, backend.Mark{})
	if w.is("blind", err, backend.ErrUnknownOutcome); done {
		t.Error("an unknown outcome was reported as done")
	}
}

// The store counts how long a name is held on, and its clock may be fast: the time has passed by the holder's clock too.
func TestStoreClockHoldsOnForTheHoldersTime(t *testing.T) {
	w := newWorld(t)
	const drift = clock.Drift(10_000)
	open := func(name string) *actor {
		s, err := w.memory.OpenNamespace("store", true)
		if err != nil {
			t.Fatal(err)
		}
		return w.process(name, newHands(time.Hour), clock.Domain(name), s, func(o *claim.Options) { o.Drift = drift })
	}
	a, b := open("a"), open("b")
	l := a.hold("job", time.Minute)
	w.is("finish", a.Finish(t.Context(), l, backend.Finish{Hold: 10 * time.Second}), nil)
	wait := drift.WaitRemote(10 * time.Second)
	if left := b.state("job").Ends; left > wait || left < wait-time.Second {
		t.Errorf("it lasts for %v, want %v", left, wait)
	}
	w.pass(wait - time.Second)
	b.refused("job")
	w.pass(time.Second + time.Millisecond)
	b.hold("job", time.Minute)
}

// The holder of a name that is held on has ended anyway, so the end of its machine's boot ends nothing.
func TestHeldOnNameOutlivesTheBoot(t *testing.T) {
	w := newWorld(t, claimtest.WithGone(func(d clock.Domain) bool { return d == "boot1" }))
	one, two := w.actor("boot1", time.Hour), w.actor("boot2", time.Second)
	for i, name := range []string{"on", "off"} {
		l := one.hold(name, time.Hour)
		if i == 0 {
			w.is("finish", one.Finish(t.Context(), l, backend.Finish{Hold: time.Minute}), nil)
		}
	}
	two.hold("off", time.Minute)
	two.refused("on")
	w.pass(time.Minute + time.Second)
	two.hold("on", time.Minute)
}

// A revoked holder may still finish. The name is free then, because a person has said that the tenure should end.
func TestRevokedTenureIsNotHeldOn(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	b := a.onSameMachine("b")
	l := a.hold("job", time.Minute)
	w.is("revoke", b.Revoke(t.Context(), "job", 0, "it hangs", false), nil)
	w.is("extend", a.Extend(t.Context(), l, 0), backend.ErrLost)
	w.is("mark", a.RaiseMark(t.Context(), l, number(1)), backend.ErrLost)
	w.is("finish", a.Finish(t.Context(), l, backend.Finish{Tick: number(1), Hold: 5 * time.Minute}), nil)
	b.hold("job", time.Minute)
	if past := b.state("job").Record.Past[0]; past.Why != backend.Revoked || past.Note != "it hangs" {
		t.Errorf("%+v", past)
	}
	same(w, "mark", b.marked("job"), backend.Mark{Tick: number(1), Token: l.Token()})
}

// A name moves with its mark. Where the destination has a later one, that stays.
func TestMoveTakesMarksAlong(t *testing.T) {
	from, to := newWorld(t).actor("a", time.Hour), elsewhere(t)
	finish := func(a *actor, name string, tick backend.Tick) {
		t.Helper()
		if err := a.Finish(t.Context(), a.hold(name, time.Minute), backend.Finish{Tick: tick}); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"later", "new", "other", "same"} {
		finish(from, name, number(int64(i)))
	}
	finish(to, "later", number(9))
	to.used("same", 3)
	finish(to, "other", backend.TickAt(time.Unix(0, 0)))
	stays := ""
	moved, err := from.Move(t.Context(), claim.Move{
		To: func(ctx context.Context, r *claim.Record) error {
			if err := to.Inherit(ctx, r.Name, r.Token, r.Past); err != nil {
				return err
			}
			return to.InheritMark(ctx, r.Name, r.Mark)
		},
		Left: func(name string, why error) { stays += fmt.Sprint(name, ": ", why) },
	})
	if err != nil || moved != 3 || !strings.Contains(stays, "other: ") {
		t.Errorf("moved %d, %v; stays: %s", moved, err, stays)
	}
	for name, want := range map[string]backend.Mark{
		"later": {Tick: number(9), Token: 1}, "new": {Tick: number(1), Token: 1}, "same": {Tick: number(3), Token: 1}, "other": {Tick: backend.TickAt(time.Unix(0, 0)), Token: 1},
	} {
		if got := to.marked(name); got != want {
			t.Errorf("%s: %q, want %q", name, got.Text(), want.Text())
		}
	}
	if !from.recorded("other") || from.recorded("new") {
		t.Error("what stays is gone, or what was moved is still there")
	}
}

// pausedList is a store in which something happens after each list.
type pausedList struct {
	claim.Store
	after func()
}

func (s pausedList) List(ctx context.Context, prefix, after string, limit int) ([]claim.Found, error) {
	defer s.after()
	return s.Store.List(ctx, prefix, after, limit)
}

// A mark that is raised after the collection has listed the record stays, also if the lease then expires.
func TestMarkRaisedDuringACollectionStays(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	l, collector := a.hold("job", time.Minute), a.onSameMachine("collector")
	c, err := claim.NewClient(pausedList{collector.Store(), func() {
		w.is("raise", a.RaiseMark(t.Context(), l, number(1)), nil)
		w.pass(2 * time.Minute)
	}}, claim.Options{Clock: a.clocks, Domain: "a", Drift: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Collect(t.Context(), claim.Collection{}); n != 0 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	same(w, "mark", a.marked("job"), backend.Mark{Tick: number(1), Token: l.Token()})
}
