package leasekeeper_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// tenures records who had a name, in order.
type tenures struct {
	mu  sync.Mutex
	of  []string
	all []leasekeeper.Token
	now int // must never be more than 1
}

// hold acquires the name for a second, and records that.
func (s *tenures) hold(ctx context.Context, k *leasekeeper.Keeper, who string, o ...leasekeeper.Option) error {
	l, err := k.Acquire(ctx, "x", o...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.of, s.all = append(s.of, who), append(s.all, l.Token())
	s.now++
	crowded := s.now > 1
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	if crowded {
		err = fmt.Errorf("%s holds the name, and so does another", who)
	}
	return errors.Join(err, l.Release(context.WithoutCancel(ctx)))
}

// check fails if the tenures are not these, or if a token does not grow.
func (s *tenures) check(w *world, want ...string) {
	w.Helper()
	if !slices.Equal(s.of, want) {
		w.Errorf("the name was held by %v, want %v", s.of, want)
	}
	if !slices.IsSorted(s.all) || len(slices.Compact(slices.Clone(s.all))) != len(s.all) {
		w.Errorf("the tokens are %v", s.all)
	}
}

// begin starts hold on a goroutine, and returns when that waits or is done.
func (s *tenures) begin(ctx context.Context, w *world, k *leasekeeper.Keeper, who string, o ...leasekeeper.Option) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.hold(ctx, k, who, o...) }()
	synctest.Wait()
	return done
}

func (w *world) waitingAtStore(name string) int {
	w.Helper()
	i, err := w.store.Backend().Get(w.Context(), name)
	if err != nil {
		w.Fatal(err)
	}
	return i.Waiting
}

// Goroutines of one keeper have one name in the order of their calls, each with a token of its own.
func TestGoroutinesOfOneKeeperHoldANameInTurn(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		var s tenures
		var done []<-chan error
		for i := range 5 {
			done = append(done, s.begin(w.Context(), w, k, fmt.Sprint(i)))
		}
		if n := w.waitingAtStore("x"); n != 0 {
			w.Errorf("%d claims wait at the store while the keeper itself holds the name", n)
		}
		for _, d := range done {
			w.is(<-d, nil)
		}
		s.check(w, "0", "1", "2", "3", "4")
		w.free("x")
	})
}

// Calls that do not wait, and calls that would wait for their own caller, return at once.
func TestClaimsToAnOwnNameThatCannotWaitReportSelf(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		other, _ := w.keeper("b")
		l := w.must(k.Acquire(w.Context(), "x"))
		inner := w.must(k.Acquire(l.Context(), "y"))
		type key struct{}
		self := func(_ *leasekeeper.Lease, err error) {
			w.Helper()
			if held, ok := errors.AsType[*leasekeeper.HeldError](err); !ok || !held.Self || held.Token != l.Token() {
				w.Errorf("%v", err)
			}
		}
		self(k.TryAcquire(w.Context(), "x"))
		self(k.Acquire(w.Context(), "x", leasekeeper.NoWait()))
		self(k.Acquire(l.Context(), "x"))
		self(k.Acquire(context.WithValue(inner.Context(), key{}, 1), "x"))
		self(nil, k.Run(inner.Context(), "x", nil))
		ctx, cancel := context.WithTimeout(l.Context(), time.Second)
		defer cancel()
		_, err := other.Acquire(ctx, "x") // another keeper waits
		w.is(err, context.DeadlineExceeded)
		// The context of a lease that has ended keeps no call from waiting.
		detached := context.WithoutCancel(l.Context())
		w.is(l.Release(w.Context()), nil)
		next := w.must(k.Acquire(w.Context(), "x"))
		time.AfterFunc(time.Second, func() { _ = next.Release(context.Background()) })
		w.must(k.Acquire(detached, "x"))
	})
}

// All goroutines of a keeper have one place at the store. It survives the goroutine that opened it.
func TestPlaceAtTheStoreSurvivesTheCallThatOpenedIt(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		c, _ := w.keeper("c")
		var s tenures
		l := w.must(a.Acquire(w.Context(), "x"))
		ctx, cancel := context.WithCancel(w.Context())
		opened := s.begin(ctx, w, b, "b0")
		heir := s.begin(w.Context(), w, b, "b1")
		later := s.begin(w.Context(), w, b, "b2")
		behind := s.begin(w.Context(), w, c, "c")
		if n := w.waitingAtStore("x"); n != 2 {
			w.Errorf("%d claims of two keepers wait at the store", n)
		}
		cancel()
		w.is(<-opened, context.Canceled)
		time.Sleep(3 * ttl) // the place is renewed
		if n := w.waitingAtStore("x"); n != 2 {
			w.Errorf("%d claims of two keepers wait at the store after a call has ended", n)
		}
		w.is(l.Release(w.Context()), nil)
		w.is(<-heir, nil)
		w.is(<-behind, nil)
		w.is(<-later, nil)
		s.check(w, "b1", "c", "b2")
		w.free("x")
	})
}

// A goroutine that wants other terms claims a place of its own when its turn in the keeper has come.
func TestPlaceWithOtherTermsIsNotInherited(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		var s tenures
		l := w.must(a.Acquire(w.Context(), "x"))
		ctx, cancel := context.WithCancel(w.Context())
		opened := s.begin(ctx, w, b, "b0")
		longer := s.begin(w.Context(), w, b, "longer", leasekeeper.WithTTL(2*ttl))
		card := s.begin(w.Context(), w, b, "card", leasekeeper.WithCard("c"))
		cancel()
		w.is(<-opened, context.Canceled)
		synctest.Wait()
		if n := w.waitingAtStore("x"); n != 1 {
			w.Errorf("%d claims wait at the store", n)
		}
		w.is(l.Release(w.Context()), nil)
		synctest.Wait()
		if i, err := w.store.Backend().Get(w.Context(), "x"); err != nil || i.TTL != 2*ttl {
			w.Errorf("%+v, %v", i, err)
		}
		w.is(<-longer, nil)
		synctest.Wait()
		if i, err := w.store.Backend().Get(w.Context(), "x"); err != nil || i.Holder.Card.Text != "c" {
			w.Errorf("%+v, %v", i, err)
		}
		w.is(<-card, nil)
		s.check(w, "longer", "card")
	})
}

// Keepers get a name in turns, however many goroutines wait in each.
func TestKeepersGetANameInTurns(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		var s tenures
		var done []<-chan error
		for range 4 {
			done = append(done, s.begin(w.Context(), w, a, "a"))
		}
		for range 2 {
			done = append(done, s.begin(w.Context(), w, b, "b"))
		}
		for _, d := range done {
			w.is(<-d, nil)
		}
		s.check(w, "a", "b", "a", "b", "a", "a")
	})
}

// The next goroutine has the lease that is granted just when the call before it ends.
func TestClaimGrantedAsItsCallEndsGoesToTheNext(t *testing.T) {
	bubble(t, func(w *world) {
		h := &hasty{Backend: w.store.Backend(), do: func() {}}
		k := w.on(h, "a")
		before := w.must(k.Acquire(w.Context(), "x"))
		w.is(before.Release(w.Context()), nil)
		ctx, cancel := context.WithCancel(w.Context())
		var s tenures
		var next <-chan error
		h.do = func() {
			h.do = func() {}
			next = s.begin(w.Context(), w, k, "next")
			cancel()
		}
		_, err := k.Acquire(ctx, "x")
		w.is(err, context.Canceled)
		w.is(<-next, nil)
		s.check(w, "next")
		if s.all[0] != before.Token()+1 {
			w.Errorf("the tenure has token %d, and not the one that was granted, %d", s.all[0], before.Token()+1)
		}
	})
}

// While the confirmation of a release is lost again and again, other goroutines of the keeper need not wait for it.
func TestUnconfirmedReleaseKeepsNoGoroutineWaiting(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		var s tenures
		next := s.begin(w.Context(), w, k, "next")
		remove := b.Inject(memory.Fault{Kind: memory.LoseAnswer, Op: memory.Release})
		go func() { _ = l.Release(w.Context()) }()
		synctest.Wait()
		if len(s.of) != 1 {
			w.Error("the name is free, and the goroutine that waits does not have it")
		}
		remove()
		w.is(<-next, nil)
	})
}

// When a store has failed for a TTL, all calls fail that have waited for that long, and no younger one does.
func TestFailingStoreFailsAllCallsThatWaitedForATTL(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		remove := b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Claim})
		var s tenures
		var old []<-chan error
		for i := range 10 {
			old = append(old, s.begin(w.Context(), w, k, fmt.Sprint(i)))
		}
		time.Sleep(ttl / 2)
		young := s.begin(w.Context(), w, k, "young")
		late := took(func() {
			for _, d := range old {
				w.is(<-d, leasekeeper.ErrUnavailable)
			}
		})
		if late > 2*ttl {
			w.Errorf("the calls failed after %v more", late)
		}
		remove()
		w.is(<-young, nil)
		s.check(w, "young")
	})
}

// Close ends all waits, and leaves nothing at the store.
func TestCloseEndsAllWaits(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		l := w.must(a.Acquire(w.Context(), "x"))
		var s tenures
		var done []<-chan error
		for range 100 {
			done = append(done, s.begin(w.Context(), w, b, "b"))
		}
		w.is(b.Shutdown(w.Context()), nil)
		for _, d := range done {
			w.is(<-d, leasekeeper.ErrClosed)
		}
		w.is(l.Release(w.Context()), nil)
		w.free("x")
	})
}

// Goroutines of three keepers come, wait, hold and give up at random, while the store restarts and loses messages. No two
// hold the name at once, each that is not cancelled gets it, and nothing is left at the end.
func TestRandomWaitersAllGetTheirTurn(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(w *world) {
				rng := rand.New(rand.NewPCG(seed, 1))
				var s tenures
				var all sync.WaitGroup
				for i := range 3 {
					k, b := w.keeper(fmt.Sprint(i))
					for range 10 {
						begins, gives := time.Duration(rng.IntN(20))*time.Second, time.Duration(rng.IntN(30))*time.Second
						stays, card := rng.IntN(3) > 0, []string{"", "c"}[rng.IntN(2)]
						all.Go(func() {
							time.Sleep(begins)
							ctx := context.Background()
							if !stays {
								limited, cancel := context.WithTimeout(ctx, gives)
								defer cancel()
								ctx = limited
							}
							if err := s.hold(ctx, k, "", leasekeeper.WithCard(card)); err != nil && (stays || !errors.Is(err, context.DeadlineExceeded)) {
								w.Error(err)
							}
						})
					}
					all.Go(func() {
						time.Sleep(10 * time.Second)
						b.Inject(memory.Fault{Kind: memory.LoseAnswer, Times: 3})
					})
				}
				all.Go(func() {
					time.Sleep(15 * time.Second)
					w.store.Restart()
				})
				all.Wait()
				time.Sleep(2 * ttl)
				w.free("x")
				if !slices.IsSorted(s.all) {
					w.Errorf("the tokens are %v", s.all)
				}
			})
		})
	}
}

// A waiting goroutine costs its keeper less than 1 KB, its stack aside.
func TestWaitingCallCostsLittle(t *testing.T) {
	const many = 100_000
	k, err := leasekeeper.New(memory.New().Backend())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Acquire(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var begun, ended sync.WaitGroup
	before := heap()
	begun.Add(many)
	for range many {
		ended.Go(func() {
			begun.Done()
			if _, err := k.Acquire(ctx, "x"); !errors.Is(err, leasekeeper.ErrClosed) {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	for leasekeeper.Waiting(k, "x") < many {
		runtime.Gosched()
	}
	if each := (heap() - before) / many; each > 1000 {
		t.Errorf("each costs %d bytes", each)
	}
	if err := k.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	ended.Wait()
}

// A call that goes on with the unanswered claim of another has the time of its own TTL.
func TestCallThatInheritsAnOldClaimSurvivesAStoreThatFails(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		remove := b.Inject(memory.Fault{Kind: memory.LoseRequest, Op: memory.Claim})
		var s tenures
		ctx, cancel := context.WithCancel(w.Context())
		opened := s.begin(ctx, w, k, "opened")
		time.Sleep(ttl + time.Second)
		heir := s.begin(w.Context(), w, k, "heir")
		cancel()
		w.is(<-opened, context.Canceled)
		time.Sleep(ttl / 2)
		remove()
		w.is(<-heir, nil)
		s.check(w, "heir")
	})
}

// A short failure of the store fails no call with a long TTL, however long that has waited for its turn.
func TestShortFailureOfTheStoreFailsNoCallWithALongTTL(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		var s tenures
		short := s.begin(w.Context(), w, k, "short", leasekeeper.WithTTL(ttl/5))
		long := s.begin(w.Context(), w, k, "long")
		time.Sleep(3 * ttl)
		remove := b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Claim})
		w.is(l.Release(w.Context()), nil)
		w.is(<-short, leasekeeper.ErrUnavailable)
		remove()
		w.is(<-long, nil)
		s.check(w, "long")
	})
}

// --- early_test.go
