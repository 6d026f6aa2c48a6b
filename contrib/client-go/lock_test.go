package clientgolease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasekeeper/leasekeeper"
	clientgolease "github.com/leasekeeper/leasekeeper/contrib/client-go"
)

func options(id string) clientgolease.Options { return clientgolease.Options{Identity: id} }

func TestWrongArgumentsAreRefused(t *testing.T) {
	bubble(t, func(w *world) {
		k := w.keeper(w.store.Backend())
		for _, o := range []clientgolease.Options{
			{LeaseDuration: -1},
			{RetryPeriod: -1},
			{LeaseDuration: 4 * time.Second, RetryPeriod: time.Second + 1},
			{Identity: strings.Repeat("x", 1<<20)},
		} {
			if _, err := clientgolease.New(k, name, o); !errors.Is(err, leasekeeper.ErrInvalid) {
				w.Errorf("%+v: %v", o, err)
			}
		}
		if _, err := clientgolease.New(k, "", clientgolease.Options{}); !errors.Is(err, leasekeeper.ErrInvalid) {
			w.Error(err)
		}
	})
}

func TestEveryRetryPeriodThatIsAllowedMakesAnElector(t *testing.T) {
	bubble(t, func(w *world) {
		k := w.keeper(w.store.Backend())
		callbacks := leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}}
		for _, o := range []clientgolease.Options{
			{},
			{LeaseDuration: 100 * time.Millisecond},
			{LeaseDuration: time.Hour},
			{LeaseDuration: 8 * time.Second, RetryPeriod: 2 * time.Second},
			{RetryPeriod: time.Millisecond},
		} {
			lock, err := clientgolease.New(k, name, o)
			if err != nil {
				w.Fatal(err)
			}
			if _, err := leaderelection.NewLeaderElector(lock.Config(callbacks)); err != nil {
				w.Errorf("%+v: %v", o, err)
			}
		}
	})
}

func TestMissingCallbacksAreRefusedByTheElector(t *testing.T) {
	bubble(t, func(w *world) {
		lock, err := clientgolease.New(w.keeper(w.store.Backend()), name, clientgolease.Options{})
		if err != nil {
			w.Fatal(err)
		}
		if _, err := leaderelection.NewLeaderElector(lock.Config(leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}})); err == nil {
			w.Error("an elector without OnStartedLeading")
		}
		if _, err := leaderelection.NewLeaderElector(lock.Config(leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}})); err == nil {
			w.Error("an elector without OnStoppedLeading")
		}
	})
}

func TestElectorWithoutTheLocksConfigClaimsNothing(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.store.Backend()
		lock, err := clientgolease.New(w.keeper(b), name, options("a"))
		if err != nil {
			w.Fatal(err)
		}
		if _, _, err := lock.Get(w.Context()); !errors.Is(err, clientgolease.ErrUnguarded) {
			w.Error(err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { w.Error("it leads") }, OnStoppedLeading: func() {}},
		})
		if i, err := b.Get(w.Context(), name); err != nil || i.Held {
			w.Errorf("held by %v, %v", i.Holder, err)
		}
	})
}

// The lock cannot see the work of an elector whose callbacks were replaced after Config. So it does not let it lead on, and
// does not release the name.
func TestElectorWithOtherCallbacksDoesNotLeadOn(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.store.Backend()
		k, err := leasekeeper.New(b)
		if err != nil {
			w.Fatal(err)
		}
		lock, err := clientgolease.New(k, name, options("a"))
		if err != nil {
			w.Fatal(err)
		}
		config := lock.Config(leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { w.Error("it leads") }, OnStoppedLeading: func() {}})
		guarded := config.Callbacks
		config.Callbacks = leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}}
		began := time.Now()
		leaderelection.RunOrDie(w.Context(), config)
		w.within("the elector", time.Since(began), renew, 3*renew)
		if i, err := b.Get(w.Context(), name); err != nil || !i.Held {
			w.Errorf("not held, %v", err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := k.Shutdown(ctx); err == nil {
			w.Error("Close released the name")
		}
		guarded.OnStartedLeading(ctx) // lets the test end
		guarded.OnStoppedLeading()
	})
}

func TestUpdateWithoutAGrantIsRefused(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		for _, identity := range []string{"a", "b", ""} {
			record := resourcelock.LeaderElectionRecord{HolderIdentity: identity}
			if err := a.lock.Update(w.Context(), record); !errors.Is(err, leasekeeper.ErrLost) {
				w.Errorf("Update by %q: %v", identity, err)
			}
			if err := a.lock.Create(w.Context(), record); !errors.Is(err, leasekeeper.ErrLost) {
				w.Errorf("Create by %q: %v", identity, err)
			}
		}
		if i, err := a.client.Get(w.Context(), name); err != nil || i.Held {
			w.Errorf("held by %v, %v", i.Holder, err)
		}
	})
}

func TestCandidateThatStopsLeavesTheQueue(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("a"), w.candidate("b")
		a.start()
		synctest.Wait()
		b.start()
		queued()
		if i, err := a.client.Get(w.Context(), name); err != nil || i.Waiting != 1 {
			w.Errorf("%d wait, %v", i.Waiting, err)
		}
		b.stop()
		<-b.over
		synctest.Wait()
		if i, err := a.client.Get(w.Context(), name); err != nil || i.Waiting != 0 {
			w.Errorf("%d wait, %v", i.Waiting, err)
		}
	})
}

func TestRecordOfALeaderShowsItsToken(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("a"), w.candidate("b")
		a.start()
		synctest.Wait()
		for _, lock := range []*clientgolease.Lock{a.lock, b.lock} {
			record, raw, err := lock.Get(w.Context())
			if err != nil || record.HolderIdentity != "a" || record.LeaseDurationSeconds != 15 ||
				record.LeaderTransitions != int(a.lock.Lease().Token()) || !strings.Contains(string(raw), `"holderIdentity":"a"`) {
				w.Errorf("%+v %s, %v", record, raw, err)
			}
		}
		if a.lock.Identity() != "a" || a.lock.Describe() != "leasekeeper/leaders/web" {
			w.Errorf("%q %q", a.lock.Identity(), a.lock.Describe())
		}
	})
}

// A lease that its elector never took, because the elector stopped in between, is released.
func TestGrantThatTheElectorDoesNotTakeIsReleased(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		if _, _, err := a.lock.Get(w.Context()); err != nil {
			w.Fatal(err)
		}
		if i, err := a.client.Get(w.Context(), name); err != nil || !i.Held {
			w.Fatalf("not held, %v", err)
		}
		if _, _, err := a.lock.Get(w.Context()); err != nil { // vacant again, under the same lease
			w.Fatal(err)
		}
		a.config.Callbacks.OnStoppedLeading()
		synctest.Wait()
		if i, err := a.client.Get(w.Context(), name); err != nil || i.Held || i.Token != 1 {
			w.Errorf("%+v, %v", i, err)
		}
	})
}

func TestUpdateAfterALossReportsTheLoss(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		a.start()
		synctest.Wait()
		if err := a.client.Revoke(w.Context(), name, a.lock.Lease().Token(), "by hand", true); err != nil {
			w.Fatal(err)
		}
		<-a.lock.Lease().Context().Done()
		for _, identity := range []string{"a", ""} {
			if err := a.lock.Update(w.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: identity}); !errors.Is(err, leasekeeper.ErrLost) || !strings.Contains(err.Error(), "token 1") {
				w.Errorf("Update by %q: %v", identity, err)
			}
		}
		synctest.Wait()
	})
}

// The name is not released yet, but the leadership is over.
func TestUpdateAfterTheEndOfALeadershipIsRefused(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		a.work = func(context.Context) {}
		a.start()
		synctest.Wait()
		if err := a.lock.Update(w.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
			w.Fatal(err)
		}
		if err := a.lock.Lease().Check(); err != nil {
			w.Fatal(err)
		}
		if err := a.lock.Update(w.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a"}); !errors.Is(err, leasekeeper.ErrLost) {
			w.Errorf("it leads on: %v", err)
		}
	})
}

func TestReleaseThatWaitsForTheWorkIsNoUnknownOutcome(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		a.work = func(context.Context) { time.Sleep(time.Minute) }
		a.start()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		err := a.lock.Update(ctx, resourcelock.LeaderElectionRecord{})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leasekeeper.ErrUnknownOutcome) {
			w.Error(err)
		}
	})
}
