package claimed_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

// Tests of claims whose outcome is unknown.

// unsettled makes a claim to a vacant name whose outcome is unknown: its write was lost.
func (p *process) unsettled(c backend.Claim) backend.Lease {
	p.Helper()
	earlier, _ := p.hold(c.Name, "earlier") // so there is a record
	p.release(earlier)
	p.network.Inject(claimtest.Call{Method: claimtest.Swap}, 1, claimtest.Fault{LoseRequest: true, Back: time.Second})
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Second)
	defer cancel()
	p.faults(func(call claimtest.Call) (f claimtest.Fault) {
		if call.Method == claimtest.Get && ctx.Err() == nil { // the claim begins from its memory of the record
			f.Err = backend.ErrUnavailable
		}
		return f
	})
	l, _, err := p.Claim(ctx, c)
	p.faults(nil)
	if l == nil || !errors.Is(err, backend.ErrUnknownOutcome) {
		p.Fatalf("%v, %v", l, err)
	}
	return l
}

// A claim that may have taken effect keeps its unknown outcome until the store has answered.
func TestUnknownOutcomeStaysUnknownUntilSettled(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process(claimed.WithPoll(time.Hour))
		c := undecided("x", "a", true)
		l := p.unsettled(c)
		heal := p.network.Inject(claimtest.Call{}, 0, claimtest.Fault{Err: backend.ErrUnavailable})
		again, _, err := p.Claim(t.Context(), c)
		if again != l || !errors.Is(err, backend.ErrUnknownOutcome) {
			t.Errorf("%v, %v", again, err)
		}
		if _, err := p.Await(t.Context(), l); !errors.Is(err, backend.ErrUnknownOutcome) && !errors.Is(err, backend.ErrUnavailable) {
			t.Error(err)
		}
		heal()
		start := time.Now()
		if g, err := p.Await(t.Context(), l); err != nil || !g.Held || time.Since(start) > time.Second {
			t.Errorf("%+v, %v after %v", g, err, time.Since(start))
		}
		p.release(l)
		if _, err := p.Await(t.Context(), p.unsettled(undecided("y", "a", false))); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("a claim that does not wait is awaited: %v", err)
		}
	})
}

// A waiter's unknown outcome is settled at once, and not at the next poll.
func TestUnknownOutcomeOfAWaiterIsSettledAtOnce(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		holder, p := w.process(), w.process(claimed.WithPoll(time.Hour))
		p.network.Inject(claimtest.Call{Method: claimtest.Listen}, 0, claimtest.Fault{Err: backend.ErrUnavailable})
		l, _ := holder.hold("x", "holder")
		c := undecided("x", "a", true)
		place, g, err := p.Claim(t.Context(), c)
		if err != nil || g.Held {
			t.Fatalf("%+v, %v", g, err)
		}
		holder.release(l)
		time.Sleep(time.Millisecond)
		if again := p.unsettled(c); again != place {
			t.Errorf("%v and %v", again, place)
		}
		start := time.Now()
		if g, err := p.Await(t.Context(), place); err != nil || !g.Held || time.Since(start) > time.Second {
			t.Errorf("%+v, %v after %v", g, err, time.Since(start))
		}
	})
}
