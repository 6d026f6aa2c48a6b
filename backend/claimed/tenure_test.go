package claimed_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

// Two processes with the same holder id are two holders.
func TestOneHolderIDInTwoProcessesIsTwoHolders(t *testing.T) {
	bubble(t, machines, func(t *testing.T, w *site) {
		a, twin := w.process(), w.process()
		l, g := a.hold("x", "same")
		_, _, err := twin.Claim(t.Context(), undecided("x", "same", false))
		var held *backend.HeldError
		if !errors.As(err, &held) || held.Holder.ID != "same" || held.Token != g.Token {
			t.Errorf("the twin: %v", err)
		}
		for _, call := range []error{twin.Release(t.Context(), l), twin.Announce(t.Context(), l, "x")} {
			if !errors.Is(call, backend.ErrInvalid) {
				t.Errorf("with the other's lease: %v", call)
			}
		}
		a.release(l)
		_, next := twin.hold("x", "same")
		if r := a.renew(l)[0]; !errors.Is(r.Err, backend.ErrLost) || next.Token <= g.Token {
			t.Errorf("%+v after %+v; the first renews: %v", next, g, r.Err)
		}
	})
}

// LeaseOf returns the lease of the backend's client.
func TestLeaseOfReturnsTheLeaseOfTheClient(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process()
		l, g := p.hold("x", "a")
		own, err := claimed.LeaseOf(l)
		if err != nil || own.Token() != g.Token || own.Until() != g.Until {
			t.Errorf("%+v, %v; granted %+v", own, err, g)
		}
		place := p.wait("x", "b")
		if _, err := claimed.LeaseOf(place); !errors.Is(err, backend.ErrLost) {
			t.Errorf("of a place in line: %v", err)
		}
		p.release(place)
		p.release(l)
		if _, err := claimed.LeaseOf(l); !errors.Is(err, backend.ErrLost) {
			t.Errorf("released: %v", err)
		}
		if _, err := claimed.LeaseOf(nil); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("of nothing: %v", err)
		}
	})
}

// Claims are checked, and their TTLs rounded, before anything is sent.
func TestClaimsAreCheckedBeforeTheyAreSent(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process()
		c := undecided("x", "a", false)
		c.TTL = ttl + 1
		if _, g, err := p.Claim(t.Context(), c); err != nil || g.TTL != ttl+time.Millisecond {
			t.Errorf("%+v, %v", g, err)
		}
		c.Name = "y"
		if l, _, err := p.Claim(t.Context(), c); l != nil || !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("one id for two names: %v, %v", l, err)
		}
	})
}

// An expired tenure cannot be pinned, and the history says that it has ended.
func TestExpiredTenureCannotBePinnedAndIsInTheHistory(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process()
		start := time.Now()
		p.hold("x", "a")
		time.Sleep(3 * ttl)
		if err := p.Pin(t.Context(), "x", "why"); !errors.Is(err, backend.ErrInvalid) {
			t.Error(err)
		}
		past, err := p.History(t.Context(), "x", 10)
		if err != nil || len(past) != 1 {
			t.Fatalf("%+v, %v", past, err)
		}
		if lasted := past[0].To.Sub(start); past[0].Why != backend.Expired || lasted < ttl-time.Millisecond || lasted > ttl+time.Millisecond {
			t.Errorf("%+v, after %v", past[0], lasted)
		}
		if err := p.Revoke(t.Context(), "x", 0, "it hangs", false); err != nil {
			t.Fatal(err)
		}
		if past, err = p.History(t.Context(), "x", 10); err != nil || past[0].Why != backend.Revoked || past[0].Note != "it hangs" {
			t.Errorf("%+v, %v", past, err)
		}
	})
}

// A keeper that resumes the longer promise of another machine reports no more than it was granted itself.
func TestResumedLeaseLastsAsGranted(t *testing.T) {
	bubble(t, machines, func(t *testing.T, w *site) {
		a, b := w.process(), w.process()
		_, g := a.hold("x", "a")
		_, resumed, err := b.Resume(t.Context(), "x", g.Token, backend.Holder{ID: "b"})
		now := b.Clock().Now()
		if err != nil || resumed.Until.Raw != now.Add(ttl).Raw || resumed.Until.Boot != now.Add(ttl).Boot {
			t.Errorf("%+v at %v, %v", resumed, now, err)
		}
	})
}

// A store that cannot order processes refuses a priority before anything is sent.
func TestPriorityIsRefusedWithoutAQueue(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process()
		c := undecided("x", "a", true)
		c.Priority = 1
		if l, _, err := p.Claim(t.Context(), c); l != nil || !errors.Is(err, backend.ErrUnsupported) || p.Limits().Priorities {
			t.Errorf("%v, %v", l, err)
		}
		if n := p.callsOf(claimtest.Get) + p.callsOf(claimtest.Swap); n != 0 {
			t.Errorf("%d calls of the store", n)
		}
	})
}
