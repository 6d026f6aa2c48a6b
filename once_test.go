package leasekeeper_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func number(n int64) leasekeeper.Tick { return leasekeeper.TickNumber(n) }

// nothing is a function that completes at once.
func nothing(context.Context, *leasekeeper.Lease) error { return nil }

// mark fails unless the mark of the name is that tick.
func (w *world) mark(name string, n int64) {
	w.Helper()
	m, err := w.store.Backend().Mark(w.Context(), name)
	if err != nil || m.Tick != number(n) {
		w.Errorf("the mark of %s is %v, not %d: %v", name, m, n, err)
	}
}

// unmarked fails if a tick of the name is recorded.
func (w *world) unmarked(name string) {
	w.Helper()
	if m, err := w.store.Backend().Mark(w.Context(), name); err != nil || !m.IsZero() {
		w.Errorf("the mark of %s is %v, %v", name, m, err)
	}
}

func TestCompletedTickIsNotRunAgain(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		var token leasekeeper.Token
		w.is(a.Once(w.Context(), "x", number(5), func(_ context.Context, l *leasekeeper.Lease) error {
			token = l.Token()
			w.holder("x", "a")
			w.unmarked("x")
			return nil
		}), nil)
		w.free("x")
		w.mark("x", 5)
		for _, n := range []int64{5, 4} {
			err := b.Once(w.Context(), "x", number(n), func(context.Context, *leasekeeper.Lease) error {
				w.Errorf("tick %d runs again", n)
				return nil
			})
			w.is(err, leasekeeper.ErrDone)
			done, ok := errors.AsType[*leasekeeper.DoneError](err)
			if want := (leasekeeper.Mark{Tick: number(5), Token: token}); !ok || done.Name != "x" || done.Tick != number(n) || done.Mark != want {
				w.Errorf("done: %+v", done)
			}
		}
		w.is(b.Once(w.Context(), "x", leasekeeper.TickAt(time.Now()), nothing), leasekeeper.ErrInvalid)
		w.is(b.Once(w.Context(), "x", leasekeeper.Tick{}, nothing), leasekeeper.ErrInvalid)
		w.is(b.Once(w.Context(), "x", number(6), nothing), nil)
		w.mark("x", 6)
	})
}

// A tick that is completed while others wait for it is done for them.
func TestWaiterForACompletedTickIsDone(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		waited := make(chan error, 1)
		w.is(a.Once(w.Context(), "x", number(1), func(context.Context, *leasekeeper.Lease) error {
			go func() { waited <- b.Once(w.Context(), "x", number(1), nothing, leasekeeper.HoldAtLeast(time.Hour)) }()
			time.Sleep(time.Minute)
			return nil
		}), nil)
		w.is(<-waited, leasekeeper.ErrDone)
		w.free("x") // HoldAtLeast is for work that was done
		w.is(b.Once(w.Context(), "x", number(2), nothing, leasekeeper.NoWait()), nil)
	})
}

func TestTickIsLeftToTheNext(t *testing.T) {
	for name, fail := range map[string]func(w *world, k *leasekeeper.Keeper, b *memory.Backend){
		"when the function fails": func(w *world, k *leasekeeper.Keeper, _ *memory.Backend) {
			w.is(k.Once(w.Context(), "x", number(1), func(context.Context, *leasekeeper.Lease) error { return errFunc }), errFunc)
		},
		"when the function panics": func(w *world, k *leasekeeper.Keeper, _ *memory.Backend) {
			defer func() { _ = recover() }()
			_ = k.Once(w.Context(), "x", number(1), func(context.Context, *leasekeeper.Lease) error { panic("x") })
		},
		"when the lease is lost": func(w *world, k *leasekeeper.Keeper, b *memory.Backend) {
			defer b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Renew})()
			w.is(k.Once(w.Context(), "x", number(1), func(ctx context.Context, _ *leasekeeper.Lease) error {
				<-ctx.Done()
				return nil
			}), leasekeeper.ErrLost)
		},
		"when the lease is lost at the release": func(w *world, k *leasekeeper.Keeper, _ *memory.Backend) {
			err := k.Once(w.Context(), "x", number(1), func(context.Context, *leasekeeper.Lease) error {
				w.store.Delete("x")
				return nil
			})
			w.is(err, leasekeeper.ErrLost)
			if !strings.Contains(err.Error(), "not recorded") {
				w.Errorf("%v", err)
			}
		},
		"when its kind is changed meanwhile": func(w *world, k *leasekeeper.Keeper, b *memory.Backend) {
			w.is(k.Once(w.Context(), "x", number(1), func(context.Context, *leasekeeper.Lease) error {
				noon := leasekeeper.Mark{Tick: leasekeeper.TickAt(time.Now())}
				if done, err := k.ReplaceMark(w.Context(), "x", leasekeeper.Mark{}, noon); !done || err != nil {
					w.Errorf("replaced: %v, %v", done, err)
				}
				return nil
			}), leasekeeper.ErrInvalid)
			w.free("x")
			m, err := k.Mark(w.Context(), "x")
			w.is(err, nil)
			if done, err := k.ReplaceMark(w.Context(), "x", m, leasekeeper.Mark{}); !done || err != nil {
				w.Errorf("removed: %v, %v", done, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, b := w.keeper("a")
				fail(w, k, b)
				w.unmarked("x")
				next, _ := w.keeper("b")
				w.is(next.Once(w.Context(), "x", number(1), nothing), nil)
				w.mark("x", 1)
			})
		})
	}
}

// With AtMostOnce the tick is recorded before the function begins, so it never runs a second time.
func TestAtMostOnceRecordsTheTickBeforeTheFunction(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		err := k.Once(w.Context(), "x", number(1), func(context.Context, *leasekeeper.Lease) error {
			w.mark("x", 1)
			return errFunc
		}, leasekeeper.AtMostOnce())
		w.is(err, errFunc)
		w.free("x")
		w.is(k.Once(w.Context(), "x", number(1), nothing), leasekeeper.ErrDone)
		// A holder that has lost the name cannot record it, and does not run.
		defer b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.SetMark})()
		err = k.Once(w.Context(), "x", number(2), func(context.Context, *leasekeeper.Lease) error {
			w.Error("the function runs for a tick that is not recorded")
			return nil
		}, leasekeeper.AtMostOnce())
		w.is(err, leasekeeper.ErrUnavailable)
		w.mark("x", 1)
		w.free("x")
	})
}

// A request whose answer is lost is repeated, and recognized: the tick is completed once.
func TestTickIsRecordedThoughAnswersAreLost(t *testing.T) {
	for _, kind := range []memory.Kind{memory.LoseRequest, memory.LoseAnswer, memory.Stall, memory.StallAnswer, memory.Refuse} {
		for _, op := range []memory.Op{memory.Mark, memory.SetMark, memory.Finish, memory.Release} {
			for _, o := range []leasekeeper.Option{leasekeeper.WithTTL(ttl), leasekeeper.AtMostOnce()} {
				bubble(t, func(w *world) {
					k, b := w.keeper("a")
					defer b.Inject(memory.Fault{Kind: kind, Op: op, Times: 1})()
					runs := 0
					err := k.Once(w.Context(), "x", number(1), func(context.Context, *leasekeeper.Lease) error {
						runs++
						return nil
					}, o)
					if err != nil || runs != 1 {
						w.Errorf("fault %d of %s: %d runs, %v", kind, op, runs, err)
					}
					w.mark("x", 1)
				})
			}
		}
	}
}

// Nothing is known of the tick if the store does not answer until the lease has run out.
func TestUnansweredCompletionIsOfUnknownOutcome(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		remove := b.Inject(memory.Fault{Kind: memory.HoldRequest, Op: memory.Finish})
		err := k.Once(w.Context(), "x", number(1), nothing)
		w.is(err, leasekeeper.ErrUnknownOutcome)
		if !strings.Contains(err.Error(), "may have been recorded") {
			w.Errorf("%v", err)
		}
		w.unmarked("x")
		next, _ := w.keeper("b")
		w.is(next.Once(w.Context(), "x", number(1), nothing), nil)
		remove() // the held requests reach the store, and change nothing
		w.mark("x", 1)
	})
}

// Many processes with lost answers, dying holders and a store that restarts: no tick is completed twice.
func TestTicksAreCompletedOnceOverAllProcesses(t *testing.T) {
	for seed := range uint64(20) {
		bubble(t, func(w *world) {
			random := rand.New(rand.NewPCG(seed, 0))
			const ticks, processes = 30, 5
			var completed [ticks + 1]atomic.Int32
			var running atomic.Int32
			var group sync.WaitGroup
			for p := range processes {
				k, b := w.keeper(string(rune('a' + p)))
				chance := rand.New(rand.NewPCG(seed, uint64(p)+1))
				ops := []memory.Op{memory.Mark, memory.SetMark, memory.Finish, memory.Renew, memory.Claim}
				for range 10 {
					fault := memory.Fault{Kind: memory.Kind(1 + random.IntN(7)), Op: ops[random.IntN(len(ops))], Skip: random.IntN(20), Times: 1 + random.IntN(3), Delay: time.Second}
					defer b.Inject(fault)()
				}
				group.Go(func() {
					for n := int64(1); n <= ticks; n++ {
						time.Sleep(time.Duration(chance.IntN(int(time.Minute))))
						err := k.Once(w.Context(), "x", number(n), func(ctx context.Context, l *leasekeeper.Lease) error {
							if running.Add(1) > 1 && l.Check() == nil {
								w.Errorf("seed %d: two run tick %d", seed, n)
							}
							defer running.Add(-1)
							time.Sleep(time.Duration(chance.IntN(int(ttl))))
							return ctx.Err()
						})
						if err == nil {
							completed[n].Add(1)
						}
					}
				})
			}
			group.Wait()
			for n := 1; n <= ticks; n++ {
				if c := completed[n].Load(); c > 1 {
					w.Errorf("seed %d: tick %d was completed %d times", seed, n, c)
				}
			}
		})
	}
}

// A program that acquires the name itself checks and completes ticks by the lease.
func TestLeaseChecksAndCompletesATick(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		w.is(l.CheckTick(w.Context(), number(1)), nil)
		w.is(l.Complete(w.Context(), leasekeeper.Tick{}), leasekeeper.ErrInvalid)
		w.is(l.Check(), nil)
		w.is(l.Complete(w.Context(), number(1)), nil)
		w.is(l.Check(), leasekeeper.ErrLost)
		w.mark("x", 1)
		l = w.must(k.Acquire(w.Context(), "x", leasekeeper.HoldAtLeast(time.Hour)))
		w.is(l.CheckTick(w.Context(), number(1)), leasekeeper.ErrDone)
		w.is(l.Release(w.Context()), nil)
		w.free("x")
		w.is(l.CheckTick(w.Context(), number(2)), leasekeeper.ErrLost)
		w.is(l.Complete(w.Context(), number(2)), leasekeeper.ErrLost)
		w.mark("x", 1)
	})
}

func TestNameStaysTakenForTheLeastTime(t *testing.T) {
	bubble(t, func(w *world) {
		const least = time.Minute
		a, _ := w.keeper("a", leasekeeper.HoldAtLeast(least))
		b, _ := w.keeper("b")
		start := time.Now()
		w.is(a.Run(w.Context(), "x", func(context.Context, *leasekeeper.Lease) error {
			time.Sleep(least / 4)
			return nil
		}), nil)
		w.is(a.Close(), nil) // the store keeps the name without the process
		if d := time.Since(start); d != least/4 {
			w.Errorf("Run and Close return after %v", d)
		}
		w.holder("x", "a")
		w.must(b.Acquire(w.Context(), "x"))
		if d := time.Since(start); d < least || d > least+time.Second {
			w.Errorf("taken again after %v", d)
		}
	})
}

// A tenure of more than the least time is released at once.
func TestLongTenureIsReleasedAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		w.is(k.Run(w.Context(), "x", func(context.Context, *leasekeeper.Lease) error {
			time.Sleep(time.Hour)
			return nil
		}, leasekeeper.HoldAtLeast(time.Minute)), nil)
		w.free("x")
	})
}

func TestLeastTimeAboveTheLimitIsRefused(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		for _, least := range []time.Duration{-1, 1000 * 24 * time.Hour} {
			_, err := k.TryAcquire(w.Context(), "x", leasekeeper.HoldAtLeast(least))
			w.is(err, leasekeeper.ErrInvalid)
		}
		w.free("x")
	})
}

// A caller that inherits the place of another has its own least time.
func TestInheritedPlaceHasTheLeastTimeOfItsHeir(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		other, _ := w.keeper("b")
		l := w.must(other.Acquire(w.Context(), "x"))
		ctx, cancel := context.WithCancel(w.Context())
		left := make(chan error, 1)
		go func() {
			_, err := a.Acquire(ctx, "x", leasekeeper.HoldAtLeast(time.Hour))
			left <- err
		}()
		synctest.Wait()
		ran := make(chan error, 1)
		go func() { ran <- a.Run(w.Context(), "x", nothing) }()
		synctest.Wait()
		cancel()
		w.is(<-left, context.Canceled)
		w.is(l.Release(w.Context()), nil)
		w.is(<-ran, nil)
		w.free("x")
	})
}

func TestHighestPriorityIsNext(t *testing.T) {
	bubble(t, func(w *world) {
		holder, _ := w.keeper("holder")
		l := w.must(holder.Acquire(w.Context(), "x"))
		one, _ := w.keeper("one") // of two calls of one keeper, too
		two, _ := w.keeper("two")
		var mu sync.Mutex
		var order []string
		var last leasekeeper.Token
		var group sync.WaitGroup
		for _, c := range []struct {
			k    *leasekeeper.Keeper
			name string
			p    leasekeeper.Priority
		}{{one, "low", -1}, {two, "two", 0}, {one, "one", 0}, {one, "high", 7}, {two, "higher", 8}, {one, "middle", 3}} {
			group.Go(func() {
				err := c.k.Run(w.Context(), "x", func(_ context.Context, l *leasekeeper.Lease) error {
					mu.Lock()
					defer mu.Unlock()
					if order = append(order, c.name); l.Token() <= last {
						w.Errorf("token %d after %d", l.Token(), last)
					}
					last = l.Token()
					return nil
				}, leasekeeper.WithPriority(c.p))
				w.is(err, nil)
			})
			synctest.Wait()
		}
		w.is(l.Check(), nil) // no priority ends a tenure
		last = l.Token()
		w.is(l.Release(w.Context()), nil)
		group.Wait()
		if got := strings.Join(order, " "); got != "higher high middle two one low" {
			w.Errorf("in the order %s", got)
		}
	})
}

// The holder transfers a name: its function ends first, and the chosen waiter is next.
func TestTransferByTheHolderWaitsForTheFunction(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		c, _ := w.keeper("c")
		ended := make(chan error, 1)
		const cleanUp = 3 * time.Second
		go func() {
			ended <- a.Run(w.Context(), "x", func(ctx context.Context, l *leasekeeper.Lease) error {
				<-ctx.Done()
				time.Sleep(cleanUp)
				w.holder("x", "a")
				return nil
			})
		}()
		synctest.Wait()
		next := make(chan string, 2)
		for id, k := range map[string]*leasekeeper.Keeper{"b": b, "c": c} {
			go func() {
				err := k.Run(w.Context(), "x", func(context.Context, *leasekeeper.Lease) error { next <- id; return nil })
				w.is(err, nil)
			}()
			synctest.Wait()
		}
		w.is(a.Transfer(w.Context(), "x", "d"), leasekeeper.ErrInvalid)
		w.holder("x", "a")
		if d := took(func() { w.is(a.Transfer(w.Context(), "x", "c"), nil) }); d != cleanUp {
			w.Errorf("Transfer takes %v", d)
		}
		err := <-ended
		w.is(err, leasekeeper.ErrLost)
		if !strings.Contains(err.Error(), "transferred to c") {
			w.Errorf("%v", err)
		}
		if first := <-next; first != "c" {
			w.Errorf("%s is next", first)
		}
		<-next
	})
}

// A function that does not return keeps the name until the lease has run out, not longer.
func TestTransferFromAFunctionThatRunsOnTakesATTL(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		returns, returned := make(chan struct{}), make(chan error, 1)
		go func() {
			returned <- a.Run(w.Context(), "x", func(context.Context, *leasekeeper.Lease) error { <-returns; return nil })
		}()
		synctest.Wait()
		next := make(chan *leasekeeper.Lease, 1)
		go func() { next <- w.must(b.Acquire(w.Context(), "x")) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.is(a.Transfer(short, "x", "b"), leasekeeper.ErrUnknownOutcome)
		if d := took(func() { w.is(a.Transfer(w.Context(), "x", "b"), leasekeeper.ErrLost) }); d > ttl {
			w.Errorf("Transfer takes %v", d)
		}
		<-next
		close(returns)
		w.is(<-returned, leasekeeper.ErrLost)
	})
}

// Others than the holder revoke the name, and the chosen waiter gets it when the promise has passed.
func TestTransferByOthersIsARevocationThatWaits(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		c, _ := w.keeper("c")
		l := w.must(a.Acquire(w.Context(), "x"))
		next := make(chan string, 2)
		for id, k := range map[string]*leasekeeper.Keeper{"b": b, "c": c} {
			go func() {
				l := w.must(k.Acquire(w.Context(), "x"))
				w.is(l.Release(w.Context()), nil)
				next <- id
			}()
			synctest.Wait()
		}
		w.is(b.Transfer(w.Context(), "x", "c"), nil)
		w.is(l.Check(), nil)
		<-l.Context().Done()
		if first := <-next; first != "c" {
			w.Errorf("%s is next", first)
		}
		<-next
	})
}
