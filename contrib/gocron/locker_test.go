package gocronlease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	gocronlease "github.com/leasekeeper/leasekeeper/contrib/gocron"
)

// locked starts a scheduler whose jobs are under a Locker.
func (w *world) locked(p *process, l *gocronlease.Locker, fn leasekeeper.Func, o ...gocron.JobOption) {
	w.Helper()
	w.start(p, everyMinute(l.Task(fn), o...), gocron.WithDistributedLocker(l))
}

func TestOneProcessRunsEachTick(t *testing.T) {
	bubble(t, func(w *world) {
		count := newTally(t)
		for _, id := range []string{"a", "b", "c"} {
			p := w.process(id)
			w.locked(p, gocronlease.NewLocker(p.keeper), count.job(id, time.Second))
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		if n := count.all(); n != 10 {
			t.Errorf("%d runs in 10 minutes: %v", n, count.runs)
		}
		w.holder("nightly", "")
	})
}

// A scheduler that is two seconds late runs a job of one second again, unless there is a splay.
func TestSplayCoversLateScheduler(t *testing.T) {
	for _, c := range []struct {
		splay time.Duration
		want  int
	}{{0, 10}, {5 * time.Second, 5}} {
		t.Run(c.splay.String(), func(t *testing.T) {
			bubble(t, func(w *world) {
				count := newTally(t)
				for _, id := range []string{"a", "b"} {
					p := w.process(id)
					w.locked(p, gocronlease.NewLocker(p.keeper, gocronlease.WithSplay(c.splay)), count.job(id, time.Second))
					time.Sleep(2 * time.Second)
				}
				time.Sleep(5*time.Minute + 30*time.Second)
				if n := count.all(); n != c.want {
					t.Errorf("%d runs in 5 minutes, want %d: %v", n, c.want, count.runs)
				}
				w.holder("nightly", "")
			})
		})
	}
}

func TestSplayOutlastsShutdownAndClose(t *testing.T) {
	bubble(t, func(w *world) {
		count := newTally(t)
		p := w.process("a")
		w.locked(p, gocronlease.NewLocker(p.keeper, gocronlease.WithSplay(20*time.Second)), count.job("a", time.Second))
		time.Sleep(time.Minute + 5*time.Second)
		if err := p.scheduler.Shutdown(); err != nil {
			t.Error(err)
		}
		w.holder("nightly", "a")
		if err := p.keeper.Shutdown(w.Context()); err != nil {
			t.Error(err)
		}
		if passed := time.Since(count.newest()); passed < 20*time.Second || passed > 21*time.Second {
			t.Errorf("the name was free %v after it was acquired", passed)
		}
		w.holder("nightly", "")
	})
}

func TestContextEndsBeforeAnotherProcessRuns(t *testing.T) {
	bubble(t, func(w *world) {
		count := newTally(t)
		a, b := w.process("a"), w.process("b")
		failed := make(chan error, 1)
		w.locked(a, gocronlease.NewLocker(a.keeper), count.job("a", time.Hour), gocron.WithEventListeners(
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err })))
		time.Sleep(time.Minute + time.Second)
		w.locked(b, gocronlease.NewLocker(b.keeper), count.job("b", time.Hour))
		a.client.Inject(memory.Fault{Kind: memory.Stall})
		w.is(<-failed, leasekeeper.ErrLost)
		time.Sleep(2 * time.Minute)
		if count.of("a") != 1 || count.of("b") != 1 {
			t.Errorf("runs: %v", count.runs)
		}
		w.holder("nightly", "b")
	})
}

// The function ignores its context: the name stays its own while the job is removed and the keeper is closed. (In a
// bubble no function can outlast the scheduler: gocron spins while it waits.)
func TestNameIsKeptWhileFunctionRuns(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.process("a")
		var ended error
		returned := false
		w.locked(p, gocronlease.NewLocker(p.keeper), func(ctx context.Context, _ *leasekeeper.Lease) error {
			<-ctx.Done()
			ended = context.Cause(ctx)
			time.Sleep(5 * time.Minute)
			w.holder("nightly", "a")
			returned = true
			return nil
		})
		time.Sleep(time.Minute + time.Second)
		if err := p.scheduler.RemoveJob(p.scheduler.Jobs()[0].ID()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		w.is(ended, context.Canceled)
		if err := p.keeper.Shutdown(w.Context()); err != nil || !returned {
			t.Errorf("Close: %v, and the function has returned: %v", err, returned)
		}
		w.holder("nightly", "")
	})
}

func TestClosingKeeperEndsContext(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.process("a")
		count, failed := newTally(t), make(chan error, 1)
		w.locked(p, gocronlease.NewLocker(p.keeper), count.job("a", time.Hour), gocron.WithEventListeners(
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err })))
		time.Sleep(time.Minute + time.Second)
		if err := p.keeper.Shutdown(w.Context()); err != nil {
			t.Error(err)
		}
		w.is(<-failed, leasekeeper.ErrClosed)
	})
}

// The job has lost its lease and still runs: its own process starts it no second time.
func TestRunThatLostItsLeaseIsNotOvertakenInItsProcess(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.process("a")
		count := newTally(t)
		var refused []error
		w.locked(p, gocronlease.NewLocker(p.keeper), func(ctx context.Context, l *leasekeeper.Lease) error {
			count.begin("a", l.Token())
			defer count.end()
			time.Sleep(125 * time.Second)
			w.is(l.Check(), leasekeeper.ErrLost)
			return nil
		}, gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused = append(refused, err) })))
		time.Sleep(time.Minute + time.Second)
		w.store.Delete("nightly")
		time.Sleep(2*time.Minute + 10*time.Second) // two ticks are refused, and the function returns
		synctest.Wait()
		if n := count.all(); n != 1 || len(refused) != 2 {
			t.Fatalf("%d runs, and refused %v", n, refused)
		}
		for _, err := range refused {
			if held, ok := errors.AsType[*leasekeeper.HeldError](err); !ok || !held.Self || held.Token != 1 {
				t.Errorf("refused with %v", err)
			}
		}
	})
}

func TestLeaseIsFoundByContextOfTask(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.process("a")
		l := gocronlease.NewLocker(p.keeper, gocronlease.WithPrefix("app/"))
		found := make(chan string, 2)
		task := func(ctx context.Context, suffix string) {
			lease, ok := l.Lease(ctx)
			if _, foreign := l.Lease(context.WithoutCancel(ctx)); !ok || foreign {
				t.Errorf("found for the context of the task: %v, for another one: %v", ok, foreign)
				return
			}
			found <- lease.Name() + suffix
		}
		w.start(p, func(s gocron.Scheduler) error {
			for _, name := range []string{"one", "two"} {
				if _, err := s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(task, "!"), gocron.WithName(name)); err != nil {
					return err
				}
			}
			return nil
		}, gocron.WithDistributedLocker(l))
		time.Sleep(time.Minute + time.Second)
		got := map[string]bool{<-found: true, <-found: true}
		if !got["app/one!"] || !got["app/two!"] {
			t.Errorf("leases on %v", got)
		}
	})
}

func TestTaskWithoutLockDoesNotRun(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.process("a")
		l := gocronlease.NewLocker(p.keeper)
		failed := make(chan error, 1)
		w.start(p, everyMinute(l.Task(func(context.Context, *leasekeeper.Lease) error {
			t.Error("it runs")
			return nil
		}), gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err }))))
		w.is(<-failed, gocronlease.ErrNoLease)
	})
}

func TestTaskWithoutNameIsRefused(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.process("a")
		l := gocronlease.NewLocker(p.keeper)
		refused := make(chan error, 1)
		w.start(p, func(s gocron.Scheduler) error {
			_, err := s.NewJob(gocron.DurationJob(time.Minute), l.Task(func(context.Context, *leasekeeper.Lease) error {
				t.Error("it runs")
				return nil
			}), gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err })))
			return err
		}, gocron.WithDistributedLocker(l))
		w.is(<-refused, leasekeeper.ErrInvalid)
	})
}

// gocron throws away what these return, but other callers may look at it.
func TestLockAndUnlockTellHeldLostAndUnknown(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.process("a"), w.process("b")
		one, two := gocronlease.NewLocker(a.keeper, gocronlease.WithLease(leasekeeper.WithTTL(time.Minute))), gocronlease.NewLocker(b.keeper)
		lock, err := one.Lock(w.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if i, err := a.keeper.Get(w.Context(), "x"); err != nil || i.TTL != time.Minute {
			t.Errorf("%+v, %v", i, err)
		}
		_, err = two.Lock(w.Context(), "x")
		w.is(err, leasekeeper.ErrHeld)
		w.is(lock.Unlock(w.Context()), nil)
		w.is(lock.Unlock(w.Context()), nil)

		lock, err = two.Lock(w.Context(), "x")
		w.is(err, nil)
		w.store.Delete("x")
		time.Sleep(ttl)
		w.is(lock.Unlock(w.Context()), leasekeeper.ErrLost)

		lock, err = two.Lock(w.Context(), "x")
		w.is(err, nil)
		heal := b.client.Inject(memory.Fault{Kind: memory.Stall})
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.is(lock.Unlock(ctx), leasekeeper.ErrUnknownOutcome)
		heal()

		ctx, cancel = context.WithCancel(w.Context())
		cancel()
		_, err = two.Lock(ctx, "y")
		w.is(err, context.Canceled)
		_, err = two.Lock(w.Context(), "no//name")
		w.is(err, leasekeeper.ErrInvalid)
		time.Sleep(ttl)
		synctest.Wait()
		w.holder("x", "")
	})
}

// The answer to a claim is lost. The claim is resolved, and the job runs at most once.
func TestLostAnswerToClaimStartsJobAtMostOnce(t *testing.T) {
	bubble(t, func(w *world) {
		count := newTally(t)
		a, b := w.process("a"), w.process("b")
		a.client.Inject(memory.Fault{Op: memory.Claim, Kind: memory.LoseAnswer, Times: 1})
		w.locked(a, gocronlease.NewLocker(a.keeper), count.job("a", time.Second))
		w.locked(b, gocronlease.NewLocker(b.keeper), count.job("b", time.Second))
		time.Sleep(90 * time.Second)
		if n := count.all(); n > 1 {
			t.Errorf("%d runs of one tick", n)
		}
		time.Sleep(time.Minute)
		if n := count.all(); n < 1 {
			t.Error("no run in two minutes")
		}
		w.holder("nightly", "")
	})
}
