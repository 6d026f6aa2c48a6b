//go:build unix

package asynqlease_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	asynqlease "github.com/leasekeeper/leasekeeper/contrib/asynq"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// server returns an empty database of a real Redis.
func server(t *testing.T) asynq.RedisClientOpt {
	t.Helper()
	socket, n := databases.Redis(t).Database(t)
	return asynq.RedisClientOpt{Network: "unix", Addr: socket, DB: n}
}

// options make each attempt to enqueue an event.
func (w *world) options(id string) *asynq.SchedulerOpts {
	return &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
		switch {
		case err == nil:
			w.happens(id + " enqueues")
		case strings.Contains(err.Error(), "not sent to Redis"): // asynq wraps no error
			w.happens(id + " is refused")
		default:
			w.Errorf("%s: %v", id, err)
		}
	}}
}

// ticks makes real schedulers, which enqueue a task each second.
func (w *world) ticks(id string) asynqlease.NewScheduler {
	return func(r asynq.RedisConnOpt) (asynqlease.Scheduler, error) {
		s := asynq.NewScheduler(r, w.options(id))
		_, err := s.Register("@every 1s", asynq.NewTask("tick", []byte(id)))
		return observed{s, w, id}, err
	}
}

// pending returns how many tasks a process has enqueued, as Redis counts them.
func pending(t *testing.T, r asynq.RedisConnOpt, id string) (n int) {
	t.Helper()
	inspector := asynq.NewInspector(r)
	defer inspector.Close()
	tasks, err := inspector.ListPendingTasks("default", asynq.PageSize(1000))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if string(task.Payload) == id {
			n++
		}
	}
	return n
}

func TestOneSchedulerEnqueuesAtATime(t *testing.T) {
	r, w := server(t), inRealTime(t)
	all := map[string]*process{}
	for _, id := range []string{"a", "b", "c"} {
		all[id] = w.campaign(id, r, w.ticks(id))
	}
	events := w.await(func(events []string) bool { return len(events) == 3 })
	first := events[0][:1]
	all[first].resign()
	w.is(<-all[first].over, context.Canceled)
	events = w.await(func(events []string) bool {
		return len(events) > 2 && !strings.HasPrefix(events[len(events)-1], first) && strings.HasSuffix(events[len(events)-1], "enqueues")
	})
	stopped := slices.Index(events, first+" has stopped")
	second := events[stopped+1][:1]
	if n := pending(t, r, first); n < 2 || n != count(events, first+" enqueues") {
		t.Errorf("%d tasks of %s, events %q", n, first, events)
	}
	for i, e := range events {
		if owner := e[:1]; i <= stopped && owner != first || i > stopped && owner != second {
			t.Errorf("two schedulers at once: %q", events)
		}
	}
}

func TestRealSchedulerHasStoppedBeforeLeaseIsLost(t *testing.T) {
	r, w := server(t), inRealTime(t)
	a := w.campaign("a", r, w.ticks("a"))
	w.await(func(events []string) bool { return count(events, "a enqueues") > 0 })
	w.campaign("b", r, w.ticks("b"))
	defer a.client.Inject(memory.Fault{Kind: memory.Stall})()
	events := w.await(func(events []string) bool { return count(events, "b enqueues") > 0 })
	stopped, started := slices.Index(events, "a has stopped"), slices.Index(events, "b starts")
	if stopped < 0 || stopped > started || slices.Contains(events[stopped:], "a enqueues") {
		t.Errorf("events %q", events)
	}
}

// provider says what a PeriodicTaskManager schedules. Only its first answer does not wait for go.
type provider struct {
	id    string
	asked int
	goOn  chan struct{}
}

func (p *provider) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	if p.asked++; p.asked > 1 {
		<-p.goOn
	}
	return []*asynq.PeriodicTaskConfig{{Cronspec: "@every 1s", Task: asynq.NewTask("tick", []byte(p.id))}}, nil
}

// The manager's Shutdown hangs, because its provider does, and its cron goes on. Nothing of it reaches Redis once the
// lease is lost.
func TestManagerWhoseShutdownHangsEnqueuesNothing(t *testing.T) {
	r, w := server(t), inRealTime(t)
	p := &provider{id: "a", goOn: make(chan struct{})}
	a := w.campaign("a", r, func(r asynq.RedisConnOpt) (asynqlease.Scheduler, error) {
		m, err := asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{
			RedisConnOpt: r, PeriodicTaskConfigProvider: p, SchedulerOpts: w.options("a"), SyncInterval: 1,
		})
		return observed{m, w, "a"}, err
	})
	w.await(func(events []string) bool { return count(events, "a enqueues") > 0 })
	w.campaign("b", r, w.ticks("b"))
	heal := a.client.Inject(memory.Fault{Kind: memory.Stall})
	events := w.await(func(events []string) bool {
		started := slices.Index(events, "b starts")
		return started >= 0 && count(events[started:], "a is refused") > 1 && count(events, "b enqueues") > 0
	})
	if slices.Contains(events, "a has stopped") {
		t.Error("Shutdown did not hang")
	}
	if started := slices.Index(events, "b starts"); slices.Contains(events[started:], "a enqueues") {
		t.Errorf("events %q", events)
	}
	if n := pending(t, r, "a"); n != count(events, "a enqueues") {
		t.Errorf("%d tasks of a, events %q", n, events)
	}
	heal()
	close(p.goOn)
	w.await(func(events []string) bool { return count(events, "a has stopped") == 1 })
}

// Only what cannot enqueue a task passes after the lease, alone or in a pipeline, on an old connection or a new one.
func TestGateRefusesCommandsAfterLease(t *testing.T) {
	r, w := server(t), inRealTime(t)
	ctx := context.Background()
	a := w.campaign("a", r, func(r asynq.RedisConnOpt) (asynqlease.Scheduler, error) {
		old := r.MakeRedisClient().(redis.UniversalClient)
		two := func(client redis.UniversalClient) error {
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error { p.Del(ctx, "x"); p.Set(ctx, "x", 1, 0); return nil })
			return err
		}
		return fake{func() error {
			w.is(old.Set(ctx, "x", 1, 0).Err(), nil)
			w.is(two(old), nil)
			w.happens("started")
			return nil
		}, func() {
			for _, client := range []redis.UniversalClient{old, r.MakeRedisClient().(redis.UniversalClient)} {
				w.is(client.Set(ctx, "x", 1, 0).Err(), leasekeeper.ErrLost)
				w.is(two(client), leasekeeper.ErrLost)
				w.is(client.Del(ctx, "x").Err(), nil)
			}
			w.happens("stopped")
		}}, nil
	})
	w.await(func(events []string) bool { return count(events, "started") == 1 })
	w.store.Delete(name)
	w.await(func(events []string) bool { return count(events, "stopped") == 1 })
	a.resign()
}

func TestConnectionsAreClosedWithTenure(t *testing.T) {
	w := inRealTime(t)
	var client redis.UniversalClient
	w.is(<-w.campaign("a", nowhere, func(r asynq.RedisConnOpt) (asynqlease.Scheduler, error) {
		client = r.MakeRedisClient().(redis.UniversalClient)
		return nil, errStart
	}).over, errStart)
	w.is(client.Del(t.Context(), "x").Err(), redis.ErrClosed)
}
