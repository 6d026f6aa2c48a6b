package cronlease_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	_ "github.com/leasekeeper/leasekeeper/backend/sqlite"
	cronlease "github.com/leasekeeper/leasekeeper/contrib/cron"
	"github.com/leasekeeper/leasekeeper/internal/test/keepertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 15 * time.Second

var errJob = errors.New("the job failed")

// world is a store in a bubble of synctest, where time passes only while all goroutines wait.
type world struct {
	*testing.T
	store *memory.Store
}

// bubble runs a test in a bubble. Every goroutine that the test leaves behind fails it.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(&world{t, memory.New(memory.WithClock(memory.NewRunningClock()))})
	})
}

// keeper returns the keeper of a process, and its client of the store. The test's end closes it.
func (w *world) keeper(id string) (*leasekeeper.Keeper, *memory.Backend) {
	w.Helper()
	client := w.store.Backend()
	return keepertest.New(w, time.Hour, client, leasekeeper.WithHolder(id), leasekeeper.WithTTL(ttl)), client
}

// start starts a real cron with a job that runs every minute. The test's end stops it and waits for its job.
func (w *world) start(j cron.Job) *cron.Cron {
	w.Helper()
	c := cron.New()
	if _, err := c.AddJob("* * * * *", j); err != nil {
		w.Fatal(err)
	}
	c.Start()
	w.Cleanup(func() { <-c.Stop().Done() })
	return c
}

// holder fails unless the name is held by id; "" means that nobody holds it.
func (w *world) holder(name, id string) {
	w.Helper()
	i, err := w.store.Backend().Get(w.Context(), name)
	if err != nil || i.Held != (id != "") || i.Held && i.Holder.ID != id {
		w.Errorf("the holder of %s is not %q: %+v, %v", name, id, i, err)
	}
}

// lines is a logger of cron that keeps what it gets.
type lines struct {
	mu     sync.Mutex
	infos  []string
	errors []error
}

func (l *lines) Info(message string, values ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.infos = append(l.infos, fmt.Sprint(message, values))
}

func (l *lines) Error(err error, message string, values ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors = append(l.errors, err)
}

// all returns what the logger got so far.
func (l *lines) all() (infos []string, errors []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.infos, l.errors
}

// tally counts runs, and fails the test if two overlap.
type tally struct {
	t       testing.TB
	running atomic.Int32
	runs    atomic.Int32
}

// during runs do as one run.
func (c *tally) during(do func() error) error {
	if c.running.Add(1) != 1 {
		c.t.Error("two runs overlap")
	}
	defer c.running.Add(-1)
	c.runs.Add(1)
	return do()
}

// job is a function that takes d and counts its runs.
func (c *tally) job(d time.Duration) leasekeeper.Func {
	return func(ctx context.Context, _ *leasekeeper.Lease) error {
		return c.during(func() error {
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
}

func TestOneProcessRunsEachTick(t *testing.T) {
	bubble(t, func(w *world) {
		count, log := &tally{t: t}, new(lines)
		for _, id := range []string{"a", "b", "c"} {
			k, _ := w.keeper(id)
			w.start(cronlease.Job(w.Context(), k, "nightly", count.job(time.Second), cronlease.WithLogger(log)))
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		infos, errs := log.all()
		if n := count.runs.Load(); n != 10 || len(infos) != 20 || len(errs) != 0 {
			t.Errorf("%d runs in 10 minutes, log %q, %v", n, infos, errs)
		}
		time.Sleep(30 * time.Second)
		w.holder("nightly", "")
	})
}

// late is a schedule of a machine whose clock is late.
type late struct {
	cron.Schedule
	by time.Duration
}

func (l late) Next(t time.Time) time.Time { return l.Schedule.Next(t.Add(-l.by)).Add(l.by) }

// A process that is two seconds late runs a job of one second again, unless there is a splay.
func TestSplayCoversLateProcess(t *testing.T) {
	for _, c := range []struct {
		splay time.Duration
		want  int32
	}{{0, 10}, {5 * time.Second, 5}} {
		t.Run(c.splay.String(), func(t *testing.T) {
			bubble(t, func(w *world) {
				count := &tally{t: t}
				time.Sleep(10 * time.Second) // a bubble begins at a full minute
				for i, id := range []string{"a", "b"} {
					k, _ := w.keeper(id)
					minutely, err := cron.ParseStandard("* * * * *")
					if err != nil {
						t.Fatal(err)
					}
					scheduler := cron.New()
					scheduler.Schedule(late{minutely, time.Duration(i) * 2 * time.Second}, cronlease.Job(w.Context(), k, "nightly",
						count.job(time.Second), cronlease.WithSplay(c.splay), cronlease.WithLogger(cron.DiscardLogger)))
					scheduler.Start()
					w.Cleanup(func() { <-scheduler.Stop().Done() })
				}
				time.Sleep(5*time.Minute + 30*time.Second)
				if n := count.runs.Load(); n != c.want {
					t.Errorf("%d runs in 5 minutes, want %d", n, c.want)
				}
				w.holder("nightly", "")
			})
		})
	}
}

func TestSplayOutlastsContextAndClose(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		ctx, cancel := context.WithCancel(w.Context())
		w.start(cronlease.Job(ctx, k, "nightly", func(context.Context, *leasekeeper.Lease) error { return nil }, cronlease.WithSplay(20*time.Second)))
		time.Sleep(time.Minute + time.Second)
		cancel()
		synctest.Wait()
		w.holder("nightly", "a")
		began := time.Now()
		if err := k.Shutdown(w.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d < 18*time.Second || d > 20*time.Second {
			t.Errorf("Close took %v", d)
		}
		w.holder("nightly", "")
	})
}

func TestContextEndsBeforeAnotherProcessRuns(t *testing.T) {
	bubble(t, func(w *world) {
		count, log := &tally{t: t}, new(lines)
		a, client := w.keeper("a")
		b, _ := w.keeper("b")
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		w.start(cronlease.Job(ctx, a, "nightly", count.job(time.Hour), cronlease.WithLogger(log)))
		time.Sleep(time.Minute + time.Second)
		client.Inject(memory.Fault{Kind: memory.Stall})
		w.start(cronlease.Job(ctx, b, "nightly", count.job(time.Hour), cronlease.WithLogger(cron.DiscardLogger)))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		w.holder("nightly", "b")
		if _, errs := log.all(); count.runs.Load() != 2 || len(errs) == 0 || !errors.Is(errs[0], leasekeeper.ErrLost) {
			t.Errorf("%d runs, log %v", count.runs.Load(), errs)
		}
	})
}

// The job ignores its context: the name stays its own while cron and the keeper end.
func TestNameIsKeptWhileJobRuns(t *testing.T) {
	jobs := map[string]func(ctx context.Context, k *leasekeeper.Keeper, do func()) cron.Job{
		"Job": func(ctx context.Context, k *leasekeeper.Keeper, do func()) cron.Job {
			return cronlease.Job(ctx, k, "nightly", func(context.Context, *leasekeeper.Lease) error { do(); return nil })
		},
		"Wrapper": func(ctx context.Context, k *leasekeeper.Keeper, do func()) cron.Job {
			return cron.NewChain(cronlease.Wrapper(ctx, k, "nightly")).Then(cron.FuncJob(do))
		},
	}
	for name, job := range jobs {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, _ := w.keeper("a")
				ctx, cancel := context.WithCancel(w.Context())
				returned := false
				c := w.start(job(ctx, k, func() {
					time.Sleep(5 * time.Minute)
					w.holder("nightly", "a")
					returned = true
				}))
				time.Sleep(time.Minute + time.Second)
				stopped := c.Stop()
				cancel()
				if err := k.Shutdown(w.Context()); err != nil || !returned {
					t.Errorf("Close: %v, and the job has returned: %v", err, returned)
				}
				<-stopped.Done()
				w.holder("nightly", "")
			})
		})
	}
}

// The job has lost its lease and still runs: its own process starts it no second time.
func TestRunThatLostItsLeaseIsNotOvertakenInItsProcess(t *testing.T) {
	bubble(t, func(w *world) {
		count, log := &tally{t: t}, new(lines)
		k, _ := w.keeper("a")
		w.start(cron.NewChain(cronlease.Wrapper(w.Context(), k, "nightly", cronlease.WithLogger(log))).Then(cron.FuncJob(func() {
			_ = count.during(func() error { time.Sleep(125 * time.Second); return nil })
		})))
		time.Sleep(time.Minute + time.Second)
		w.store.Delete("nightly")
		time.Sleep(2*time.Minute + 10*time.Second) // two ticks are skipped, and the job returns
		synctest.Wait()
		infos, errs := log.all()
		if count.runs.Load() != 1 || len(infos) != 2 || len(errs) != 1 || !errors.Is(errs[0], leasekeeper.ErrLost) {
			t.Errorf("%d runs, log %q, %v", count.runs.Load(), infos, errs)
		}
	})
}

func TestErrorsAreLogged(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		b, _ := w.keeper("b")
		lost, stop := context.WithCancel(w.Context())
		log := new(lines)
		cronlease.Job(lost, b, "nightly", func(ctx context.Context, _ *leasekeeper.Lease) error {
			stop()
			w.store.Delete("nightly")
			time.Sleep(ttl)
			return ctx.Err()
		}, cronlease.WithLogger(log)).Run()
		if infos, errs := log.all(); len(infos) != 0 || len(errs) != 1 || !errors.Is(errs[0], leasekeeper.ErrLost) {
			t.Errorf("log %q, %v of a job that was stopped and lost its lease", infos, errs)
		}
		fail := func(context.Context, *leasekeeper.Lease) error { return errJob }
		ctx, cancel := context.WithCancel(w.Context())
		for _, c := range []struct {
			name string
			fn   leasekeeper.Func
			want error
			o    []cronlease.Option
		}{
			{"nightly", fail, errJob, nil},
			{"no//name", fail, leasekeeper.ErrInvalid, nil},
			{"nightly", fail, leasekeeper.ErrInvalid, []cronlease.Option{cronlease.WithLease(leasekeeper.WithTTL(-1))}},
			{"nightly", func(context.Context, *leasekeeper.Lease) error { cancel(); return context.Canceled }, nil, nil},
			{"nightly", fail, nil, nil}, // ctx has ended
		} {
			log := new(lines)
			cronlease.Job(ctx, k, c.name, c.fn, append(c.o, cronlease.WithLogger(log))...).Run()
			infos, errs := log.all()
			if c.want == nil && (len(infos) != 1 || len(errs) != 0) || c.want != nil && (len(infos) != 0 || len(errs) != 1 || !errors.Is(errs[0], c.want)) {
				t.Errorf("log %q, %v, want %v", infos, errs, c.want)
			}
		}
	})
}

func TestPanicReleasesNameAndGoesOn(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		log := new(lines)
		recovered := cron.NewChain(cron.Recover(log), cronlease.Wrapper(w.Context(), k, "nightly"))
		w.start(recovered.Then(cron.FuncJob(func() { panic(errJob) })))
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if _, errs := log.all(); len(errs) != 2 || errs[0] != errJob {
			t.Errorf("log %v", errs)
		}
		w.holder("nightly", "")
	})
}

// The answer to a claim is lost. The claim is resolved, and the job runs at most once.
func TestLostAnswerToClaimStartsJobAtMostOnce(t *testing.T) {
	bubble(t, func(w *world) {
		count := &tally{t: t}
		a, client := w.keeper("a")
		b, _ := w.keeper("b")
		client.Inject(memory.Fault{Op: memory.Claim, Kind: memory.LoseAnswer, Times: 1})
		for _, k := range []*leasekeeper.Keeper{a, b} {
			w.start(cronlease.Job(w.Context(), k, "nightly", count.job(time.Second), cronlease.WithLogger(cron.DiscardLogger)))
		}
		time.Sleep(90 * time.Second)
		if n := count.runs.Load(); n > 1 {
			t.Errorf("%d runs of one tick", n)
		}
		time.Sleep(time.Minute)
		if n := count.runs.Load(); n < 1 {
			t.Error("no run in two minutes")
		}
		w.holder("nightly", "")
	})
}

// On a real store and in real time, runs of several processes never overlap.
func TestRunsNeverOverlapOnSQLite(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "leases.db")
	count := &tally{t: t}
	enough := make(chan struct{})
	once := sync.OnceFunc(func() { close(enough) })
	for range 3 {
		k, err := leasekeeper.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		c := cron.New()
		c.Schedule(every(10*time.Millisecond), cronlease.Job(context.Background(), k, "often", func(context.Context, *leasekeeper.Lease) error {
			return count.during(func() error {
				if count.runs.Load() >= 10 {
					once()
				}
				return nil
			})
		}, cronlease.WithLogger(cron.DiscardLogger)))
		c.Start()
		t.Cleanup(func() {
			<-c.Stop().Done()
			if err := k.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	<-enough
}

// every is a schedule finer than cron's own.
type every time.Duration

func (e every) Next(t time.Time) time.Time { return t.Add(time.Duration(e)) }
