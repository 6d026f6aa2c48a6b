package leasekeeper_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/driver"
	"github.com/leasekeeper/leasekeeper/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 15 * time.Second

// relied is how much of a TTL a holder relies on.
var relied = clock.DefaultDrift.RelyRemote(ttl)

// world is a store in a bubble of synctest.
type world struct {
	*testing.T
	clock *memory.Clock
	store *memory.Store
}

// bubble runs a test in a bubble: every goroutine that it leaves behind fails it.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := memory.NewRunningClock()
		test(&world{t, c, memory.New(memory.WithClock(c))})
	})
}

// keeper returns a keeper, and its client of the store.
func (w *world) keeper(id string, o ...leasekeeper.KeeperOption) (*leasekeeper.Keeper, *memory.Backend) {
	w.Helper()
	b := w.store.Backend()
	return w.on(b, id, o...), b
}

func (w *world) on(b driver.Backend, id string, o ...leasekeeper.KeeperOption) *leasekeeper.Keeper {
	w.Helper()
	k, err := leasekeeper.New(b, append([]leasekeeper.KeeperOption{leasekeeper.WithHolder(id), leasekeeper.WithTTL(ttl)}, o...)...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if err := k.Close(ctx); err != nil && !errors.Is(err, leasekeeper.ErrUnknownOutcome) {
			w.Errorf("Close: %v", err)
		}
	})
	return k
}

func (w *world) must(l *leasekeeper.Lease, err error) *leasekeeper.Lease {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	if err := l.Check(); err != nil {
		w.Fatal(err)
	}
	return l
}

func (w *world) is(err, kind error) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Errorf("%v, and not %v", err, kind)
	}
}

// free fails unless nobody holds the name or waits for it.
func (w *world) free(name string) {
	w.Helper()
	i, err := w.store.Backend().Get(w.Context(), name)
	if err != nil || i.Held || i.Waiting != 0 {
		w.Errorf("%s is not free: %+v, %v", name, i, err)
	}
}

// holder fails unless the name is held by id.
func (w *world) holder(name, id string) {
	w.Helper()
	i, err := w.store.Backend().Get(w.Context(), name)
	if err != nil || !i.Held || i.Holder.ID != id {
		w.Errorf("%s is not held by %s: %+v, %v", name, id, i, err)
	}
}

// took returns how long something takes.
func took(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}

func TestBadInput(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		ctx := w.Context()
		never := func(context.Context, *leasekeeper.Lease) error {
			w.Error("the function was run")
			return nil
		}
		for _, name := range []string{"", "a//b", "/a", "a/", "..", "a\x00", "\xff\xfe", strings.Repeat("x", 10<<10)} {
			_, err := k.Acquire(ctx, name)
			w.is(err, leasekeeper.ErrInvalid)
			_, err = k.TryAcquire(ctx, name)
			w.is(err, leasekeeper.ErrInvalid)
			w.is(k.Run(ctx, name, never), leasekeeper.ErrInvalid)
			w.is(k.Campaign(ctx, name, never), leasekeeper.ErrInvalid)
			_, err = k.Adopt(ctx, name, 1)
			w.is(err, leasekeeper.ErrInvalid)
			_, err = k.Get(ctx, name)
			w.is(err, leasekeeper.ErrInvalid)
		}
		for _, bad := range []leasekeeper.Option{
			leasekeeper.WithTTL(0), leasekeeper.WithTTL(-1), leasekeeper.WithTTL(math.MinInt64), leasekeeper.WithTTL(1),
			leasekeeper.WithTTL(10*time.Millisecond - 1), leasekeeper.WithTTL(math.MaxInt64),
			leasekeeper.WithCard("\xff"), leasekeeper.WithCard(strings.Repeat("x", driver.MaxCardText+1)),
		} {
			_, err := k.Acquire(ctx, "x", bad)
			w.is(err, leasekeeper.ErrInvalid)
			w.is(k.Run(ctx, "x", never, bad), leasekeeper.ErrInvalid)
			w.is(k.Campaign(ctx, "x", never, bad), leasekeeper.ErrInvalid)
			_, err = k.Adopt(ctx, "x", 1, bad)
			w.is(err, leasekeeper.ErrInvalid)
			_, err = leasekeeper.New(w.store.Backend(), bad)
			w.is(err, leasekeeper.ErrInvalid)
		}
		for _, bad := range []leasekeeper.KeeperOption{
			leasekeeper.WithHolder(""), leasekeeper.WithHolder("\xff"), leasekeeper.WithHolder(strings.Repeat("x", 10<<10)),
			leasekeeper.WithDrift(clock.MaxDrift + 1),
		} {
			_, err := leasekeeper.New(w.store.Backend(), bad)
			w.is(err, leasekeeper.ErrInvalid)
		}
		_, err := leasekeeper.New(nil)
		w.is(err, leasekeeper.ErrInvalid)
		_, err = k.Adopt(ctx, "x", 0)
		w.is(err, leasekeeper.ErrInvalid)
		w.is(k.Campaign(ctx, "x", never, leasekeeper.NoWait()), leasekeeper.ErrInvalid)
		for _, prefix := range []string{"\xff", strings.Repeat("x", driver.MaxName+1)} {
			for _, err := range k.List(ctx, prefix) {
				w.is(err, leasekeeper.ErrInvalid)
			}
			for _, err := range k.Watch(ctx, prefix) {
				w.is(err, leasekeeper.ErrInvalid)
			}
		}
		l := w.must(k.Acquire(ctx, "x", leasekeeper.WithTTL(365*24*time.Hour)))
		w.is(l.Announce(ctx, "\xff"), leasekeeper.ErrInvalid)
		time.Sleep(200 * 24 * time.Hour)
		w.must(l, nil)
		w.must(k.Acquire(ctx, "y", leasekeeper.WithTTL(10*time.Millisecond)))
	})
}

func TestOpen(t *testing.T) {
	ctx := t.Context()
	k, err := leasekeeper.Open(ctx, "memory:")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.TryAcquire(ctx, "x"); err != nil {
		t.Error(err)
	}
	if err := k.Close(ctx); err != nil {
		t.Error(err)
	}
	for _, url := range []string{"", "nobody:", "memory://host", "memory:x?y=z", "postgres://u:hunter2/x@h/d", "leasekeeper://u:hunter2@h:99999999"} {
		_, err := leasekeeper.Open(ctx, url)
		if !errors.Is(err, leasekeeper.ErrInvalid) {
			t.Errorf("%q: %v", url, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a password is shown: %v", err)
		}
	}
	_, err = leasekeeper.Open(ctx, "memory:", leasekeeper.WithTTL(-1))
	if !errors.Is(err, leasekeeper.ErrInvalid) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := leasekeeper.Open(ended, "memory:"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// plain is a client whose store is no store for tests.
type plain struct{ driver.Backend }

// On any other store a keeper goes by the machine's clocks, timers and, on Linux, an alarm.
func TestRealStore(t *testing.T) {
	const short = 200 * time.Millisecond
	ctx := t.Context()
	files := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return 0
		}
		return len(open)
	}
	before := files()
	for range 8 {
		store := memory.New()
		k, err := leasekeeper.New(plain{store.Backend()}, leasekeeper.WithTTL(short))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close(ctx)
		l, err := k.Acquire(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Announce(ctx, "text"); !errors.Is(err, leasekeeper.ErrUnsupported) {
			t.Error(err)
		}
		time.Sleep(short / 2)
		heal := store.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})
		<-l.Context().Done()
		if err := l.Check(); !errors.Is(err, leasekeeper.ErrLost) {
			t.Error(err)
		}
		heal()
		if err := k.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if after := files(); after > before+3 {
		t.Errorf("%d files are open, %d were", after, before)
	}
}

// Two keepers by URL, in real time, with the machine's clocks.
func TestRealTime(t *testing.T) {
	const short = 300 * time.Millisecond
	ctx := t.Context()
	a, errA := leasekeeper.Open(ctx, "memory:real-time", leasekeeper.WithTTL(short))
	b, errB := leasekeeper.New(memory.Named("real-time").Backend(), leasekeeper.WithTTL(short))
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	l, err := a.Acquire(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * short)
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	defer memory.Named("real-time").Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})()
	next, err := b.Acquire(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if l.Context().Err() == nil || l.Check() == nil {
		t.Error("two hold it")
	}
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	if err := errors.Join(a.Close(ctx), b.Close(ctx)); err != nil {
		t.Error(err)
	}
}

// C1: the deadline is counted from before the first send of what was acknowledged, and the context ends then.
func TestC1DeadlineIsCountedFromTheFirstSend(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault memory.Fault
		late  time.Duration // how much later than the first send the claim is answered
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
				w.holder("x", "a") // nobody else can hold it yet
			})
		})
	}
}

// A renewal moves the deadline to what it is worth from its own first send.
func TestC1RenewalIsCountedFromItsSend(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.TryAcquire(w.Context(), "x"))
		// Answers to renewals take three seconds, then there are none.
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
	remove() // what was held back comes now
	synctest.Wait()
	if held {
		w.holder("x", "other")
		if i, _ := b.Get(w.Context(), "x"); i.Waiting > 0 {
			w.Errorf("something was left in line: %+v", i)
		}
		return
	}
	w.free("x")
}

// An attempt that was refused says nothing about one before it that got lost.
func TestARefusedRepetitionSettlesNothing(t *testing.T) {
	for _, second := range []memory.Fault{
		{Kind: memory.Refuse}, {Kind: memory.Refuse, Err: driver.ErrContention}, {Kind: memory.Refuse, Err: context.DeadlineExceeded},
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
	// Refused for good, after an attempt that may still be under way.
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		remove := b.Inject(memory.Fault{Kind: memory.HoldRequest, Op: memory.Claim, Times: 1})
		defer b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Claim, Err: driver.ErrCorrupt})()
		_, err := k.TryAcquire(w.Context(), "x")
		w.is(err, leasekeeper.ErrCorrupt)
		synctest.Wait()
		remove()
		w.free("x")
	})
}

// Whoever gives up waiting, at whatever moment, leaves nothing in the store.
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
		"turns of nobody":           {Kind: memory.LoseAnswer, Op: memory.Await},
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
		time.Sleep(5 * time.Second) // less than a lease would live by itself
	}
	remove()
	time.Sleep(time.Second)
	if held {
		w.holder("x", "other")
		if i, _ := w.store.Backend().Get(w.Context(), "x"); i.Waiting > 0 {
			w.Errorf("after %v: something stands in line: %+v", after, i)
		}
		return
	}
	w.free("x")
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
						w.Fatalf("kind %d: another way was taken when only %v was left", kind, left)
					}
				}
				remove()
			}
		})
	}
}

// A lease in trouble does not take the others with it.
func TestOneLeaseInTroubleIsAlone(t *testing.T) {
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

func TestStoreGone(t *testing.T) {
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

func TestWaitingSurvivesTroubles(t *testing.T) {
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
		remove := client.Inject(memory.Fault{Kind: memory.Stall}) // until its place in line is lost
		time.Sleep(3 * ttl / 2)
		remove()
		time.Sleep(time.Second)
		client.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Await, Times: 1}) // the way for turns is dead
		w.store.Restart()
		time.Sleep(time.Second)
		if err := l.Release(w.Context()); err != nil {
			w.Error(err)
		}
		start := time.Now()
		(<-got).Check()
		if late := time.Since(start); late > ttl+time.Second {
			w.Errorf("it was told its turn %v late", late)
		}
	})
}

func TestForgottenLeasesAreLost(t *testing.T) {
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

// T4: a machine that slept, and a process that was stopped.
func TestT4EveryUseReadsBothClocks(t *testing.T) {
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

func TestReleaseIsNeverFalselyReported(t *testing.T) {
	for _, kind := range []memory.Kind{memory.LoseRequest, memory.LoseAnswer, memory.HoldRequest, memory.Stall, memory.StallAnswer, memory.Refuse} {
		for _, times := range []int{1, 3, 0} {
			t.Run(fmt.Sprint(kind, times), func(t *testing.T) {
				bubble(t, func(w *world) {
					k, b := w.keeper("a")
					l := w.must(k.Acquire(w.Context(), "x"))
					remove := b.Inject(memory.Fault{Kind: kind, Op: memory.Release, Times: times})
					defer remove()
					start := time.Now()
					err := l.Release(w.Context())
					if l.Context().Err() == nil || l.Check() == nil {
						w.Error("released, and its context goes on")
					}
					if times == 0 {
						w.is(err, leasekeeper.ErrUnknownOutcome)
						if late := time.Since(start); late > 2*ttl {
							w.Errorf("tried for %v", late)
						}
						w.is(l.Release(w.Context()), leasekeeper.ErrUnknownOutcome)
						return
					}
					if err != nil {
						w.Error(err)
					}
					w.free("x")
				})
			})
		}
	}
}

func TestReleaseGoesOnWithoutItsCaller(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		b.Inject(memory.Fault{Kind: memory.DelayRequest, Op: memory.Release, Delay: time.Second})
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		err := l.Release(ctx)
		w.is(err, leasekeeper.ErrUnknownOutcome)
		w.is(err, context.Canceled)
		if err := l.Release(w.Context()); err != nil {
			w.Error(err)
		}
		w.free("x")
	})
}

func TestSelfWhileClaimsOverlap(t *testing.T) {
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
			w.Errorf("%d hold it, %d were told that it is held", wins.Load(), selves.Load())
		}
	})
}

func TestLogTellsWhatBecomesOfLeases(t *testing.T) {
	bubble(t, func(w *world) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, nil))
		k, b := w.keeper("a", leasekeeper.WithLogger(logger))
		l := w.must(k.Acquire(w.Context(), "released"))
		if err := l.Release(w.Context()); err != nil {
			w.Error(err)
		}
		l = w.must(k.Acquire(w.Context(), "lost"))
		time.Sleep(10 * ttl)
		remove := b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Renew})
		time.Sleep(2 * ttl / 3)
		remove()
		time.Sleep(ttl)
		defer b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Renew})()
		<-l.Context().Done()
		synctest.Wait()
		var got []string
		for line := range strings.Lines(out.String()) {
			if !strings.Contains(line, "token=") || !strings.Contains(line, "holder=a") {
				w.Error(line)
			}
			_, line, _ = strings.Cut(line, "level=")
			line, _, _ = strings.Cut(line, " token=")
			got = append(got, line)
		}
		want := []string{
			`INFO msg="lease acquired" name=released`, `INFO msg="lease released" name=released`,
			`INFO msg="lease acquired" name=lost`,
			`WARN msg="lease in doubt: not renewed for half of its time" name=lost`, `INFO msg="lease renewed again" name=lost`,
			`WARN msg="lease in doubt: not renewed for half of its time" name=lost`, `ERROR msg="lease lost" name=lost`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			w.Errorf("logged:\n%s\nnot:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// What is past its deadline is lost, whoever looks first.
func TestWhatIsPastItsDeadlineIsLostToEveryCall(t *testing.T) {
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

// late are clocks that tell nobody that they were moved: a timer that has not rung yet.
type late struct{ *memory.Clock }

func (late) Moved() <-chan struct{} { return nil }

type lateBackend struct {
	*memory.Backend
	clock *late
}

func (b *lateBackend) Clock() driver.Clock { return b.clock }

// hasty does something between the store's answer to a claim and its return.
type hasty struct {
	*memory.Backend
	do func()
}

func (h *hasty) Claim(ctx context.Context, c driver.Claim) (driver.Lease, driver.Grant, error) {
	l, g, err := h.Backend.Claim(context.WithoutCancel(ctx), c)
	h.do()
	return l, g, err
}

// A claim that is granted just when nobody wants it any more is given back.
func TestAnAnswerThatComesWithTheEndOfTheCall(t *testing.T) {
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
			go func() { closed <- k.Close(w.Context()) }()
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

// ways is a store with several ways to it, all but the last of them black holes. Another is taken when a
// message was given up.
type ways struct {
	*memory.Backend
	dead atomic.Int32
}

func (b *ways) Renew(ctx context.Context, leases []driver.Lease, report func(int, driver.Renewal)) error {
	if b.dead.Load() > 0 {
		<-ctx.Done()
		b.dead.Add(-1)
		return ctx.Err()
	}
	return b.Backend.Renew(ctx, leases, report)
}

func TestAnotherWayIsTakenInTime(t *testing.T) {
	bubble(t, func(w *world) {
		b := &ways{Backend: w.store.Backend()}
		k := w.on(b, "a")
		l := w.must(k.Acquire(w.Context(), "x"))
		for range 3 {
			b.dead.Store(2)
			time.Sleep(2 * ttl)
			w.must(l, nil)
		}
	})
}

// counted counts messages.
type counted struct {
	*memory.Backend
	messages, renewals atomic.Int64
	last               context.Context // of the last but one message
}

func (c *counted) Renew(ctx context.Context, leases []driver.Lease, report func(int, driver.Renewal)) error {
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

// untils answers like a backend whose store shares the clocks of this process.
type untils struct {
	*memory.Backend
	lasts time.Duration
}

func (u *untils) Claim(ctx context.Context, c driver.Claim) (driver.Lease, driver.Grant, error) {
	l, g, err := u.Backend.Claim(ctx, c)
	g.Until = u.Clock().Now().Add(u.lasts)
	return l, g, err
}

func TestAnEndThatTheBackendCountedIsReliedOn(t *testing.T) {
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

func TestMemoryPerLease(t *testing.T) {
	if testing.Short() {
		t.Skip("acquires many leases")
	}
	const many = 20000
	ctx := t.Context()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	store := memory.New()
	backend := store.Backend()
	k, err := leasekeeper.New(backend, leasekeeper.WithTTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	for i := range many {
		if _, err := k.Acquire(ctx, fmt.Sprint("x/", i)); err != nil {
			t.Fatal(err)
		}
	}
	both := heap() - before
	// What the store itself holds: the same with claims alone.
	alone := memory.New().Backend()
	before = heap()
	for i := range many {
		c := driver.Claim{ID: driver.ID{byte(i), byte(i >> 8), 1}, Name: fmt.Sprint("x/", i), Holder: driver.Holder{ID: "a"}, TTL: time.Hour}
		if _, _, err := alone.Claim(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	store2 := heap() - before
	per := (int64(both) - int64(store2)) / many
	t.Logf("%d bytes per held lease in the keeper (%d with the store)", per, both/many)
	if per > 1200 {
		t.Errorf("%d bytes per held lease", per)
	}
	runtime.KeepAlive(alone)
	if err := k.Close(ctx); err != nil {
		t.Error(err)
	}
}
