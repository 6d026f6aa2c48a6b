package claimtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

// write creates a record, and returns its op and the result.
func write(ctx context.Context, s claim.Store, name string, old claim.Op) (claim.Op, bool, error) {
	r := claim.Record{Name: name, Holder: "a", Token: 1, Op: claim.NewOp()}
	done, err := s.Swap(ctx, claim.Swap{Old: old, Record: r, Owner: true})
	return r.Op, done, err
}

// inBubble runs a test in virtual time, with a network and a client that does not use it.
func inBubble(t *testing.T, do func(t *testing.T, n *claimtest.Network, direct claim.Store)) {
	synctest.Test(t, func(t *testing.T) {
		m := claimtest.NewMemory()
		n := claimtest.Faulty(m.Open())
		do(t, n, m.Open())
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// op returns the op of a record.
func op(t *testing.T, s claim.Store, name string) claim.Op {
	t.Helper()
	f, err := s.Get(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return f.Record.Op
}

func TestDelayedRequestOutlivesItsCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, n *claimtest.Network, direct claim.Store) {
		n.Inject(claimtest.Call{Method: claimtest.Swap}, 1, claimtest.Fault{Delay: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		wrote, done, err := write(ctx, n, "x", claim.Op{})
		if done || !errors.Is(err, backend.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Errorf("%v, %v after %v", done, err, time.Since(start))
		}
		if op(t, direct, "x") != (claim.Op{}) {
			t.Error("the request has arrived too early")
		}
		time.Sleep(51 * time.Second)
		if op(t, direct, "x") != wrote {
			t.Error("the request has not arrived")
		}
	})
}

func TestLostRequestsAndAnswersOfWritesAreUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, n *claimtest.Network, direct claim.Store) {
		for _, c := range []struct {
			fault   claimtest.Fault
			arrives bool
		}{
			{claimtest.Fault{LoseRequest: true}, false},
			{claimtest.Fault{LoseAnswer: true}, true},
			{claimtest.Fault{LoseRequest: true, Delay: time.Second, Back: time.Second}, false},
			{claimtest.Fault{LoseAnswer: true, Delay: time.Second, Back: time.Second}, true},
		} {
			before := op(t, direct, "x")
			n.Inject(claimtest.Call{Name: "x"}, 1, c.fault)
			start := time.Now()
			wrote, done, err := write(t.Context(), n, "x", before)
			if done || !errors.Is(err, backend.ErrUnknownOutcome) || time.Since(start) != c.fault.Delay+c.fault.Back {
				t.Errorf("%+v: %v, %v after %v", c.fault, done, err, time.Since(start))
			}
			if (op(t, direct, "x") == wrote) != c.arrives {
				t.Errorf("%+v: that it arrived is %v", c.fault, !c.arrives)
			}
			n.Inject(claimtest.Call{Method: claimtest.Get}, 1, c.fault)
			if _, err := n.Get(t.Context(), "x"); !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome) {
				t.Errorf("%+v: a read: %v", c.fault, err)
			}
		}
	})
}

func TestRequestsCanArriveTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, n *claimtest.Network, direct claim.Store) {
		n.Inject(claimtest.Call{}, 1, claimtest.Fault{Twice: time.Second})
		first, done, err := write(t.Context(), n, "x", claim.Op{})
		if !done || err != nil {
			t.Fatal(done, err)
		}
		if done, err := direct.Remove(t.Context(), "x", first); !done || err != nil {
			t.Fatal(done, err)
		}
		time.Sleep(2 * time.Second)
		if op(t, direct, "x") != first {
			t.Error("the second request has not made the record again")
		}
	})
}

func TestStaleReadsReturnEarlierRecords(t *testing.T) {
	inBubble(t, func(t *testing.T, n *claimtest.Network, direct claim.Store) {
		var ops []claim.Op
		for i := range 3 {
			wrote, _, err := write(t.Context(), n, "x", op(t, n, "x"))
			if err != nil {
				t.Fatal(i, err)
			}
			ops = append(ops, wrote)
		}
		op(t, n, "x")
		defer n.Inject(claimtest.Call{}, 0, claimtest.Fault{Stale: true})()
		if got := op(t, n, "x"); got != ops[1] {
			t.Errorf("a stale read of %v has %v", ops, got)
		}
		if all, err := n.List(t.Context(), "", "", 9); err != nil || len(all) != 1 || all[0].Record.Op != ops[1] {
			t.Errorf("a stale list has %v, %v", all, err)
		}
		if got := op(t, direct, "x"); got != ops[2] {
			t.Errorf("a client without faults reads %v", got)
		}
	})
}

func TestChangeOfPrimaryLeavesCallsUnanswered(t *testing.T) {
	for _, forget := range []bool{false, true} {
		inBubble(t, func(t *testing.T, n *claimtest.Network, direct claim.Store) {
			n.Inject(claimtest.Call{Name: "late"}, 1, claimtest.Fault{Delay: time.Minute})
			n.Inject(claimtest.Call{Name: "done"}, 1, claimtest.Fault{Back: time.Minute})
			ops := make(chan claim.Op, 2)
			for _, name := range []string{"late", "done"} {
				go func() {
					wrote, done, err := write(t.Context(), n, name, claim.Op{})
					if done || !errors.Is(err, backend.ErrUnknownOutcome) || time.Since(time.Now()) > 0 {
						t.Errorf("%s: %v, %v", name, done, err)
					}
					ops <- wrote
				}()
				synctest.Wait()
			}
			start := time.Now()
			n.ChangePrimary(forget)
			<-ops
			<-ops
			if time.Since(start) != 0 {
				t.Errorf("it took %v", time.Since(start))
			}
			time.Sleep(2 * time.Minute)
			if (op(t, direct, "late") == claim.Op{}) != forget {
				t.Errorf("forgotten: %v, and what was on its way is %v", forget, op(t, direct, "late"))
			}
			if op(t, direct, "done") == (claim.Op{}) {
				t.Error("what had arrived is gone")
			}
			if _, done, err := write(t.Context(), n, "next", claim.Op{}); !done || err != nil {
				t.Errorf("after the change: %v, %v", done, err)
			}
		})
	}
}

func TestPlanDecidesTheFaultOfEachCall(t *testing.T) {
	inBubble(t, func(t *testing.T, n *claimtest.Network, direct claim.Store) {
		n.Plan(func(c claimtest.Call) claimtest.Fault {
			if c.Name == "bad" {
				return claimtest.Fault{Err: backend.ErrCorrupt}
			}
			return claimtest.Fault{}
		})
		if _, err := n.Get(t.Context(), "bad"); !errors.Is(err, backend.ErrCorrupt) {
			t.Error(err)
		}
		if _, err := n.Get(t.Context(), "good"); err != nil {
			t.Error(err)
		}
		remove := n.Inject(claimtest.Call{Name: "good"}, 0, claimtest.Fault{Err: backend.ErrUnavailable})
		for range 3 {
			if _, err := n.Get(t.Context(), "good"); !errors.Is(err, backend.ErrUnavailable) {
				t.Error(err)
			}
		}
		remove()
		if _, err := n.Get(t.Context(), "good"); err != nil {
			t.Error(err)
		}
	})
}

// Close waits for the calls under way, but not longer than its context lasts.
func TestCloseWaitsForCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, patience := range []time.Duration{time.Hour, time.Second} {
			m := claimtest.NewMemory()
			n := claimtest.Faulty(m.Open())
			n.Inject(claimtest.Call{}, 1, claimtest.Fault{Delay: time.Minute})
			soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, _, _ = write(soon, n, "x", claim.Op{})
			cancel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if err := n.Close(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			if arrived := op(t, m.Open(), "x") != (claim.Op{}); arrived != (patience > time.Minute) {
				t.Errorf("closed with %v of patience, and that it arrived is %v", patience, arrived)
			}
			if _, err := n.Get(t.Context(), "x"); !errors.Is(err, backend.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

func TestListenEndsWithItsConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, n *claimtest.Network, direct claim.Store) {
		ended := make(chan error, 1)
		hints := 0
		listen := func() { ended <- n.Listen(t.Context(), func(string) { hints++ }) }
		go listen()
		synctest.Wait()
		if _, _, err := write(t.Context(), direct, "x", claim.Op{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if hints != 2 {
			t.Errorf("%d hints came", hints)
		}
		n.ChangePrimary(false)
		if err := <-ended; !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("with a new primary: %v", err)
		}
		n.Inject(claimtest.Call{Method: claimtest.Listen}, 1, claimtest.Fault{LoseRequest: true})
		go listen()
		if err := <-ended; !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("when the request is lost: %v", err)
		}
		bare := claimtest.Faulty(claimtest.Plain(direct))
		if err := bare.Listen(t.Context(), func(string) {}); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("of a store that cannot notify: %v", err)
		}
		if err := bare.Acknowledge(t.Context(), "d", clock.Instant{}); err != nil || bare.Judges() || bare.Gone("d") {
			t.Error("what a plain store cannot do comes to something", err)
		}
	})
}
