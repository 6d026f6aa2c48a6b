package claimed_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

var noon = backend.TickAt(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// Only a lease that holds its name raises the mark or is finished, and only at the backend that made it.
func TestOnlyHoldersFinish(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p, other := w.process(), w.process()
		l, g := p.hold("x", "a")
		place := p.wait("x", "b")
		is := func(what string, err, kind error) {
			t.Helper()
			if !errors.Is(err, kind) {
				t.Errorf("%s: %v, not %v", what, err, kind)
			}
		}
		is("a place finishes", p.Finish(t.Context(), place, backend.Finish{}), backend.ErrLost)
		is("a place raises the mark", p.RaiseMark(t.Context(), place, noon), backend.ErrLost)
		is("another backend finishes", other.Finish(t.Context(), l, backend.Finish{}), backend.ErrInvalid)
		is("another backend raises the mark", other.RaiseMark(t.Context(), l, noon), backend.ErrInvalid)
		is("too long", p.Finish(t.Context(), l, backend.Finish{Hold: claim.MaxTTL + time.Millisecond}), backend.ErrInvalid)
		is("too long", p.CheckHold(ttl, claim.MaxTTL+1), backend.ErrInvalid)
		is("negative", p.CheckHold(ttl, -1), backend.ErrInvalid)
		is("the longest", p.CheckHold(ttl, claim.MaxTTL), nil)
		_, err := p.Mark(t.Context(), "/")
		is("no name", err, backend.ErrInvalid)
		_, err = p.ReplaceMark(t.Context(), "/", backend.Mark{}, backend.Mark{})
		is("no name", err, backend.ErrInvalid)
		if r := p.renew(l)[0]; r.Err != nil {
			t.Errorf("what was refused has ended the lease: %v", r.Err)
		}
		p.release(place)
		is("finish", p.Finish(t.Context(), l, backend.Finish{Tick: noon}), nil)
		is("again", p.Finish(t.Context(), l, backend.Finish{Tick: noon}), nil)
		is("renew", p.renew(l)[0].Err, backend.ErrLost)
		is("raise", p.RaiseMark(t.Context(), l, noon), backend.ErrLost)
		if m, err := other.Mark(t.Context(), "x"); m != (backend.Mark{Tick: noon, Token: g.Token}) || err != nil {
			t.Error(m, err)
		}
		lost, _ := p.hold("x", "a")
		if err := other.Revoke(t.Context(), "x", 0, "gone", true); err != nil {
			t.Fatal(err)
		}
		is("lost", p.Finish(t.Context(), lost, backend.Finish{Tick: noon}), backend.ErrLost)
		is("lost, again", p.Finish(t.Context(), lost, backend.Finish{Tick: noon}), backend.ErrLost)
	})
}

// A waiter of the same process gets a finished name at once, and one that is held on when its time has passed. To those
// who watch, that tenure expires.
func TestWaitersGetWhatWasFinished(t *testing.T) {
	for _, hold := range []time.Duration{0, ttl / 2, 3 * ttl} {
		bubble(t, oneMachine, func(t *testing.T, w *site) {
			p, other := w.process(), w.process()
			happened := other.watching("x")
			l, _ := p.hold("x", "a")
			here, elsewhere := p.awaiting(p.wait("x", "b")), other.awaiting(other.wait("x", "c"))
			synctest.Wait()
			happened()
			began := time.Now()
			if err := p.Finish(t.Context(), l, backend.Finish{Hold: hold}); err != nil {
				t.Fatal(err)
			}
			var got turn
			select {
			case got = <-here:
			case got = <-elsewhere:
			}
			if waited := got.at.Sub(began); got.err != nil || waited < hold || waited > hold+time.Second {
				t.Errorf("held on for %v: %v after %v", hold, got.err, waited)
			}
			if past, err := other.History(t.Context(), "x", 10); err != nil || len(past) != 2 || past[1].Why != whyOf(hold) || past[1].Note != "" {
				t.Errorf("held on for %v: the history is %+v, %v", hold, past, err)
			}
			for _, e := range happened() {
				if e.Why != "" && e.Why != whyOf(hold) {
					t.Errorf("held on for %v: %+v", hold, e)
				}
			}
			got.by.release(got.lease)
			last := <-map[bool]<-chan turn{true: here, false: elsewhere}[got.by == other]
			last.by.release(last.lease)
		})
	}
}

func whyOf(hold time.Duration) backend.Reason {
	if hold > 0 {
		return backend.Expired
	}
	return backend.Released
}

// While a name is held on, its history has the tenure as one that lasts, and afterwards as one that has expired.
func TestHistoryOfAHeldOnName(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process()
		l, _ := p.hold("x", "a")
		if err := p.Finish(t.Context(), l, backend.Finish{Hold: ttl}); err != nil {
			t.Fatal(err)
		}
		for _, why := range []backend.Reason{"", backend.Expired} {
			past, err := p.History(t.Context(), "x", 10)
			if err != nil || len(past) != 1 || past[0].Why != why || past[0].To.IsZero() != (why == "") || past[0].Note != "" {
				t.Errorf("%+v, %v", past, err)
			}
			time.Sleep(2 * ttl)
		}
	})
}

// An answer is lost. The lease stays until it is repeated, and a release after a finish ends nothing that is held on.
func TestLostFinishIsFound(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p, other := w.process(), w.process()
		l, g := p.hold("x", "a")
		p.faults(func(c claimtest.Call) claimtest.Fault { return claimtest.Fault{LoseAnswer: true} })
		for range 2 {
			if err := p.Finish(t.Context(), l, backend.Finish{Tick: noon, Hold: ttl}); !errors.Is(err, backend.ErrUnknownOutcome) {
				t.Fatal(err)
			}
		}
		p.faults(nil)
		p.release(l)
		if i, err := other.Get(t.Context(), "x"); !i.Held || err != nil {
			t.Errorf("%+v, %v", i, err)
		}
		if m, err := other.Mark(t.Context(), "x"); m != (backend.Mark{Tick: noon, Token: g.Token}) || err != nil {
			t.Error(m, err)
		}
	})
}
