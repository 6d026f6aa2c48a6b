package clientgolease_test

import (
	"context"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	clientgolease "github.com/leasekeeper/leasekeeper/contrib/client-go"
	"github.com/leasekeeper/leasekeeper/internal/test/keepertest"
)

// name is the name of the leadership in all tests.
const name = "leaders/web"

// The durations that follow from Options{}.
const (
	lease = 15 * time.Second
	renew = 7 * time.Second
	retry = 2 * time.Second
)

func TestMain(m *testing.M) {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetOutput(io.Discard) // electors log each attempt that fails
	os.Exit(runTests(m))
}

// runTests runs the tests. move_test.go replaces it to stop the database servers after them.
var runTests = (*testing.M).Run

// world is a store, and the leaders that it has seen.
type world struct {
	*testing.T
	clock *memory.Clock // nil outside a bubble
	store *memory.Store // nil outside a bubble

	mu    sync.Mutex
	log   []entry
	works map[*candidate]context.Context // of the work that each began last
}

// entry is something that happened in an election.
type entry struct {
	who   string
	what  string // leads, ended, returned, stopped, released
	at    time.Time
	token leasekeeper.Token
	err   error // why the context of the work ended
}

// bubble runs a test in a bubble of synctest, where time is virtual. Every goroutine that it leaves behind fails it.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := memory.NewRunningClock()
		test(&world{T: t, clock: c, store: memory.New(memory.WithClock(c)), works: map[*candidate]context.Context{}})
	})
}

func (w *world) keeper(b backend.Backend) *leasekeeper.Keeper {
	w.Helper()
	return keepertest.New(w, time.Hour, b)
}

// note appends to the log.
func (w *world) note(c *candidate, what string, token leasekeeper.Token, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, entry{who: c.id, what: what, at: time.Now(), token: token, err: err})
}

// find returns the n-th entry, from 0, of a kind.
func (w *world) find(who, what string, n int) entry {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.log {
		if e.who == who && e.what == what {
			if n == 0 {
				return e
			}
			n--
		}
	}
	w.Fatalf("%s never %s: %v", who, what, w.log)
	return entry{}
}

// leaders returns who led, in order.
func (w *world) leaders() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, e := range w.log {
		if e.what == "leads" {
			all = append(all, e.who)
		}
	}
	return strings.Join(all, " ")
}

// within fails unless d is from least to most.
func (w *world) within(what string, d, least, most time.Duration) {
	w.Helper()
	if d < least || d > most {
		w.Errorf("%s took %v, and not from %v to %v", what, d, least, most)
	}
}

// candidate is one process with client-go's elector.
type candidate struct {
	w       *world
	id      string
	client  *memory.Backend
	keeper  *leasekeeper.Keeper
	lock    *clientgolease.Lock
	config  leaderelection.LeaderElectionConfig
	work    func(ctx context.Context) // nil: until ctx ends
	stopped func()                    // what OnStoppedLeading does besides
	seen    []string                  // the leaders that OnNewLeader reported
	stop    context.CancelFunc
	over    chan struct{} // closed when RunOrDie has returned
}

func (w *world) candidate(id string) *candidate {
	w.Helper()
	b := w.store.Backend()
	c := w.candidateOn(w.keeper(b), id, clientgolease.Options{Identity: id})
	c.client = b
	return c
}

func (w *world) candidateOn(k *leasekeeper.Keeper, id string, o clientgolease.Options) *candidate {
	w.Helper()
	lock, err := clientgolease.New(k, name, o)
	if err != nil {
		w.Fatal(err)
	}
	c := &candidate{w: w, id: id, keeper: k, lock: lock}
	c.config = lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: c.lead,
		OnStoppedLeading: func() {
			w.note(c, "stopped", 0, nil)
			if c.stopped != nil {
				c.stopped()
			}
			w.note(c, "released", 0, nil)
		},
		OnNewLeader: func(identity string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			c.seen = append(c.seen, identity)
		},
	})
	return c
}

// lead is OnStartedLeading. It fails the test if another candidate's work has a context that has not ended.
func (c *candidate) lead(ctx context.Context) {
	held := c.lock.Lease()
	c.w.mu.Lock()
	for other, work := range c.w.works {
		if work.Err() == nil {
			c.w.Errorf("%s leads while %s does", c.id, other.id)
		}
	}
	c.w.works[c] = ctx
	c.w.mu.Unlock()
	c.w.note(c, "leads", held.Token(), held.Check())
	go func() {
		<-ctx.Done()
		c.w.note(c, "ended", held.Token(), context.Cause(ctx))
	}()
	if c.work == nil {
		<-ctx.Done()
	} else {
		c.work(ctx)
	}
	c.w.note(c, "returned", held.Token(), nil)
}

// start begins to campaign with client-go's elector, which runs once.
func (c *candidate) start() {
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.over = stop, make(chan struct{})
	over := c.over
	go func() {
		defer close(over)
		leaderelection.RunOrDie(ctx, c.config)
	}()
	c.w.Cleanup(func() {
		stop()
		<-over
	})
}

// reported returns what OnNewLeader was called with.
func (c *candidate) reported() []string {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return slices.Clone(c.seen)
}
