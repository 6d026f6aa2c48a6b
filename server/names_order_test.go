package server

import (
	"math"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// waitWith has a claim of a holder with the lease's letter wait with a priority.
func (f *front) waitWith(lease int64, priority int32) (*acquiring, *leasekeeperv1.AcquireResponse) {
	f.t.Helper()
	a := f.acquire(&leasekeeperv1.AcquireRequest{
		Name: "n", Lease: lease, TtlMs: 60_000, Holder: holder(string(rune('a' + lease))), Wait: true, Priority: priority,
	})
	return a, a.next(leasekeeperv1.AcquireResponse_WAITING)
}

func (f *front) prefer(to string) error {
	_, err := f.names().Prefer(f.ctx(), &leasekeeperv1.PreferRequest{Name: "n", To: to})
	return err
}

// A claim that is overtaken keeps its lease and its stream, and holds the name under a later token than it was told first.
func TestHighestPriorityHoldsTheNameNext(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	low, first := f.waitWith(2, 0)
	high, second := f.waitWith(3, 5)
	wantEqual(t, "place", second.Place, 1)
	again, repeated := f.waitWith(2, 0)
	if repeated.Token <= second.Token || second.Token <= first.Token || repeated.Place != 2 || !repeated.Overtaken || first.Overtaken || second.Overtaken {
		t.Errorf("first %v, second %v, repeated %v", first, second, repeated)
	}
	f.release("n", 1)
	wantEqual(t, "token", high.next(leasekeeperv1.AcquireResponse_HELD).Token, second.Token)
	f.release("n", 3)
	wantEqual(t, "token", low.next(leasekeeperv1.AcquireResponse_HELD).Token, repeated.Token)
	wantEqual(t, "token", again.next(leasekeeperv1.AcquireResponse_HELD).Token, repeated.Token)
	for _, priority := range []int32{math.MinInt16 - 1, math.MaxInt16 + 1} {
		_, err := f.acquire(&leasekeeperv1.AcquireRequest{Name: "m", Lease: 9, TtlMs: 60_000, Holder: holder("me"), Priority: priority}).stream.Recv()
		wantReason(t, err, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	}
}

func TestPreferredClaimHoldsTheNameNext(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	f.waitWith(2, 0)
	third, _ := f.waitWith(3, 0)
	wantReason(t, f.prefer("nobody"), codes.FailedPrecondition, leasekeeperv1.ErrorReason_NO_WAITER)
	wantReason(t, f.prefer("me"), codes.FailedPrecondition, leasekeeperv1.ErrorReason_NO_WAITER) // it holds the name
	wantReason(t, f.prefer(""), codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	wantOK(t, f.prefer("d"))
	f.release("n", 1)
	third.next(leasekeeperv1.AcquireResponse_HELD)
}

// A waiter of etcd's own recipe relies on its key, so no claim of ours overtakes it.
func TestForeignWaiterIsNotOvertaken(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	f.grant(60, 9)
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("n/9"), Lease: 9})
	wantOK(t, err)
	_, behind := f.waitWith(2, 100)
	wantEqual(t, "place", behind.Place, 2)
	wantReason(t, f.prefer("c"), codes.FailedPrecondition, leasekeeperv1.ErrorReason_INVALID)
	f.release("n", 1)
	wantEqual(t, "holder", f.info("n").Lease, 9)
}
