package claimed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

// watching starts a watch. since returns what it has reported since the last call. If the store gives hints,
// all reports come at once.
func (p *process) watching(prefix string) (since func() []backend.Event) {
	ctx, cancel := context.WithCancel(p.Context())
	events, ended := make(chan backend.Event, 10_000), make(chan error, 1)
	go func() { ended <- p.Watch(ctx, prefix, func(e backend.Event) { events <- e }) }()
	p.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, backend.ErrClosed) {
			p.Errorf("the watch ended with %v", err)
		}
	})
	return func() (all []backend.Event) {
		synctest.Wait()
		for len(events) > 0 {
			all = append(all, <-events)
		}
		return all
	}
}

// event is an event without the fields that do not matter here.
type event struct {
	Kind backend.EventKind
	Held bool
	Why  backend.Reason
}

func kindsOf(events []backend.Event) (kinds []event) {
	for _, e := range events {
		kinds = append(kinds, event{e.Kind, e.Info.Held, e.Why})
	}
	return kinds
}

// Each change has its event, with the reason.
func TestWatchReportsEachChangeWithItsReason(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		a, b := w.process(), w.process(claimed.WithPoll(time.Hour))
		happened := b.watching("x")
		expect := func(when string, want ...event) {
			t.Helper()
			if got := kindsOf(happened()); !slices.Equal(got, want) {
				t.Errorf("%s: the events are %v, expected %v", when, got, want)
			}
		}
		expect("nothing is there")
		l, g := a.hold("x", "a")
		a.hold("y", "a")
		expect("acquired", event{backend.Acquired, true, ""})
		a.renew(l)
		if err := a.Announce(t.Context(), l, "news"); err != nil {
			t.Fatal(err)
		}
		expect("that is no change of the owner, and is seen at the next look")
		if _, _, err := b.Resume(t.Context(), "x", g.Token, backend.Holder{ID: "b"}); err != nil {
			t.Fatal(err)
		}
		expect("resumed", event{backend.Announced, true, ""})
		if err := a.Revoke(t.Context(), "x", 0, "it hangs", true); err != nil {
			t.Fatal(err)
		}
		expect("revoked", event{backend.Vacated, false, backend.Revoked})
		l, _ = a.hold("x", "a")
		expect("acquired again", event{backend.Acquired, true, ""})
		time.Sleep(ttl + time.Millisecond)
		expect("not renewed", event{backend.Vacated, false, backend.Expired})
		if r := a.renew(l)[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		time.Sleep(2 * time.Hour)
		happened()
		a.hold("x", "c")
		expect("acquired after that", event{backend.Acquired, true, ""})
		remove(t, w.memory.Open(), "x")
		expect("removed", event{backend.Vacated, false, backend.Deleted})
	})
}

// The same holds without hints, and for pinned names.
func TestWatchNeedsNoHints(t *testing.T) {
	bubble(t, machines, func(t *testing.T, w *site) {
		a, b := w.process(), w.process()
		b.network.Inject(claimtest.Call{Method: claimtest.Listen}, 0, claimtest.Fault{Err: backend.ErrUnavailable})
		l, _ := a.hold("x/gone", "a")
		a.release(l)
		a.hold("x/removed", "a")
		a.hold("x/pinned", "a")
		if err := a.Pin(t.Context(), "x/pinned", "repair"); err != nil {
			t.Fatal(err)
		}
		a.hold("x/revoked", "a")
		if err := a.Revoke(t.Context(), "x/revoked", 0, "it hangs", false); err != nil {
			t.Fatal(err)
		}
		happened := b.watching("x/")
		expect := func(when string, want ...string) {
			t.Helper()
			var got []string
			for _, e := range happened() {
				got = append(got, fmt.Sprint(e.Kind, " ", e.Info.Name, " ", e.Why))
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s: %q, expected %q", when, got, want)
			}
		}
		expect("to begin with", "4 x/pinned ", "4 x/removed ", "4 x/revoked ")
		remove(t, w.memory.Open(), "x/removed")
		time.Sleep(time.Second)
		expect("removed", "2 x/removed deleted")
		time.Sleep(2 * ttl)
		expect("revoked", "2 x/revoked revoked")
		if err := a.Unpin(t.Context(), "x/pinned"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ttl)
		expect("pinned no more", "2 x/pinned expired")
	})
}

// Resync events stand for changes between two looks. Hints about very many names cause a look at all of them.
func TestWatchReportsMissedChangesAsResync(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		const many = 2000
		a, b := w.process(), w.process()
		proceed, events := make(chan struct{}), make(chan backend.Event, 10*many)
		a.hold("x", "a")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_ = b.Watch(ctx, "", func(e backend.Event) {
				events <- e
				<-proceed
			})
		}()
		synctest.Wait()
		var last backend.Lease
		for range 10 {
			last, _ = a.hold("y", "a")
			a.release(last)
		}
		for i := range many {
			a.hold(fmt.Sprint("z/", i), "a")
		}
		b.callsOf(claimtest.Get)
		close(proceed)
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(events)
		seen := make(map[string][]backend.EventKind)
		for e := range events {
			seen[e.Info.Name] = append(seen[e.Info.Name], e.Kind)
		}
		if got := seen["y"]; !slices.Equal(got, []backend.EventKind{backend.Resync}) {
			t.Errorf("a name that was held ten times meanwhile has the events %v", got)
		}
		for i := range many {
			if got := seen[fmt.Sprint("z/", i)]; !slices.Equal(got, []backend.EventKind{backend.Acquired}) {
				t.Fatalf("name %d has the events %v", i, got)
			}
		}
		if n := b.callsOf(claimtest.Get); n > 300 {
			t.Errorf("it asked for %d names one by one", n)
		}
	})
}

// Many names are looked at less often, so that looking does not take all the time.
func TestWatchRestsLongerWhereLookingTakesLong(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process()
		p.faults(func(c claimtest.Call) claimtest.Fault {
			if c.Method == claimtest.List {
				return claimtest.Fault{Back: time.Second}
			}
			return claimtest.Fault{}
		})
		p.watching("")
		time.Sleep(110 * time.Second)
		if n := p.callsOf(claimtest.List); n < 7 || n > 15 {
			t.Errorf("looked %d times in 110 s, for a second each", n)
		}
	})
}

// A release interrupts an attempt under way.
func TestReleaseInterruptsAwait(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		holder, p := w.process(), w.process()
		holder.hold("x", "holder")
		place := p.wait("x", "waiter")
		p.network.Inject(claimtest.Call{Method: claimtest.Get}, 1, claimtest.Fault{Delay: time.Hour})
		errs := make(chan error)
		go func() {
			_, err := p.Await(t.Context(), place)
			errs <- err
		}()
		time.Sleep(time.Second) // the attempt is under way
		start := time.Now()
		p.release(place)
		if err := <-errs; !errors.Is(err, backend.ErrLost) || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A waiter writes nothing for the renewals of a live holder, and stores its observation of a dead one when it
// leaves.
func TestWaitersKeepObservationsWhenTheyLeave(t *testing.T) {
	bubble(t, machines, func(t *testing.T, w *site) {
		holder := w.process()
		l, _ := holder.hold("x", "holder")
		stop := holder.keep(l)
		options := w.next()
		w.next = func() claim.Options { return options }
		p := w.process()
		place := p.wait("x", "waiter")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = p.Await(ctx, place) }()
		for range 30 {
			time.Sleep(ttl / 3)
			p.renew(place)
		}
		if n := p.callsOf(claimtest.Observe); n > 3 {
			t.Errorf("%d observations were kept of one tenure", n)
		}
		time.Sleep(ttl / 10)
		stop()
		silent := time.Now()
		time.Sleep(ttl / 4)
		cancel()
		p.release(place)
		next := w.process()
		for {
			_, _, err := next.Claim(t.Context(), undecided("x", "next", false))
			if err == nil {
				break
			}
			time.Sleep(ttl / 100)
		}
		if took := time.Since(silent); took > ttl*11/10 {
			t.Errorf("the next one got the name %v after the holder fell silent: it has begun to count anew", took)
		}
	})
}
