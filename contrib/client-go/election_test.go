package clientgolease_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// instant is more than anything takes that waits for no timer, in virtual time.
const instant = time.Millisecond

// queued lets candidates see the leader and then wait in its queue: they pause for up to 2.2 times RetryPeriod before.
func queued() { time.Sleep(3 * retry) }

func TestReleasedNameIsTakenAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		a, b, c := w.candidate("a"), w.candidate("b"), w.candidate("c")
		for _, one := range []*candidate{a, b, c} {
			one.start()
			queued() // in this order
		}
		a.stop()
		<-a.over
		synctest.Wait()
		w.within("the hand-over to b", w.find("b", "leads", 0).at.Sub(w.find("a", "returned", 0).at), 0, instant)
		queued()
		b.stop()
		<-b.over
		synctest.Wait()
		w.within("the hand-over to c", w.find("c", "leads", 0).at.Sub(w.find("b", "returned", 0).at), 0, instant)
		if got := w.leaders(); got != "a b c" {
			w.Errorf("leaders %q", got)
		}
		if x, y := w.find("a", "leads", 0).token, w.find("b", "leads", 0).token; y <= x {
			w.Errorf("token %d after %d", y, x)
		}
		if got := c.reported(); !slices.Equal(got, []string{"a", "b", "c"}) {
			w.Errorf("c reported the leaders %q", got)
		}
	})
}

func TestFirstCandidateLeadsAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		began := time.Now()
		w.candidate("a").start()
		synctest.Wait()
		w.within("the first claim", w.find("a", "leads", 0).at.Sub(began), 0, instant)
	})
}

func TestReleaseSoonAfterACandidateBegan(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("a"), w.candidate("b")
		a.start()
		synctest.Wait()
		b.start()
		synctest.Wait() // b has seen a, and pauses
		a.stop()
		<-a.over
		time.Sleep(3 * retry)
		w.within("the hand-over", w.find("b", "leads", 0).at.Sub(w.find("a", "returned", 0).at), retry, retry*22/10)
	})
}

func TestDeadLeaderIsReplacedWhenItsLeaseEnds(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("a"), w.candidate("b")
		a.start()
		synctest.Wait()
		b.start()
		queued()
		died := time.Now()
		a.client.Inject(memory.Fault{Kind: memory.Stall}) // as if the process were gone: nothing renews
		time.Sleep(2 * lease)
		w.within("the hand-over", w.find("b", "leads", 0).at.Sub(died), lease/2, lease)
	})
}

func TestWorkEndsBeforeTheLeaseDoes(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("a"), w.candidate("b")
		a.start()
		synctest.Wait()
		held := a.lock.Lease()
		b.start()
		queued()
		a.client.Inject(memory.Fault{Kind: memory.Stall})
		time.Sleep(2 * lease)
		ended, leads := w.find("a", "ended", 0), w.find("b", "leads", 0)
		if !ended.at.Before(leads.at) {
			w.Errorf("the work of a ended at %v, and b led from %v", ended.at, leads.at)
		}
		if leads.token <= held.Token() {
			w.Errorf("token %d after %d", leads.token, held.Token())
		}
		if a.lock.Lease() != nil {
			w.Error("a still has a lease")
		}
	})
}

// The elector gives up while the lease lasts, so that a program that acts from OnStartedLeading to OnStoppedLeading, and
// not within OnStartedLeading, stops in time too.
func TestOnStoppedLeadingIsCalledBeforeASilentLeaseEnds(t *testing.T) {
	bubble(t, func(w *world) {
		for seed := range 10 { // the store fails at another point of the rhythm of renewals each time
			c := w.candidate("a")
			check := errors.New("not called")
			c.work = func(context.Context) {}
			var held *leasekeeper.Lease
			c.stopped = func() { check = held.Check() }
			c.start()
			synctest.Wait()
			held = c.lock.Lease()
			time.Sleep(time.Duration(seed) * 700 * time.Millisecond)
			remove := c.client.Inject(memory.Fault{Kind: memory.Stall})
			<-c.over
			if check != nil {
				w.Errorf("OnStoppedLeading was called when the lease was over: %v", check)
			}
			remove()
			time.Sleep(2 * lease)
		}
	})
}

func TestRevokedLeaderStopsWithTheReason(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		a.start()
		synctest.Wait()
		if err := a.client.Revoke(w.Context(), name, a.lock.Lease().Token(), "by hand", true); err != nil {
			w.Fatal(err)
		}
		<-a.over
		ended := w.find("a", "ended", 0)
		if !errors.Is(ended.err, leasekeeper.ErrLost) {
			w.Errorf("the context of the work ended with %v", ended.err)
		}
		w.within("the elector's end", w.find("a", "stopped", 0).at.Sub(ended.at), 0, retry+renew)
	})
}

// client-go's locks let an elector that lost its record take it again without telling the program.
func TestElectorDoesNotLeadOnUnderAnotherLease(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		a.start()
		synctest.Wait()
		if err := a.client.Revoke(w.Context(), name, a.lock.Lease().Token(), "by hand", true); err != nil {
			w.Fatal(err)
		}
		<-a.over
		if got := w.leaders(); got != "a" {
			w.Errorf("leaders %q", got)
		}
		if i, err := a.client.Get(w.Context(), name); err != nil || i.Held {
			w.Errorf("held by %v, %v", i.Holder, err)
		}
		a.start() // the program campaigns again
		synctest.Wait()
		if got := w.leaders(); got != "a a" {
			w.Errorf("leaders %q", got)
		}
	})
}

func TestNameIsNotReleasedWhileTheWorkRuns(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("a"), w.candidate("b")
		a.work = func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(5 * lease) // the work does not obey
		}
		a.start()
		synctest.Wait()
		b.start()
		queued()
		a.stop()
		<-a.over // client-go does not wait for the work
		w.within("the elector's end", time.Since(w.find("a", "ended", 0).at), renew, renew+instant)
		time.Sleep(5 * lease)
		returned, leads := w.find("a", "returned", 0), w.find("b", "leads", 0)
		w.within("the hand-over after the work", leads.at.Sub(returned.at), 0, instant)
	})
}

func TestCampaignWaitsForTheWorkOfTheLastLeadership(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		a.work = func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(3 * lease)
		}
		a.start()
		synctest.Wait()
		a.stop()
		<-a.over
		a.start()
		time.Sleep(4 * lease)
		w.within("the next leadership after the work", w.find("a", "leads", 1).at.Sub(w.find("a", "returned", 0).at), 0, retry*22/10)
	})
}

func TestWorkThatReturnedEarlyKeepsTheNameUntilOnStoppedLeadingHasReturned(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("a"), w.candidate("b")
		a.work = func(context.Context) {} // it sets a flag, say
		a.stopped = func() { time.Sleep(20 * time.Second) }
		a.start()
		synctest.Wait()
		b.start()
		time.Sleep(time.Minute)
		if got := w.leaders(); got != "a" {
			w.Fatalf("leaders %q: a leads after its function has returned", got)
		}
		a.stop()
		stopping := time.Now()
		<-a.over
		if i, err := a.client.Get(w.Context(), name); err != nil || i.Token != 2 {
			w.Errorf("the elector ended before the release: %+v, %v", i, err)
		}
		synctest.Wait()
		w.within("the elector's end", w.find("a", "stopped", 0).at.Sub(stopping), 0, instant)
		w.within("the hand-over", w.find("b", "leads", 0).at.Sub(w.find("a", "released", 0).at), 0, instant)
		w.within("OnStoppedLeading", w.find("b", "leads", 0).at.Sub(w.find("a", "stopped", 0).at), 20*time.Second, 20*time.Second+instant)
	})
}

func TestWithoutReleaseOnCancelTheNameIsReleasedALeaseDurationLater(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("a"), w.candidate("b")
		a.config.ReleaseOnCancel = false
		a.start()
		synctest.Wait()
		b.start()
		queued()
		a.stop()
		<-a.over
		time.Sleep(2 * lease)
		w.within("the hand-over", w.find("b", "leads", 0).at.Sub(w.find("a", "stopped", 0).at), lease, lease+instant)
	})
}

func TestCampaignWaitsForTheReleaseOfTheLastLeadership(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		a.config.ReleaseOnCancel = false
		elector, err := leaderelection.NewLeaderElector(a.config) // it believes that it leads when it runs again
		if err != nil {
			w.Fatal(err)
		}
		for range 2 {
			ctx, stop := context.WithTimeout(w.Context(), time.Minute)
			elector.Run(ctx)
			stop()
		}
		first, second := w.find("a", "leads", 0), w.find("a", "leads", 1)
		w.within("the next leadership", second.at.Sub(w.find("a", "stopped", 0).at), lease, lease+2*retry*22/10)
		if second.token <= first.token {
			w.Errorf("token %d after %d", second.token, first.token)
		}
	})
}

func TestCandidatesWithOneIdentityLeadInTurn(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("same"), w.candidate("same")
		a.start()
		synctest.Wait()
		b.start()
		time.Sleep(time.Minute)
		if got := w.leaders(); got != "same" {
			w.Errorf("leaders %q", got)
		}
		if b.lock.Lease() != nil {
			w.Error("both have a lease")
		}
		if got := b.reported(); len(got) != 1 || got[0] == "same" {
			w.Errorf("the second reported the leaders %q", got)
		}
		a.stop()
		synctest.Wait()
		if b.lock.Lease() == nil {
			w.Error("the second does not lead after the first")
		}
	})
}

func TestTwoCandidatesOfOneKeeperLeadInTurn(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		b := w.candidateOn(a.keeper, "b", options("b"))
		a.start()
		synctest.Wait()
		b.start()
		time.Sleep(time.Minute)
		a.stop()
		time.Sleep(3 * retry)
		if got := w.leaders(); got != "a b" {
			w.Errorf("leaders %q", got)
		}
	})
}

func TestHolderOutsideTheElectionIsItsLeader(t *testing.T) {
	bubble(t, func(w *world) {
		k := w.keeper(w.store.Backend())
		held, err := k.Acquire(w.Context(), name, leasekeeper.WithCard("by hand"))
		if err != nil {
			w.Fatal(err)
		}
		a := w.candidate("a")
		a.start()
		queued()
		if got := a.reported(); !slices.Equal(got, []string{"by hand"}) {
			w.Errorf("leaders %q", got)
		}
		record, _, err := w.candidate("b").lock.Get(w.Context())
		if err != nil || record.LeaderTransitions != int(held.Token()) || record.HolderIdentity != "by hand" {
			w.Errorf("%+v, %v", record, err)
		}
		if err := held.Release(w.Context()); err != nil {
			w.Fatal(err)
		}
		synctest.Wait()
		if got := w.leaders(); got != "a" {
			w.Errorf("leaders %q", got)
		}
	})
}

func TestCloseWaitsForTheWork(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("a"), w.candidate("b")
		a.work = func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(20 * time.Second)
		}
		a.start()
		synctest.Wait()
		b.start()
		queued()
		if err := a.keeper.Shutdown(w.Context()); err != nil {
			w.Error(err)
		}
		synctest.Wait()
		w.within("the hand-over after the work", w.find("b", "leads", 0).at.Sub(w.find("a", "returned", 0).at), 0, instant)
		if err := w.find("a", "ended", 0).err; !errors.Is(err, leasekeeper.ErrClosed) {
			w.Errorf("the context of the work ended with %v", err)
		}
	})
}

func TestStoreThatFailsForAWhileKeepsTheLeader(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.candidate("a"), w.candidate("b")
		a.start()
		synctest.Wait()
		b.start()
		queued()
		remove := w.store.Inject(memory.Fault{Kind: memory.Refuse, Err: backend.ErrUnavailable})
		time.Sleep(lease / 3)
		remove()
		time.Sleep(4 * lease)
		if got := w.leaders(); got != "a" {
			w.Errorf("leaders %q", got)
		}
		a.stop()
		<-a.over
		time.Sleep(3 * retry)
		if got := w.leaders(); got != "a b" {
			w.Errorf("leaders %q: b does not wait any more", got)
		}
	})
}

// If the store does not answer a release, Update reports an unknown outcome to the elector.
func TestReleaseWithoutAnAnswerIsReported(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.candidate("a")
		a.start()
		synctest.Wait()
		w.store.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Release})
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		record, _, err := a.lock.Get(ctx)
		if err != nil {
			w.Fatal(err)
		}
		record.HolderIdentity = ""
		if err := a.lock.Update(ctx, *record); !errors.Is(err, leasekeeper.ErrUnknownOutcome) {
			w.Errorf("%v, and not an unknown outcome", err)
		}
	})
}
