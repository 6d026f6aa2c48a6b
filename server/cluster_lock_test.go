package server

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
)

// lockAt requests a lock in the background.
func lockAt(ctx context.Context, f *front, name string, lease int64) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := v3lockpb.NewLockClient(f.conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: lease})
		result <- err
	}()
	return result
}

// queueLength returns the number of claims in the queue of a name, including the holder's.
func (f *front) queueLength(name string) int64 {
	f.t.Helper()
	resp, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte(name + "/"), RangeEnd: []byte(name + "0"), CountOnly: true})
	wantOK(f.t, err)
	return resp.Count
}

// A claim that waits at a former leader continues to wait. If its client gives up, the claim leaves nothing for which
// others would wait. Only the key of a client's own lease stays, because the client may repeat the claim at the new
// leader.
func testLocksOutliveALeader(t *testing.T, tr *trio) {
	leader, follower := tr.leader()
	for i := range int64(4) {
		follower.grant(60, 900+i)
	}
	wantOK(t, <-lockAt(follower.ctx(), follower.front, "l", 900))
	joined := func(n int64) {
		t.Helper()
		eventually(t, "the claim waits", func() bool { return follower.queueLength("l") == n })
	}
	stays := lockAt(follower.ctx(), follower.front, "l", 901)
	joined(2)
	own, giveUpOwn := context.WithCancel(follower.ctx())
	withLease := lockAt(own, follower.front, "l", 902)
	joined(3)
	free, giveUpFree := context.WithCancel(follower.ctx())
	withoutLease := lockAt(free, follower.front, "l", 0)
	joined(4)

	_, err := leader.maintenance.MoveLeader(leader.ctx(), &pb.MoveLeaderRequest{TargetID: follower.id})
	wantOK(t, err)
	eventually(t, "the other leads", func() bool { return follower.server.forwarder.Leads() })
	giveUpFree()
	wantCode(t, <-withoutLease, codes.Canceled)
	eventually(t, "the lease that was granted for the claim is gone", func() bool { return follower.queueLength("l") == 3 })
	giveUpOwn()
	wantCode(t, <-withLease, codes.Canceled)
	again := lockAt(follower.ctx(), follower.front, "l", 902)

	for _, next := range []struct {
		ends   int64
		result <-chan error
	}{{900, stays}, {901, again}} {
		_, err := follower.lease.LeaseRevoke(follower.ctx(), &pb.LeaseRevokeRequest{ID: next.ends})
		wantOK(t, err)
		wantOK(t, <-next.result)
	}
	wantEqual(t, "claims left", follower.queueLength("l"), 1)
}

// A client that cancels its claim at a follower cancels it at the leader too.
func TestCancelledForwardedLockLeavesNoKey(t *testing.T) {
	p := startPair(t)
	p.fronts[0].grant(60, 1)
	p.fronts[0].grant(60, 2)
	wantOK(t, <-lockAt(p.fronts[0].ctx(), p.fronts[0], "l", 1))
	ctx, giveUp := context.WithCancel(p.fronts[1].ctx())
	waiting := lockAt(ctx, p.fronts[1], "l", 2)
	eventually(t, "the claim waits", func() bool { return p.fronts[0].queueLength("l") == 2 })
	giveUp()
	wantCode(t, <-waiting, codes.Canceled)
	eventually(t, "the claim is removed", func() bool { return p.fronts[0].queueLength("l") == 1 })
}
