package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// driven returns the parts of a Node that answerFromMemory needs, on a replica that a test drives.
func driven(w *world) *Node {
	return &Node{replica: w.replica, calls: make(map[uint64]caller), wakeup: make(chan struct{}, 1)}
}

// A renewal that memory can answer is answered on the caller's goroutine. If the replica must confirm it first, the
// member's goroutine is woken.
func TestRenewalIsAnsweredFromMemory(t *testing.T) {
	w := newWorld(t) // with the real time, which answerFromMemory reads
	w.serve()
	w.do(1, entry.Grant{Lease: 7, TTL: time.Hour})
	n := driven(w)
	var got []replica.RenewedLease
	renewal := func(id uint64) *submission {
		return &submission{event: replica.Renewal{ID: id, Leases: []lessor.ID{7}}, id: id, caller: callerFunc(func(e replica.Effect) { got = append(got, e.(replica.Renewed).Leases...) })}
	}
	if !n.answerFromMemory(renewal(2)) || len(got) != 1 || got[0].Err != nil || len(n.wakeup) != 0 {
		t.Errorf("an unquestioned lease: renewed %v, %d wake-ups", got, len(n.wakeup))
	}
	again := w.crashed()
	w.close()
	again.open()
	defer again.close()
	again.serve()
	for range 600 { // so that the next call is a minute away, however slow this test is
		again.clock.Advance(replica.TickInterval)
		again.step(replica.Tick{})
	}

	n, got = driven(again), nil
	n.owner.Lock()
	if n.answerFromMemory(renewal(3)) {
		t.Error("the replica was at work, and was asked")
	}
	n.owner.Unlock()
	if !n.answerFromMemory(renewal(4)) || len(got) != 0 || len(n.wakeup) != 1 {
		t.Fatalf("a lease that is checkpointed: renewed %v, %d wake-ups", got, len(n.wakeup))
	}
	again.clock = clock.NewManual(clock.Now())
	for _, e := range append(again.step(replica.Tick{}), again.settle()...) {
		if r, ok := e.(replica.Renewed); ok {
			n.answer(r.ID, r)
		}
	}
	if len(got) != 1 || got[0].Err != nil {
		t.Errorf("after it was cleared: renewed %v", got)
	}
	n.ended = true
	if n.answerFromMemory(renewal(5)) {
		t.Error("the member has ended, and answers")
	}
}

// Calls that come while the member runs and stops are each answered once or get [ErrStopped].
func TestConcurrentCallsDuringStopAreAnsweredOnce(t *testing.T) {
	n, err := Start(context.Background(), Config{Dir: t.TempDir()})
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
				answers := make(chan []replica.RenewedLease, 2)
				err := n.Renew(ctx, []lessor.ID{7}, func(_ replica.Header, leases []replica.RenewedLease) { answers <- leases })
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
	go func() { // callers are never blocked
		for range begun {
		}
	}()
	if err := n.Stop(ctx); err != nil {
		t.Error(err)
	}
	askers.Wait()
	close(begun)
	if !n.ended {
		t.Error("the replica could still be asked")
	}
	if _, _, err := n.TimeToLive(ctx, 7, false); !errors.Is(err, ErrStopped) {
		t.Errorf("asked after it has stopped: %v", err)
	}
}

// settling returns the parts of a Node that settle needs, on a replica that a test drives.
func settling(w *world) *Node {
	n := driven(w)
	n.cfg.Dir, n.log, n.db, n.store = "data", slog.New(slog.DiscardHandler), w.db, w.replica.Store()
	n.hub, n.identity, n.applied = keyspace.NewHub(n.store), w.replica.Identity(), newAppliedIndex()
	n.intake, n.persists = make(chan submission, 1), make(chan syncing, persistsInFlight)
	n.leaderChanged, n.ready = make(chan struct{}), make(chan struct{})
	n.leader.Store(new(known))
	n.readyUntil.Store(new(clock.Instant))
	return n
}

// putUnderWay makes the replica write a put. It returns the report of that write, and the effects that the put's
// caller receives.
func putUnderWay(w *world, n *Node, id uint64) (replica.Persisted, *[]replica.Effect) {
	got := new([]replica.Effect)
	n.calls[id] = callerFunc(func(e replica.Effect) { delete(n.calls, id); *got = append(*got, e) })
	w.step(replica.Request{ID: id, Command: keyspace.PutRequest{Key: []byte("k"), Value: []byte("v")}})
	done := replica.Persisted{Sequence: w.writes[0].Sequence}
	w.writes = w.writes[1:]
	return done, got
}

func servingWorld(t *testing.T) *world {
	w := newWorld(t) // which settle reads
	return w.serve()
}

// The goroutine that waited for the disk answers a lone put. It wakes the member's goroutine only if that must call
// Step earlier than planned.
func TestLoneWriteIsAnsweredOnDiskGoroutine(t *testing.T) {
	w := servingWorld(t)
	defer w.close()
	n := settling(w)
	for _, c := range []struct {
		id    uint64
		wake  time.Duration // when the member's goroutine calls Step anyway
		woken int
	}{{2, 0, 0}, {3, time.Hour, 1}} {
		done, got := putUnderWay(w, n, c.id)
		n.wake = clock.Now().Add(c.wake)
		if !n.settle(done) || n.broken != nil {
			t.Fatalf("put %d: the write was not reported: %v", c.id, n.broken)
		}
		if len(*got) != 1 || (*got)[0].(replica.Reply).Err != nil {
			t.Errorf("put %d: answered %v", c.id, *got)
		}
		if len(n.wakeup) != c.woken {
			t.Errorf("put %d: the member's goroutine was woken %d times", c.id, len(n.wakeup))
		}
	}
}

// The disk's goroutine leaves a write to the member's goroutine in four cases: more requests wait, an earlier write
// is not reported, another goroutine holds the replica, or the member is broken.
func TestContendedWriteIsLeftToMemberGoroutine(t *testing.T) {
	for name, set := range map[string]func(w *world, n *Node, e *replica.Persisted) (undo func()){
		"a member of a cluster": func(_ *world, n *Node, _ *replica.Persisted) func() {
			n.cfg.Cluster = new(ClusterConfig)
			return nil
		},
		"a call waits": func(_ *world, n *Node, _ *replica.Persisted) func() { n.intake <- submission{}; return nil },
		"another caller waits": func(_ *world, n *Node, _ *replica.Persisted) func() {
			n.calls[3] = callerFunc(func(replica.Effect) {})
			return nil
		},
		"a command waits": func(w *world, _ *Node, _ *replica.Persisted) func() {
			w.step(replica.Request{ID: 9, Command: entry.Grant{Lease: 9, TTL: time.Hour}})
			return nil
		},
		"an earlier write is unreported": func(_ *world, _ *Node, e *replica.Persisted) func() { e.Sequence++; return nil },
		"the replica is at work":         func(_ *world, n *Node, _ *replica.Persisted) func() { n.owner.Lock(); return n.owner.Unlock },
		"the member has ended":           func(_ *world, n *Node, _ *replica.Persisted) func() { n.ended = true; return nil },
		"the member must end":            func(_ *world, n *Node, _ *replica.Persisted) func() { n.broken = ErrStopped; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := servingWorld(t)
			defer w.close()
			n := settling(w)
			done, got := putUnderWay(w, n, 2)
			undo := set(w, n, &done)
			if n.settle(done) || len(*got) > 0 {
				t.Errorf("it was reported, and answered %v", *got)
			}
			if undo != nil {
				undo()
			}
		})
	}
}

// A failed write ends the member, even if the disk's own goroutine finds out.
func TestFailedWriteEndsMember(t *testing.T) {
	w := servingWorld(t)
	defer w.close()
	n := settling(w)
	done, got := putUnderWay(w, n, 2)
	done.Err = errors.New("input/output error")
	if !n.settle(done) || n.broken == nil || len(n.wakeup) != 1 || len(*got) > 0 {
		t.Fatalf("error %v, %d times woken, answered %v", n.broken, len(n.wakeup), *got)
	}
	why := n.broken
	if _, err := (&turn{n: n}).take(submission{event: replica.Tick{}}); err != why {
		t.Errorf("the member's goroutine goes on: %v, and the disk's had %v", err, why)
	}
}
