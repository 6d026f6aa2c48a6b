package gocronlease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/internal/test/keepertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 15 * time.Second

// world is a store in a bubble of synctest, where time passes only while all goroutines wait.
type world struct {
	*testing.T
	clock *memory.Clock
	store *memory.Store
}

// bubble runs a test in a bubble. Every goroutine that the test leaves behind fails it.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := memory.NewRunningClock()
		test(&world{t, c, memory.New(memory.WithClock(c))})
	})
}

// process is a process with a scheduler.
type process struct {
	keeper    *leasekeeper.Keeper
	client    *memory.Backend
	scheduler gocron.Scheduler // set by start
}

// process returns a process without a scheduler. The test's end closes its keeper.
func (w *world) process(id string) *process {
	w.Helper()
	client := w.store.Backend()
	k := keepertest.New(w, time.Hour, client, leasekeeper.WithHolder(id), leasekeeper.WithTTL(ttl))
	return &process{keeper: k, client: client}
}

// start starts a real gocron scheduler in the process, which the test's end shuts down. Its first run of a job of newJob
// is a minute later.
func (w *world) start(p *process, newJob func(s gocron.Scheduler) error, o ...gocron.SchedulerOption) {
	w.Helper()
	s, err := gocron.NewScheduler(append([]gocron.SchedulerOption{gocron.WithStopTimeout(time.Minute)}, o...)...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = s.Shutdown() })
	if err := newJob(s); err != nil {
		w.Fatal(err)
	}
	s.Start()
	p.scheduler = s
}

// everyMinute is a job that runs once a minute.
func everyMinute(task gocron.Task, o ...gocron.JobOption) func(gocron.Scheduler) error {
	return func(s gocron.Scheduler) error {
		_, err := s.NewJob(gocron.DurationJob(time.Minute), task, append([]gocron.JobOption{gocron.WithName("nightly")}, o...)...)
		return err
	}
}

// holder fails unless the name is held by id; "" means that nobody holds it.
func (w *world) holder(name, id string) {
	w.Helper()
	i, err := w.store.Backend().Get(w.Context(), name)
	if err != nil || i.Held != (id != "") || i.Held && i.Holder.ID != id {
		w.Errorf("the holder of %s is not %q: %+v, %v", name, id, i, err)
	}
}

// is fails unless err is of a kind.
func (w *world) is(err, kind error) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Errorf("%v, and not %v", err, kind)
	}
}

// tally counts runs by process, and fails the test if two overlap.
type tally struct {
	t       testing.TB
	mu      sync.Mutex
	running string
	last    leasekeeper.Token
	began   time.Time // of the newest run
	runs    map[string]int
}

func newTally(t testing.TB) *tally { return &tally{t: t, runs: make(map[string]int)} }

// begin counts a run that a process begins under a token; 0 is not compared.
func (c *tally) begin(id string, token leasekeeper.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != "" {
		c.t.Errorf("%s runs the job while %s does", id, c.running)
	}
	if token != 0 && token <= c.last {
		c.t.Errorf("token %d after %d", token, c.last)
	}
	c.running, c.last, c.began = id, token, time.Now()
	c.runs[id]++
}

// end says that the run has returned.
func (c *tally) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = ""
}

// of returns the runs of a process.
func (c *tally) of(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[id]
}

// newest returns when the newest run began.
func (c *tally) newest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began
}

// all returns the runs of all processes.
func (c *tally) all() (sum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.runs {
		sum += n
	}
	return sum
}

// job is a function that takes d and counts its runs.
func (c *tally) job(id string, d time.Duration) leasekeeper.Func {
	return func(ctx context.Context, l *leasekeeper.Lease) error {
		c.begin(id, l.Token())
		defer c.end()
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
