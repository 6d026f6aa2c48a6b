package server

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// A refused request has changed nothing.
func TestWaitersAndWatchersAboveTheirLimitsAreRefused(t *testing.T) {
	cfg := anyPort()
	cfg.MaxRequests, cfg.MaxWatchers = 1, 1
	f := startWith(t, cfg, nil)
	f.hold("n", 1, 60_000)
	waiting := f.wait("n", 2, 60_000)
	_, err := f.acquire(&leasekeeperv1.AcquireRequest{Name: "n", Lease: 3, TtlMs: 60_000, Wait: true}).stream.Recv()
	wantReason(t, err, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED)
	wantEqual(t, "waiting", f.info("n").Waiting, 1)
	f.release("n", 1) // releases are not subject to the bound of waiting claims
	waiting.next(leasekeeperv1.AcquireResponse_HELD)

	f.watchNames("")
	stream, err := f.names().Watch(f.ctx(), &leasekeeperv1.WatchRequest{})
	wantOK(t, err)
	_, err = stream.Recv()
	wantReason(t, err, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED)
}

// The end of a waiter's stream does not end its claim, and leaves nothing behind in the server.
func TestEndedAcquireStreamLeavesItsClaim(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	waiting := f.wait("n", 2, 60_000)
	wantEqual(t, "streams", f.server.limits.places.Waiting(), 1)
	waiting.cancel()
	eventually(t, "the stream has ended", func() bool { return f.server.limits.places.Waiting() == 0 })
	wantEqual(t, "waiting", f.info("n").Waiting, 1)
	f.release("n", 1)
	wantEqual(t, "holder", f.info("n").Lease, 2)
}

// A lock of etcd's recipe can have a name that is invalid here. It disturbs nothing.
func TestInvalidNamesOfEtcdsRecipeAreNotListed(t *testing.T) {
	f := startFront(t)
	f.grant(60, 1)
	foreign := []string{"\xff", "/locks/a", "a//b", "a\x00"}
	put := func(name string) {
		t.Helper()
		_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte(name + "/1"), Lease: 1, Value: []byte("\xff")})
		wantOK(t, err)
	}
	for _, name := range foreign {
		put(name)
	}
	put("ours")
	resp, err := f.names().List(f.ctx(), &leasekeeperv1.ListRequest{})
	wantOK(t, err)
	if len(resp.Names) != 1 || resp.Names[0].Name != "ours" {
		t.Errorf("listed: %v", resp)
	}
	w, present := f.watchNames("")
	if len(present) != 1 || present[0].Info.Name != "ours" {
		t.Errorf("at first: %v", present)
	}
	_, err = f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 1})
	wantOK(t, err)
	w.next(leasekeeperv1.WatchEvent_VACATED, "ours", 0)
	f.grant(60, 1)
	for _, name := range foreign {
		put(name)
	}
	put("ours")
	w.next(leasekeeperv1.WatchEvent_ACQUIRED, "ours", 1)
}
