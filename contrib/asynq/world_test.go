//go:build unix

package asynqlease_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	asynqlease "github.com/leasekeeper/leasekeeper/contrib/asynq"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

func TestMain(m *testing.M) {
	code := databases.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

const name = "app/scheduler"

// world is a store for several processes, and what happens in them.
type world struct {
	*testing.T
	store *memory.Store
	ttl   time.Duration

	mu     sync.Mutex
	events []string
	news   chan struct{} // closed at the next event
}

// inRealTime returns a world that runs in real time.
func inRealTime(t *testing.T) *world {
	return &world{T: t, store: memory.New(), ttl: 2 * time.Second, news: make(chan struct{})}
}

// bubble runs a test in a bubble of synctest, where time passes only while all goroutines wait.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memory.New(memory.WithClock(memory.NewRunningClock())), ttl: 16 * time.Second, news: make(chan struct{})}
		test(w)
	})
}

// happens records an event.
func (w *world) happens(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event)
	close(w.news)
	w.news = make(chan struct{})
}

// all returns the events so far, and a channel that is closed at the next one.
func (w *world) all() ([]string, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events), w.news
}

// await returns the events as soon as enough is true for them.
func (w *world) await(enough func(events []string) bool) []string {
	for {
		events, news := w.all()
		if enough(events) {
			return events
		}
		<-news
	}
}

// count returns how often an event happened.
func count(events []string, event string) (n int) {
	for _, e := range events {
		if e == event {
			n++
		}
	}
	return n
}

// process is a process that campaigns.
type process struct {
	client *memory.Backend
	keeper *leasekeeper.Keeper
	resign context.CancelFunc
	over   chan error // what Campaign returned
}

// campaign starts a process that campaigns. The test's end resigns and closes its keeper.
func (w *world) campaign(id string, r asynq.RedisConnOpt, newScheduler asynqlease.NewScheduler) *process {
	w.Helper()
	client := w.store.Backend()
	k, err := leasekeeper.New(client, leasekeeper.WithHolder(id), leasekeeper.WithTTL(w.ttl))
	if err != nil {
		w.Fatal(err)
	}
	ctx, resign := context.WithCancel(w.Context())
	p := &process{client, k, resign, make(chan error, 1)}
	go func() { p.over <- asynqlease.Campaign(ctx, k, name, r, newScheduler) }()
	w.Cleanup(func() {
		resign()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := k.Shutdown(ctx); err != nil && !errors.Is(err, leasekeeper.ErrUnknownOutcome) {
			w.Errorf("Close: %v", err)
		}
	})
	return p
}

// holder fails unless the name is held by id; "" means that nobody holds it.
func (w *world) holder(id string) {
	w.Helper()
	i, err := w.store.Backend().Get(context.Background(), name)
	if err != nil || i.Held != (id != "") || i.Held && i.Holder.ID != id {
		w.Errorf("the holder is not %q: %+v, %v", id, i, err)
	}
}

// is fails unless err is of a kind.
func (w *world) is(err, kind error) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Errorf("%v, and not %v", err, kind)
	}
}

// observed is a scheduler whose start and end are events.
type observed struct {
	asynqlease.Scheduler
	w  *world
	id string
}

func (o observed) Start() error {
	o.w.happens(o.id + " starts")
	return o.Scheduler.Start()
}

func (o observed) Shutdown() {
	o.Scheduler.Shutdown()
	o.w.happens(o.id + " has stopped")
}

// fake is a scheduler of functions.
type fake struct {
	start    func() error
	shutdown func()
}

func (f fake) Start() error { return f.start() }
func (f fake) Shutdown()    { f.shutdown() }

// nowhere is a Redis that no scheduler connects to.
var nowhere = asynq.RedisClientOpt{Addr: "127.0.0.1:1"}
