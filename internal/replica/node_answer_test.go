package replica

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// driven is as much of a Node as answers, on a replica that a test drives.
func driven(w *world) *Node {
	return &Node{replica: w.replica, calls: make(map[uint64]caller), nudge: make(chan struct{}, 1)}
}

// What can be answered from memory is, on the caller's goroutine; the rest is registered for whoever calls
// Step, who is told when that has to be earlier than he thinks.
func TestNodeAnswersAtOnce(t *testing.T) {
	w := newWorldOf(t, func(w *world) { w.clock = clock.NewManual(clock.Now()) }) // which atOnce reads
	w.serve()
	w.do(1, Grant{7, time.Hour})
	n := driven(w)
	var got []RenewedLease
	renewal := func(id uint64) *submission {
		return &submission{event: Renewal{id, []lessor.ID{7}}, id: id, caller: hearing(func(e Effect) { got = append(got, e.(Renewed).Leases...) })}
	}
	if !n.atOnce(renewal(2)) || len(got) != 1 || got[0].Err != nil || len(n.nudge) != 0 {
		t.Errorf("a lease that nobody doubts: renewed %v, %d nudges", got, len(n.nudge))
	}
	again := w.crashed(nil)
	w.close()
	again.open()
	defer again.close()
	again.serve()
	again.clock.Advance(time.Millisecond)
	again.step(Tick{})
	again.replica.wake = clock.Now().Add(time.Hour) // however slow this test is

	n, got = driven(again), nil
	n.owner.Lock()
	if n.atOnce(renewal(3)) {
		t.Error("the replica was at work, and was asked")
	}
	n.owner.Unlock()
	if !n.atOnce(renewal(4)) || len(got) != 0 || len(n.nudge) != 1 {
		t.Fatalf("a lease that is checkpointed: renewed %v, %d nudges", got, len(n.nudge))
	}
	again.clock = clock.NewManual(clock.Now())
	for _, e := range append(again.step(Tick{}), again.settle()...) {
		if r, ok := e.(Renewed); ok {
			n.answer(r.ID, r)
		}
	}
	if len(got) != 1 || got[0].Err != nil {
		t.Errorf("after it was cleared: renewed %v", got)
	}
	n.over = true
	if n.atOnce(renewal(5)) {
		t.Error("the member has ended, and answers")
	}
}

// Questions that come while the member works, rests and stops are answered once each or get [ErrStopped].
func TestNodeIsAskedByManyWhileItStops(t *testing.T) {
	n, err := Start(context.Background(), NodeConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	<-n.Ready()
	ctx := context.Background()
	if _, _, err := n.Grant(ctx, 7, time.Hour); err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{}, 8*100)
	var askers sync.WaitGroup
	for range 8 {
		askers.Go(func() {
			for {
				begun <- struct{}{}
				answers := make(chan []RenewedLease, 2)
				err := n.Renew(ctx, []lessor.ID{7}, func(_ Header, leases []RenewedLease) { answers <- leases })
				if err == nil {
					select {
					case leases := <-answers:
						if len(leases) != 1 || leases[0].Err != nil {
							t.Errorf("renewed %v", leases)
						}
					case <-n.Done():
						return
					}
				}
				_, _, gone := n.TimeToLive(ctx, 7, false)
				for _, err := range []error{err, gone} {
					if err != nil {
						if !errors.Is(err, ErrStopped) {
							t.Errorf("got %v", err)
						}
						return
					}
				}
			}
		})
	}
	for range 4000 {
		<-begun
		if len(begun) == 0 {
			mustPut(t, n, "k", "v", 7)
		}
	}
	go func() { // nobody is kept from asking
		for range begun {
		}
	}()
	if err := n.Stop(ctx); err != nil {
		t.Error(err)
	}
	askers.Wait()
	close(begun)
	if !n.over {
		t.Error("the replica could still be asked")
	}
	if _, _, err := n.TimeToLive(ctx, 7, false); !errors.Is(err, ErrStopped) {
		t.Errorf("asked after it has stopped: %v", err)
	}
}
