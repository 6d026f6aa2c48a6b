package claimed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

// Tests of hints: they wake waiters, and nothing depends on them.

// With a store that gives hints, a released name has its next holder in less than 50 ms.
func TestHintsWakeWaiters(t *testing.T) {
	bubble(t, machines, func(t *testing.T, w *site) {
		const hour = time.Hour // so long that no poll happens
		holder := w.process()
		l, g := holder.hold("x", "holder")
		stop := holder.keep(l)
		var turns []<-chan turn
		for i := range 8 {
			p := w.process(claimed.WithPoll(hour))
			turns = append(turns, p.awaiting(p.wait("x", fmt.Sprint("w", i))))
		}
		time.Sleep(time.Minute)
		stop()
		released, last := time.Now(), g.Token
		holder.release(l)
		for len(turns) > 0 {
			var got turn
			for got.at.IsZero() {
				synctest.Wait()
				for i, c := range turns {
					select {
					case got = <-c:
						turns = slices.Delete(turns, i, i+1)
					default:
					}
					if !got.at.IsZero() {
						break
					}
				}
				if got.at.IsZero() {
					time.Sleep(time.Millisecond)
				}
			}
			if took := got.at.Sub(released); got.err != nil || took >= 50*time.Millisecond || got.grant.Token <= last {
				t.Errorf("%+v, %v after the release", got, took)
			}
			last, released = got.grant.Token, time.Now()
			got.by.release(got.lease)
		}
	})
}

// Without a working Listen, waiters only poll.
func TestBrokenHintsMeanOnlyPolling(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		holder, p := w.process(), w.process()
		p.faults(func(c claimtest.Call) claimtest.Fault {
			if c.Method == claimtest.Listen {
				return claimtest.Fault{Err: backend.ErrUnavailable}
			}
			return claimtest.Fault{}
		})
		l, _ := holder.hold("x", "holder")
		stop := holder.keep(l)
		turn := p.awaiting(p.wait("x", "waiter"))
		time.Sleep(10 * time.Minute)
		if n := p.callsOf(claimtest.Listen); n > 40 {
			t.Errorf("listened %d times in ten minutes", n)
		}
		stop()
		released := time.Now()
		holder.release(l)
		got := <-turn
		if took := got.at.Sub(released); got.err != nil || took > time.Second {
			t.Errorf("%v, %v after the release", got.err, took)
		}
		p.release(got.lease)
	})
}

// One goroutine listens while any call waits or watches, and a little longer.
func TestListensOnlyWhileACallWaits(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		s := &listenCounter{Client: w.memory.Open()}
		holder, b := w.process(), backendOn(t, s, claimed.WithOptions(w.next()))
		p := &process{Backend: b, site: w}
		expect := func(now, ever int, when string) {
			t.Helper()
			synctest.Wait()
			if isNow, isEver := s.counts(); isNow != now || isEver != ever {
				t.Errorf("%s: %d listen, %d ever did; expected %d, %d", when, isNow, isEver, now, ever)
			}
		}
		l, _ := holder.hold("x", "holder")
		own, _ := p.hold("y", "own")
		expect(0, 0, "no call waits")
		stop := holder.keep(l)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 5 {
			place := p.wait("x", fmt.Sprint("w", i))
			all.Go(func() {
				if _, err := p.Await(ctx, place); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			all.Go(func() {
				if err := p.Watch(ctx, "", func(backend.Event) {}); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		expect(1, 1, "many wait")
		cancel()
		all.Wait()
		time.Sleep(time.Second)
		expect(1, 1, "no call waits from now on")
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		_ = p.Watch(ctx, "", func(backend.Event) {})
		cancel()
		expect(1, 1, "a call has watched again")
		time.Sleep(time.Minute)
		expect(0, 1, "no call has waited for a minute")
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = p.Watch(ctx, "", func(backend.Event) {})
		expect(1, 2, "a call watched")
		stop()
		p.release(own)
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		expect(0, 2, "closed")
	})
}

// listenCounter counts the calls of Listen.
type listenCounter struct {
	*claimtest.Client
	mu        sync.Mutex
	now, ever int
}

func (s *listenCounter) counts() (now, ever int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.ever
}

func (s *listenCounter) count(now, ever int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += now
	s.ever += ever
}

func (s *listenCounter) Listen(ctx context.Context, changed func(string)) error {
	s.count(1, 1)
	defer s.count(-1, 0)
	return s.Client.Listen(ctx, changed)
}

// A hint that comes while the store is being asked is not lost: the answer may be older than the hint.
func TestHintDuringAnAttemptIsNotLost(t *testing.T) {
	for _, first := range []bool{true, false} {
		bubble(t, oneMachine, func(t *testing.T, w *site) {
			holder, p := w.process(), w.process(claimed.WithPoll(time.Hour))
			l, _ := holder.hold("x", "holder")
			other, _ := holder.hold("other", "holder")
			stop := holder.keep(l, other)
			defer stop()
			listens := p.awaiting(p.wait("other", "listens"))
			synctest.Wait()
			slow := claimtest.Fault{Back: time.Second}
			var turns <-chan turn
			if first { // the answer to the claim itself is late
				p.network.Inject(claimtest.Call{Method: claimtest.Get, Name: "x"}, 1, slow)
				places := make(chan backend.Lease, 1)
				go func() { places <- p.wait("x", "waiter") }()
				time.Sleep(time.Second / 2)
				stop()
				holder.release(l)
				turns = p.awaiting(<-places)
			} else { // the attempt that the other's release causes
				place := p.wait("x", "waiter")
				turns = p.awaiting(place)
				synctest.Wait()
				p.network.Inject(claimtest.Call{Method: claimtest.Get, Name: "x"}, 1, slow)
				stop()
				holder.release(l)
				l, _ = holder.hold("x", "holder") // faster than that attempt
				time.Sleep(time.Second / 2)
				holder.release(l)
			}
			released := time.Now()
			if got := <-turns; got.err != nil || got.at.Sub(released) > 2*time.Second {
				t.Errorf("first %v: %v, %v after the release", first, got.err, got.at.Sub(released))
			}
			holder.release(other)
			got := <-listens
			p.release(got.lease)
		})
	}
}
