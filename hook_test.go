package leasekeeper_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// recorder is a hook that keeps what it receives.
type recorder struct {
	mu  sync.Mutex
	all []leasekeeper.Report
}

func (r *recorder) hook(report leasekeeper.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, report)
}

// kinds returns the types of the reports in order, the renewals left out.
func (r *recorder) kinds() (kinds []string) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, report := range r.all {
		if _, renewed := report.(leasekeeper.Renewed); !renewed {
			kinds = append(kinds, fmt.Sprintf("%T", report)[len("leasekeeper."):])
		}
	}
	return kinds
}

// of returns the reports of one type.
func of[R leasekeeper.Report](r *recorder) (found []R) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, report := range r.all {
		if match, ok := report.(R); ok {
			found = append(found, match)
		}
	}
	return found
}

// A hook receives what happens to calls and leases, with times, margins and causes.
func TestHookReceivesTheLifeOfALease(t *testing.T) {
	bubble(t, func(w *world) {
		r := new(recorder)
		k, b := w.keeper("a", leasekeeper.WithHook(r.hook), leasekeeper.WithHook(nil))
		l := w.must(k.Acquire(w.Context(), "x"))
		token := l.Token()
		next := make(chan *leasekeeper.Lease, 1)
		go func() { next <- w.must(k.Acquire(w.Context(), "x")) }()
		time.Sleep(10 * ttl)
		w.is(l.Release(w.Context()), nil)
		second := <-next
		remove := stalled(b)
		pastHalf(second)
		remove()
		time.Sleep(ttl / 3)
		defer stalled(b)()
		<-second.Context().Done()
		want := []string{"Held", "Waited", "Released", "Held", "Waited", "Doubted", "Assured", "Doubted", "Lost"}
		if got := r.kinds(); !slices.Equal(got, want) {
			w.Errorf("the reports are %v, want %v", got, want)
		}
		waits := of[leasekeeper.Waited](r)
		if len(waits) != 2 || waits[0].For != 0 || waits[1].For != 10*ttl || waits[1].Name != "x" || waits[1].Err != nil {
			w.Errorf("the waits are %+v", waits)
		}
		if released := of[leasekeeper.Released](r)[0]; released.Token != token || released.For != 10*ttl || released.Err != nil {
			w.Errorf("released: %+v", released)
		}
		for _, renewed := range of[leasekeeper.Renewed](r) {
			if renewed.Left <= 0 || renewed.Left > relied || renewed.TTL != ttl {
				w.Errorf("renewed with %v left of %v", renewed.Left, renewed.TTL)
			}
		}
		if n := len(of[leasekeeper.Renewed](r)); n < 30 || n > 40 {
			w.Errorf("%d renewals in ten TTLs", n)
		}
		if lost := of[leasekeeper.Lost](r)[0]; lost.Token != second.Token() || !errors.Is(lost.Why, leasekeeper.ErrLost) || lost.For < relied {
			w.Errorf("lost: %+v", lost)
		}
		if doubted := of[leasekeeper.Doubted](r)[0]; doubted.Left > relied/2+1 || doubted.Left < relied/2-time.Second {
			w.Errorf("doubted: %+v", doubted)
		}
	})
}

// A hook receives failures: a call that ends without the name, a tenure that ends early, a release without confirmation.
func TestHookReceivesFailures(t *testing.T) {
	bubble(t, func(w *world) {
		r := new(recorder)
		k, b := w.keeper("a", leasekeeper.WithHook(r.hook))
		l := w.must(k.Acquire(w.Context(), "x"))
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := k.Acquire(ctx, "x")
		w.is(err, context.DeadlineExceeded)
		early := w.must(k.Acquire(w.Context(), "y", leasekeeper.HoldAtMost(time.Second)))
		<-early.Context().Done()
		w.is(early.Release(w.Context()), nil)
		b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Release})
		ended, end := context.WithTimeout(w.Context(), time.Second)
		defer end()
		w.is(l.Release(ended), leasekeeper.ErrUnknownOutcome)
		time.Sleep(2 * ttl)
		want := []string{"Held", "Waited", "Waited", "Held", "Waited", "EndedEarly", "Released", "Released"}
		if got := r.kinds(); !slices.Equal(got, want) {
			w.Errorf("the reports are %v, want %v", got, want)
		}
		if failed := of[leasekeeper.Waited](r)[1]; !errors.Is(failed.Err, context.DeadlineExceeded) || failed.For != time.Second {
			w.Errorf("%+v", failed)
		}
		if ended := of[leasekeeper.EndedEarly](r)[0]; ended.Name != "y" || !errors.Is(ended.Why, leasekeeper.ErrLost) {
			w.Errorf("%+v", ended)
		}
		if last := of[leasekeeper.Released](r)[1]; last.Name != "x" || !errors.Is(last.Err, leasekeeper.ErrUnknownOutcome) {
			w.Errorf("%+v", last)
		}
	})
}

// A hook that is stuck delays nothing. What it misses is counted.
func TestStuckHookDelaysNothingAndMissesReports(t *testing.T) {
	bubble(t, func(w *world) {
		const rounds = 4000 // with three reports each: more than wait and are being handed over
		r, goOn := new(recorder), make(chan struct{})
		k, _ := w.keeper("a", leasekeeper.WithHook(func(report leasekeeper.Report) { <-goOn; r.hook(report) }))
		if late := took(func() {
			for range rounds {
				l := w.must(k.Acquire(w.Context(), "x"))
				w.is(l.Release(w.Context()), nil)
			}
		}); late > 0 {
			w.Errorf("took %v", late)
		}
		close(goOn)
		synctest.Wait()
		missed := of[leasekeeper.ReportsMissed](r)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(missed) != 1 || missed[0].Reports+len(r.all)-1 != 3*rounds {
			w.Errorf("%d reports came, and %+v", len(r.all), missed)
		}
	})
}

// While a hook is stuck, the keeper renews: a lease outlives its TTL ten times, and is never in doubt.
func TestStuckHookDelaysNoRenewal(t *testing.T) {
	bubble(t, func(w *world) {
		r, goOn, stuck := new(recorder), make(chan struct{}), make(chan struct{})
		first := sync.OnceFunc(func() { close(stuck) })
		k, _ := w.keeper("a", leasekeeper.WithHook(func(report leasekeeper.Report) { first(); <-goOn; r.hook(report) }))
		other, _ := w.keeper("b")
		l := w.must(k.Acquire(w.Context(), "x"))
		<-stuck
		for range 10 {
			time.Sleep(ttl)
			w.is(l.Check(), nil)
			_, err := other.TryAcquire(w.Context(), "x")
			w.is(err, leasekeeper.ErrHeld)
			if left := l.Remaining(); left < relied/2 {
				w.Errorf("the lease lasts for %v more", left)
			}
		}
		if n := len(of[leasekeeper.Held](r)); n > 0 {
			w.Error("the hook was not stuck")
		}
		w.is(l.Release(w.Context()), nil)
		w.free("x")
		close(goOn)
		if got, want := r.kinds(), []string{"Held", "Waited", "Released"}; !slices.Equal(got, want) {
			w.Errorf("the reports are %v, want %v", got, want)
		}
		renewals := of[leasekeeper.Renewed](r)
		if n := len(renewals); n < 30 || n > 40 {
			w.Errorf("%d renewals in ten TTLs", n)
		}
		for _, renewed := range renewals {
			if renewed.Left < relied/2 {
				w.Errorf("renewed with %v left of %v", renewed.Left, renewed.TTL)
			}
		}
	})
}
