//go:build unix

package asynqlease_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	asynqlease "github.com/leasekeeper/leasekeeper/contrib/asynq"
)

// fakes makes schedulers that do nothing, and whose Shutdown takes d.
func (w *world) fakes(id string, d time.Duration) asynqlease.NewScheduler {
	return func(asynq.RedisConnOpt) (asynqlease.Scheduler, error) {
		return observed{fake{func() error { return nil }, func() { time.Sleep(d) }}, w, id}, nil
	}
}

func TestNameIsReleasedAfterShutdown(t *testing.T) {
	for _, how := range []string{"resign", "close"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(w *world) {
				a := w.campaign("a", nowhere, w.fakes("a", 5*time.Minute))
				synctest.Wait()
				b := w.campaign("b", nowhere, w.fakes("b", 0))
				time.Sleep(time.Hour)
				want := context.Canceled
				if how == "resign" {
					a.resign()
				} else {
					want = leasekeeper.ErrClosed
					go a.keeper.Shutdown(context.Background())
				}
				time.Sleep(4 * time.Minute)
				w.holder("a")
				w.is(<-a.over, want)
				synctest.Wait()
				w.holder("b")
				if events, _ := w.all(); !slices.Equal(events, []string{"a starts", "a has stopped", "b starts"}) {
					t.Errorf("events %q", events)
				}
				b.resign()
				w.is(<-b.over, context.Canceled)
				w.holder("")
			})
		})
	}
}

// The store falls silent. Shutdown, which takes nearly a quarter of the TTL, has ended before the next scheduler starts,
// and the process stands for election again.
func TestSchedulerHasStoppedBeforeLeaseIsLost(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.campaign("a", nowhere, w.fakes("a", w.ttl/4-100*time.Millisecond))
		synctest.Wait()
		b := w.campaign("b", nowhere, w.fakes("b", 0))
		time.Sleep(time.Hour)
		heal := a.client.Inject(memory.Fault{Kind: memory.Stall})
		time.Sleep(w.ttl + time.Second)
		if events, _ := w.all(); !slices.Equal(events, []string{"a starts", "a has stopped", "b starts"}) {
			t.Errorf("events %q", events)
		}
		heal()
		time.Sleep(time.Minute)
		b.resign()
		w.is(<-b.over, context.Canceled)
		time.Sleep(time.Minute)
		w.holder("a")
	})
}

func TestSchedulerRunsOnWhileRenewalsAreLate(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.campaign("a", nowhere, w.fakes("a", 0))
		synctest.Wait()
		for range 100 {
			heal := a.client.Inject(memory.Fault{Kind: memory.Stall})
			time.Sleep(w.ttl / 3)
			heal()
			time.Sleep(w.ttl)
		}
		if events, _ := w.all(); !slices.Equal(events, []string{"a starts"}) {
			t.Errorf("events %q", events)
		}
	})
}

var errStart = errors.New("no start")

func TestFailedStartEndsCampaign(t *testing.T) {
	makers := map[string]asynqlease.NewScheduler{
		"make": func(asynq.RedisConnOpt) (asynqlease.Scheduler, error) { return nil, errStart },
		"start": func(asynq.RedisConnOpt) (asynqlease.Scheduler, error) {
			return fake{start: func() error { return errStart }}, nil
		},
	}
	for how, newScheduler := range makers {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.is(<-w.campaign("a", nowhere, newScheduler).over, errStart)
				w.holder("")
			})
		})
	}
}

func TestSchedulerThatWasMadeTooLateDoesNotStart(t *testing.T) {
	bubble(t, func(w *world) {
		made := 0
		clients := make(chan *memory.Backend, 1)
		a := w.campaign("a", nowhere, func(asynq.RedisConnOpt) (asynqlease.Scheduler, error) {
			made++
			if made == 1 {
				heal := (<-clients).Inject(memory.Fault{Kind: memory.Stall})
				time.Sleep(w.ttl - w.ttl/8)
				heal()
			}
			w.happens("made")
			return observed{fake{func() error { return nil }, func() {}}, w, "a"}, nil
		})
		clients <- a.client
		time.Sleep(time.Minute)
		if events, _ := w.all(); !slices.Equal(events, []string{"made", "made", "a starts"}) {
			t.Errorf("events %q", events)
		}
	})
}

func TestCampaignNeedsRedisAndScheduler(t *testing.T) {
	bubble(t, func(w *world) {
		w.is(<-w.campaign("a", nil, w.fakes("a", 0)).over, leasekeeper.ErrInvalid)
		w.is(<-w.campaign("b", nowhere, nil).over, leasekeeper.ErrInvalid)
	})
}
