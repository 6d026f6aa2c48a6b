package leasekeeper_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func TestUnknownOutcomeOfAClaimIsResolved(t *testing.T) {
	for _, kind := range []memory.Kind{memory.LoseRequest, memory.LoseAnswer, memory.HoldRequest, memory.Stall, memory.StallAnswer} {
		for _, times := range []int{1, 3, 0} {
			for _, held := range []bool{false, true} {
				t.Run(fmt.Sprint(kind, times, held), func(t *testing.T) {
					bubble(t, func(w *world) { testUnknownClaim(w, kind, times, held) })
				})
			}
		}
	}
}

func testUnknownClaim(w *world, kind memory.Kind, times int, held bool) {
	other, _ := w.keeper("other")
	if held {
		w.must(other.TryAcquire(w.Context(), "x"))
	}
	k, b := w.keeper("a")
	remove := b.Inject(memory.Fault{Kind: kind, Op: memory.Claim, Times: times})
	l, err := k.TryAcquire(w.Context(), "x")
	switch {
	case times == 0:
		w.is(err, leasekeeper.ErrUnknownOutcome)
	case held:
		w.is(err, leasekeeper.ErrHeld)
	default:
		w.must(l, err)
		if err := l.Release(w.Context()); err != nil {
			w.Error(err)
		}
	}
	remove() // now the store receives the delayed requests
	synctest.Wait()
	if held {
		w.holder("x", "other")
		if i, _ := b.Get(w.Context(), "x"); i.Waiting > 0 {
			w.Errorf("a claim is left in the queue: %+v", i)
		}
		return
	}
	w.free("x")
}

// A refused attempt says nothing about an earlier one whose answer was lost.
func TestRefusedRetryLeavesTheOutcomeOpen(t *testing.T) {
	for _, second := range []memory.Fault{
		{Kind: memory.Refuse}, {Kind: memory.Refuse, Err: backend.ErrContention}, {Kind: memory.Refuse, Err: context.DeadlineExceeded},
	} {
		for _, times := range []int{1, 3, 0} {
			for _, first := range []memory.Kind{memory.LoseAnswer, memory.HoldRequest} {
				bubble(t, func(w *world) {
					k, b := w.keeper("a")
					remove := b.Inject(memory.Fault{Kind: first, Op: memory.Claim, Times: 1})
					second.Op, second.Times = memory.Claim, times
					defer b.Inject(second)()
					l, err := k.TryAcquire(w.Context(), "x")
					if times == 0 {
						w.is(err, leasekeeper.ErrUnknownOutcome)
						remove()
					} else {
						w.must(l, err)
						w.holder("x", "a")
						remove()
						if err := l.Release(w.Context()); err != nil {
							w.Error(err)
						}
					}
					synctest.Wait()
					w.free("x")
				})
			}
		}
	}
	// The store refuses the claim for good, after an attempt that may still be in progress.
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		remove := b.Inject(memory.Fault{Kind: memory.HoldRequest, Op: memory.Claim, Times: 1})
		defer b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Claim, Err: backend.ErrCorrupt})()
		_, err := k.TryAcquire(w.Context(), "x")
		w.is(err, leasekeeper.ErrCorrupt)
		synctest.Wait()
		remove()
		w.free("x")
	})
}

// A caller that stops waiting, at any moment, leaves nothing in the store.
func TestContextCancelledInEachPhase(t *testing.T) {
	faults := map[string]memory.Fault{
		"nothing goes wrong":        {Kind: memory.DelayAnswer, Op: memory.History},
		"requests are slow":         {Kind: memory.DelayRequest, Delay: 200 * time.Millisecond},
		"answers are slow":          {Kind: memory.DelayAnswer, Delay: 200 * time.Millisecond},
		"claims vanish":             {Kind: memory.LoseRequest, Op: memory.Claim},
		"answers to claims vanish":  {Kind: memory.LoseAnswer, Op: memory.Claim},
		"claims stall":              {Kind: memory.Stall, Op: memory.Claim},
		"answers to claims stall":   {Kind: memory.StallAnswer, Op: memory.Claim},
		"claims are held back":      {Kind: memory.HoldRequest, Op: memory.Claim},
		"turns stall":               {Kind: memory.Stall, Op: memory.Await},
		"turns are refused":         {Kind: memory.Refuse, Op: memory.Await},
		"turns without an answer":   {Kind: memory.LoseAnswer, Op: memory.Await},
		"releases vanish at first":  {Kind: memory.LoseRequest, Op: memory.Release, Times: 2},
		"releases are not answered": {Kind: memory.LoseAnswer, Op: memory.Release, Times: 2},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			for _, after := range []time.Duration{0, 1, 100 * time.Millisecond, 300 * time.Millisecond, 450 * time.Millisecond, 2 * time.Second, 6 * time.Second, 20 * time.Second} {
				for _, held := range []bool{false, true} {
					bubble(t, func(w *world) { testCancelled(w, fault, after, held) })
				}
			}
		})
	}
}

func testCancelled(w *world, fault memory.Fault, after time.Duration, held bool) {
	other, _ := w.keeper("other")
	if held {
		w.must(other.TryAcquire(w.Context(), "x"))
	}
	k, b := w.keeper("a")
	remove := b.Inject(fault)
	ctx, cancel := context.WithTimeout(w.Context(), after)
	defer cancel()
	var l *leasekeeper.Lease
	var err error
	if late := took(func() { l, err = k.Acquire(ctx, "x") }); late > after {
		w.Errorf("cancelled after %v, returned after %v", after, late)
	}
	if err == nil {
		err = l.Release(w.Context())
	} else if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, leasekeeper.ErrUnknownOutcome) && !errors.Is(err, leasekeeper.ErrUnavailable) {
		w.Errorf("after %v: %v", after, err)
	}
	if err != nil {
		time.Sleep(5 * time.Second) // less than the TTL, so the lease did not simply expire
	}
	remove()
	time.Sleep(time.Second)
	if held {
		w.holder("x", "other")
		if i, _ := w.store.Backend().Get(w.Context(), "x"); i.Waiting > 0 {
			w.Errorf("after %v: a claim is left in the queue: %+v", after, i)
		}
		return
	}
	w.free("x")
}

func TestWaitingSurvivesAStoreThatFails(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, client := w.keeper("b")
		l := w.must(a.Acquire(w.Context(), "x"))
		got := make(chan *leasekeeper.Lease)
		go func() {
			l, err := b.Acquire(w.Context(), "x")
			w.must(l, err)
			got <- l
		}()
		time.Sleep(time.Second)
		w.store.Restart()
		time.Sleep(time.Second)
		remove := client.Inject(memory.Fault{Kind: memory.Stall}) // until the claim has lost its place in the queue
		time.Sleep(3 * ttl / 2)
		remove()
		time.Sleep(time.Second)
		client.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Await, Times: 1}) // the connection that reports turns is dead
		w.store.Restart()
		time.Sleep(time.Second)
		if err := l.Release(w.Context()); err != nil {
			w.Error(err)
		}
		start := time.Now()
		(<-got).Check()
		if late := time.Since(start); late > ttl+time.Second {
			w.Errorf("it received its turn %v late", late)
		}
	})
}

func TestOverlappingClaimsOfOneKeeperReportSelf(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		var wins, selves atomic.Int32
		for range 10 {
			go func() {
				_, err := k.TryAcquire(w.Context(), "x")
				var held *leasekeeper.HeldError
				switch {
				case err == nil:
					wins.Add(1)
				case errors.As(err, &held) && held.Holder.ID == "a":
					selves.Add(1)
				default:
					w.Error(err)
				}
			}()
		}
		synctest.Wait()
		if wins.Load() != 1 || selves.Load() != 9 {
			w.Errorf("%d calls hold it, %d received a HeldError with Self", wins.Load(), selves.Load())
		}
	})
}

// hasty is a backend that calls a function between the store's answer to a claim and its return.
type hasty struct {
	*memory.Backend
	do func()
}

func (h *hasty) Claim(ctx context.Context, c backend.Claim) (backend.Lease, backend.Grant, error) {
	l, g, err := h.Backend.Claim(context.WithoutCancel(ctx), c)
	h.do()
	return l, g, err
}

// The keeper releases a claim that the store grants just when its call has ended.
func TestClaimGrantedAsItsCallEndsIsReleased(t *testing.T) {
	bubble(t, func(w *world) {
		h := &hasty{Backend: w.store.Backend()}
		k := w.on(h, "a")
		ctx, cancel := context.WithCancel(w.Context())
		h.do = cancel
		_, err := k.Acquire(ctx, "x")
		w.is(err, context.Canceled)
		synctest.Wait()
		w.free("x")
		closed := make(chan error, 1)
		h.do = func() {
			go func() { closed <- k.Shutdown(w.Context()) }()
			time.Sleep(time.Second)
		}
		_, err = k.Acquire(w.Context(), "x")
		w.is(err, leasekeeper.ErrClosed)
		if err := <-closed; err != nil {
			w.Error(err)
		}
		w.free("x")
	})
}
