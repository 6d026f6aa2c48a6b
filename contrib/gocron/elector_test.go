package gocronlease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	gocronlease "github.com/leasekeeper/leasekeeper/contrib/gocron"
)

// candidate is a process that takes part in an election.
type candidate struct {
	*process
	elector *gocronlease.Elector
	resign  context.CancelFunc
	over    chan error // what Campaign returned
}

// candidate starts a campaign, and a scheduler whose jobs are under the Elector. The test's end resigns.
func (w *world) candidate(id string, fn leasekeeper.Func, o ...gocron.JobOption) *candidate {
	w.Helper()
	p := w.process(id)
	ctx, resign := context.WithCancel(w.Context())
	c := &candidate{p, gocronlease.NewElector(p.keeper, "scheduler"), resign, make(chan error, 1)}
	w.Cleanup(resign)
	go func() { c.over <- c.elector.Campaign(ctx) }()
	w.start(p, everyMinute(c.elector.Task(fn), o...), gocron.WithDistributedElector(c.elector))
	synctest.Wait()
	return c
}

func TestOnlyLeaderRunsJobs(t *testing.T) {
	bubble(t, func(w *world) {
		count := newTally(t)
		a, b := w.candidate("a", leaderJob(count, "a", time.Second)), w.candidate("b", leaderJob(count, "b", time.Second))
		w.is(a.elector.IsLeader(w.Context()), nil)
		w.is(b.elector.IsLeader(w.Context()), gocronlease.ErrNotLeader)
		time.Sleep(5*time.Minute + 30*time.Second)
		if count.of("a") != 5 || count.of("b") != 0 {
			t.Errorf("runs: %v", count.runs)
		}
		a.resign()
		w.is(<-a.over, context.Canceled)
		synctest.Wait()
		w.is(a.elector.IsLeader(w.Context()), gocronlease.ErrNotLeader)
		w.is(b.elector.IsLeader(w.Context()), nil)
		time.Sleep(5 * time.Minute)
		if count.of("a") != 5 || count.of("b") != 5 {
			t.Errorf("runs: %v", count.runs)
		}
	})
}

// leaderJob is a job whose runs may have the same token.
func leaderJob(c *tally, id string, d time.Duration) leasekeeper.Func {
	return func(ctx context.Context, l *leasekeeper.Lease) error {
		c.begin(id, 0)
		defer c.end()
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestLeadersContextEndsBeforeAnotherLeads(t *testing.T) {
	bubble(t, func(w *world) {
		count, failed := newTally(t), make(chan error, 1)
		a := w.candidate("a", leaderJob(count, "a", time.Hour), gocron.WithEventListeners(
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err })), gocron.WithSingletonMode(gocron.LimitModeReschedule))
		b := w.candidate("b", leaderJob(count, "b", time.Hour), gocron.WithSingletonMode(gocron.LimitModeReschedule))
		time.Sleep(time.Minute + time.Second)
		heal := a.client.Inject(memory.Fault{Kind: memory.Stall})
		w.is(<-failed, leasekeeper.ErrLost)
		w.is(a.elector.IsLeader(w.Context()), gocronlease.ErrNotLeader)
		time.Sleep(2 * time.Minute)
		w.is(b.elector.IsLeader(w.Context()), nil)
		if count.of("a") != 1 || count.of("b") != 1 {
			t.Errorf("runs: %v", count.runs)
		}
		heal()
		b.resign()
		<-b.over
		time.Sleep(ttl)
		w.is(a.elector.IsLeader(w.Context()), nil) // it has stood for election again
	})
}

func TestLeaderResignsWhenItsFunctionsHaveReturned(t *testing.T) {
	bubble(t, func(w *world) {
		returned := false
		a := w.candidate("a", func(ctx context.Context, _ *leasekeeper.Lease) error {
			<-ctx.Done()
			w.is(context.Cause(ctx), context.Canceled)
			time.Sleep(5 * time.Minute)
			w.holder("scheduler", "a")
			returned = true
			return nil
		})
		time.Sleep(time.Minute + time.Second)
		a.resign()
		synctest.Wait()
		w.is(a.elector.IsLeader(w.Context()), gocronlease.ErrNotLeader) // no further job begins
		if <-a.over; !returned {
			t.Error("Campaign returned before the function")
		}
		w.holder("scheduler", "")
	})
}

// IsLeader reads the clocks, so it needs no timer to run first.
func TestLeaderThatWasPausedDoesNotLead(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a", func(context.Context, *leasekeeper.Lease) error { return nil })
		a.client.Inject(memory.Fault{Kind: memory.Stall})
		for range 50 {
			w.clock.Advance(ttl)
			w.is(a.elector.IsLeader(w.Context()), gocronlease.ErrNotLeader)
		}
	})
}

func TestTaskOfElectorHasContextOfItsJob(t *testing.T) {
	type key struct{}
	bubble(t, func(w *world) {
		ended := make(chan error, 1)
		parent, cancel := context.WithCancelCause(context.WithValue(w.Context(), key{}, "v"))
		defer cancel(nil)
		w.candidate("a", func(ctx context.Context, l *leasekeeper.Lease) error {
			if ctx.Value(key{}) != "v" || l.Check() != nil {
				t.Errorf("value %v, lease %v", ctx.Value(key{}), l.Check())
			}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			w.is(l.Check(), nil)
			return nil
		}, gocron.WithContext(parent))
		time.Sleep(time.Minute + time.Second)
		cancel(context.DeadlineExceeded)
		w.is(<-ended, context.DeadlineExceeded)
	})
}

func TestTaskOfElectorDoesNotRunWithoutLeader(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.process("a")
		e := gocronlease.NewElector(p.keeper, "scheduler")
		failed := make(chan error, 1)
		// gocron does not know the Elector, so only the task checks.
		w.start(p, everyMinute(e.Task(func(context.Context, *leasekeeper.Lease) error {
			t.Error("it runs")
			return nil
		}), gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err }))))
		w.is(<-failed, gocronlease.ErrNotLeader)
	})
}

func TestCampaignRefusesSecondCampaignAndWrongOptions(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.candidate("a", func(context.Context, *leasekeeper.Lease) error { return nil })
		w.is(c.elector.Campaign(w.Context()), leasekeeper.ErrInvalid)
		w.is(c.elector.IsLeader(w.Context()), nil)
		wrong := gocronlease.NewElector(c.keeper, "other", leasekeeper.WithTTL(-1))
		for range 2 {
			w.is(wrong.Campaign(w.Context()), leasekeeper.ErrInvalid)
		}
	})
}
