package leasekeeper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// Rule C1: the deadline is counted from before the first send of the acknowledged request, and the context ends then.
func TestDeadlineIsCountedFromTheFirstSend(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault memory.Fault
		late  time.Duration // the time from the first send of the claim to its answer
	}{
		{"at once", memory.Fault{Kind: memory.DelayAnswer, Times: 1}, 0},
		{"the answer is late", memory.Fault{Kind: memory.DelayAnswer, Delay: 4 * time.Second, Times: 1}, 4 * time.Second},
		{"the request is late", memory.Fault{Kind: memory.DelayRequest, Delay: 4 * time.Second, Times: 1}, 4 * time.Second},
		{"the answer is lost", memory.Fault{Kind: memory.LoseAnswer, Times: 1}, -1},
		{"the request is lost", memory.Fault{Kind: memory.LoseRequest, Times: 1}, -1},
		{"the first way is a black hole", memory.Fault{Kind: memory.StallAnswer, Times: 1}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, b := w.keeper("a")
				c.fault.Op = memory.Claim
				remove := b.Inject(c.fault)
				defer remove()
				defer b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})()
				start := time.Now()
				l := w.must(k.TryAcquire(w.Context(), "x"))
				if late := time.Since(start); c.late >= 0 && late != c.late {
					w.Errorf("answered after %v", late)
				}
				if left := l.Remaining(); left != relied-time.Since(start) {
					w.Errorf("remaining %v after %v, of %v", left, time.Since(start), relied)
				}
				<-l.Context().Done()
				if lasted := time.Since(start); lasted < relied || lasted > relied+10*time.Millisecond {
					w.Errorf("ended after %v, not %v", lasted, relied)
				}
				w.is(context.Cause(l.Context()), leasekeeper.ErrLost)
				w.holder("x", "a") // no other process can hold it yet
			})
		})
	}
}

// A renewal moves the deadline: the new one is counted from the send of the renewal.
func TestRenewalIsCountedFromItsSend(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.TryAcquire(w.Context(), "x"))
		// Answers to renewals take three seconds; later there are none.
		remove := b.Inject(memory.Fault{Kind: memory.DelayAnswer, Op: memory.Renew, Delay: 3 * time.Second})
		var sent time.Time
		for before := l.Remaining(); ; {
			time.Sleep(10 * time.Millisecond)
			if left := l.Remaining(); left > before {
				sent = time.Now().Add(-3 * time.Second)
				if got := relied - 3*time.Second; left > got || left < got-20*time.Millisecond {
					w.Errorf("remaining %v after a renewal that took 3s, not %v", left, got)
				}
				break
			} else {
				before = left
			}
		}
		remove()
		defer b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})()
		<-l.Context().Done()
		if lasted := time.Since(sent); lasted > relied+10*time.Millisecond || lasted < relied-20*time.Millisecond {
			w.Errorf("ended %v after the last acknowledged send, not %v", lasted, relied)
		}
	})
}

func TestOneStalledMessageDoesNotLoseALease(t *testing.T) {
	for _, kind := range []memory.Kind{memory.Stall, memory.StallAnswer, memory.LoseRequest, memory.LoseAnswer, memory.Refuse} {
		bubble(t, func(w *world) {
			k, b := w.keeper("a")
			l := w.must(k.Acquire(w.Context(), "x"))
			for range 5 {
				remove := b.Inject(memory.Fault{Kind: kind, Op: memory.Renew, Times: 1})
				for range 100 {
					time.Sleep(ttl / 50)
					if err := l.Check(); err != nil {
						w.Fatalf("kind %d: %v", kind, err)
					}
					if left := l.Remaining(); left < relied/3 {
						w.Fatalf("kind %d: another endpoint was used when only %v was left", kind, left)
					}
				}
				remove()
			}
		})
	}
}

// A lease whose renewals fail does not end the other leases.
func TestFailingLeaseDoesNotEndOthers(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		good, bad := w.must(k.Acquire(w.Context(), "good")), w.must(k.Acquire(w.Context(), "bad"))
		defer b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew, Name: "bad"})()
		<-bad.Context().Done()
		time.Sleep(3 * ttl)
		w.must(good, nil)
		w.is(bad.Check(), leasekeeper.ErrLost)
	})
}

func TestLeasesEndInTimeWhenTheStoreIsGone(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		remove := w.store.Inject(memory.Fault{Kind: memory.Refuse})
		_, err := k.TryAcquire(w.Context(), "y")
		w.is(err, leasekeeper.ErrUnavailable)
		if late := took(func() { _, err = k.Acquire(w.Context(), "y") }); late < ttl || late > 2*ttl {
			w.Errorf("gave up after %v", late)
		}
		w.is(err, leasekeeper.ErrUnavailable)
		w.is(l.Check(), leasekeeper.ErrLost)
		if cause := context.Cause(l.Context()).Error(); !strings.Contains(cause, "unavailable") || !strings.Contains(cause, "x") {
			w.Errorf("the cause does not say why: %s", cause)
		}
		go func() {
			time.Sleep(5 * time.Second)
			remove()
		}()
		w.must(k.Acquire(w.Context(), "y"))
	})
}

func TestLeasesThatTheStoreForgotAreLost(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		w.store.Forget()
		if late := took(func() { <-l.Context().Done() }); late > ttl/3 {
			w.Errorf("noticed after %v", late)
		}
		again := w.must(k.Acquire(w.Context(), "x"))
		if again.Token() <= l.Token() {
			w.Errorf("token %d after %d", again.Token(), l.Token())
		}
	})
}

// Rule T4: the machine slept, or the process was stopped.
func TestEveryUseReadsBothClocks(t *testing.T) {
	for name, jump := range map[string]func(*memory.Clock){
		"suspended machine": func(c *memory.Clock) { c.Suspend(ttl) },
		"stopped process":   func(c *memory.Clock) { c.Advance(ttl) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, _ := w.keeper("a")
				l := w.must(k.Acquire(w.Context(), "x"))
				jump(w.clock)
				// No goroutine has run yet.
				if left := l.Remaining(); left > 0 {
					w.Errorf("remaining %v", left)
				}
				w.is(l.Check(), leasekeeper.ErrLost)
				if l.Context().Err() == nil {
					w.Error("checked, and the context goes on")
				}
				w.is(l.Release(w.Context()), leasekeeper.ErrLost)
				m := w.must(k.Acquire(w.Context(), "y"))
				jump(w.clock)
				synctest.Wait()
				w.is(context.Cause(m.Context()), leasekeeper.ErrLost)
			})
		})
	}
}

// A lease past its deadline is lost, whichever call comes first.
func TestEveryCallFindsALeasePastItsDeadlineLost(t *testing.T) {
	for name, look := range map[string]func(w *world, k *leasekeeper.Keeper, l *leasekeeper.Lease){
		"Release": func(w *world, _ *leasekeeper.Keeper, l *leasekeeper.Lease) {
			w.is(l.Release(w.Context()), leasekeeper.ErrLost)
		},
		"TryAcquire": func(w *world, k *leasekeeper.Keeper, _ *leasekeeper.Lease) {
			w.must(k.TryAcquire(w.Context(), "x"))
		},
		"Announce": func(w *world, _ *leasekeeper.Keeper, l *leasekeeper.Lease) {
			w.is(l.Announce(w.Context(), "text"), leasekeeper.ErrLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &late{memory.NewRunningClock()}
				w := &world{t, c.Clock, memory.New(memory.WithClock(c.Clock))}
				k := w.on(&lateBackend{w.store.Backend(), c}, "a")
				l := w.must(k.Acquire(w.Context(), "x"))
				c.Advance(2 * ttl)
				look(w, k, l)
				w.is(context.Cause(l.Context()), leasekeeper.ErrLost)
			})
		})
	}
}

// late is clocks that move without notice, like a timer that has not fired yet.
type late struct{ *memory.Clock }

func (late) Moved() <-chan struct{} { return nil }

type lateBackend struct {
	*memory.Backend
	clock *late
}

func (b *lateBackend) Clock() backend.Clock { return b.clock }

// endpointsBackend is a store with several endpoints. All but the last one answer nothing. It uses the next endpoint
// after a message without an answer.
type endpointsBackend struct {
	*memory.Backend
	dead atomic.Int32
}

func (b *endpointsBackend) Renew(ctx context.Context, leases []backend.Lease, report func(int, backend.Renewal)) error {
	if b.dead.Load() > 0 {
		<-ctx.Done()
		b.dead.Add(-1)
		return ctx.Err()
	}
	return b.Backend.Renew(ctx, leases, report)
}

func TestSecondEndpointRenewsInTime(t *testing.T) {
	bubble(t, func(w *world) {
		b := &endpointsBackend{Backend: w.store.Backend()}
		k := w.on(b, "a")
		l := w.must(k.Acquire(w.Context(), "x"))
		for range 3 {
			b.dead.Store(2)
			time.Sleep(2 * ttl)
			w.must(l, nil)
		}
	})
}

// counted is a backend that counts messages of renewals.
type counted struct {
	*memory.Backend
	messages, renewals atomic.Int64
	last               context.Context // of the message before the last
}

func (c *counted) Renew(ctx context.Context, leases []backend.Lease, report func(int, backend.Renewal)) error {
	if c.last != nil && c.last.Err() == nil {
		return errors.New("the context of a message that was answered is kept")
	}
	c.last = ctx
	c.messages.Add(1)
	c.renewals.Add(int64(len(leases)))
	return c.Backend.Renew(ctx, leases, report)
}

func TestAllLeasesAreRenewedInOneMessage(t *testing.T) {
	bubble(t, func(w *world) {
		const many = 1000
		c := &counted{Backend: w.store.Backend()}
		k := w.on(c, "a")
		for i := range many {
			w.must(k.Acquire(w.Context(), fmt.Sprint("x/", i)))
			time.Sleep(7 * time.Millisecond)
		}
		time.Sleep(2 * ttl)
		before, renewed := c.messages.Load(), c.renewals.Load()
		const rounds = 30
		time.Sleep(rounds * ttl)
		if sent := c.messages.Load() - before; sent < 3*rounds || sent > 4*rounds {
			w.Errorf("%d messages in %d TTLs", sent, rounds)
		}
		if n := c.renewals.Load() - renewed; n > 4*rounds*many {
			w.Errorf("%d renewals of %d leases in %d TTLs", n, many, rounds)
		}
		for i, err := range k.List(w.Context(), "x/") {
			if err != nil || !i.Held {
				w.Fatal(i, err)
			}
		}
	})
}

// untils is a backend that returns deadlines, because its store shares the clocks of this process.
type untils struct {
	*memory.Backend
	lasts time.Duration
}

func (u *untils) Claim(ctx context.Context, c backend.Claim) (backend.Lease, backend.Grant, error) {
	l, g, err := u.Backend.Claim(ctx, c)
	g.Until = u.Clock().Now().Add(u.lasts)
	return l, g, err
}

func TestDeadlineCountedByTheBackendIsUsed(t *testing.T) {
	bubble(t, func(w *world) {
		b := &untils{w.store.Backend(), 7 * time.Second}
		k := w.on(b, "a")
		b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})
		l := w.must(k.Acquire(w.Context(), "x"))
		if late := took(func() { <-l.Context().Done() }); late < 7*time.Second || late > 7*time.Second+10*time.Millisecond {
			w.Errorf("relied on for %v", late)
		}
	})
}
