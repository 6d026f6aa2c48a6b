package server

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// A client that has used its share is refused, and claims of another client find a place.
func TestOneClientLeavesPlacesToOthers(t *testing.T) {
	cfg := anyPort()
	cfg.MaxRequests = 8
	f := startWith(t, cfg, nil)
	f.hold("n", 1, 60_000)
	for i := range int64(4) {
		f.wait("n", i+2, 60_000)
	}
	_, err := f.acquire(&leasekeeperv1.AcquireRequest{Name: "free", Lease: 9, TtlMs: 60_000, Wait: true}).stream.Recv()
	wantReason(t, err, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED)
	if !strings.Contains(err.Error(), admission.ErrShareTaken.Error()) {
		t.Errorf("the client does not receive the cause: %v", err)
	}
	other := f.server.limits.places.Join("10.0.0.1")
	wantOK(t, other.Take())
	other.Release(1)
	other.Leave()
}

// A claim whose stream has been gone for a TTL ends although its lease is renewed, since no client would learn of its
// turn.
func TestAbandonedClaimEndsAfterItsTTL(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	behind := f.wait("n", 2, 200)
	renewing, stop := context.WithCancel(f.ctx())
	defer stop()
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		stream, err := f.names().Renew(renewing)
		for number := uint64(1); err == nil; number++ {
			if err = stream.Send(&leasekeeperv1.RenewRequest{Number: number, Leases: []int64{2}}); err == nil {
				_, err = stream.Recv()
			}
		}
	}()
	behind.cancel()
	eventually(t, "it is left", func() bool { return f.server.names.AbandonedClaims() == 1 })
	wantEqual(t, "places of it", f.server.limits.places.Taken(), 1)
	eventually(t, "the claim has ended", func() bool { return f.info("n").Waiting == 0 })
	eventually(t, "its place is free", func() bool { return f.server.limits.places.Taken() == 0 })
	wantEqual(t, "holder", f.info("n").Lease, 1)
	stop()
	<-renewed
}

// A client that returns within a TTL, or has a second stream, keeps its place in the queue. An owner keeps its name.
func TestReturningClientKeepsItsPlaceInTheQueue(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	first := f.wait("n", 2, 60_000)
	second := f.wait("n", 2, 60_000)
	eventually(t, "both listen", func() bool { return f.server.limits.places.Waiting() == 2 })
	first.cancel()
	eventually(t, "one listens", func() bool { return f.server.limits.places.Waiting() == 1 })
	wantEqual(t, "left", f.server.names.AbandonedClaims(), 0)
	second.cancel()
	eventually(t, "it is left", func() bool { return f.server.names.AbandonedClaims() == 1 })
	third := f.wait("n", 2, 60_000)
	wantEqual(t, "left", f.server.names.AbandonedClaims(), 0)
	third.cancel()
	eventually(t, "it is left", func() bool { return f.server.names.AbandonedClaims() == 1 })
	f.release("n", 1)
	wantEqual(t, "holder", f.info("n").Lease, 2)
	f.release("n", 2)
	wantEqual(t, "left", f.server.names.AbandonedClaims(), 0)
	wantEqual(t, "places", f.server.limits.places.Taken(), 0)
}

// A waiting claim of a Hold stream keeps its place when the stream ends.
func TestQueuedClaimOfHoldKeepsItsPlace(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	c := f.holder()
	c.send(&leasekeeperv1.HoldRequest{Holder: &leasekeeperv1.Holder{Id: "h"}, Claims: []*leasekeeperv1.HoldClaim{c.claim("n", 2)}})
	c.wants(1, leasekeeperv1.HoldAnswer_WAITING)
	c.cancel()
	eventually(t, "it is left", func() bool { return f.server.names.AbandonedClaims() == 1 })
	wantEqual(t, "places", f.server.limits.places.Taken(), 1)
}

// The operator bounds how long a holder may keep a name without renewing. Leases of etcd's API have etcd's own bound.
func TestTTLAboveTheMaximumIsRefused(t *testing.T) {
	f := startFront(t)
	day := DefaultMaxTTL.Milliseconds()
	f.hold("a", 1, day)
	_, err := f.acquire(&leasekeeperv1.AcquireRequest{Name: "b", Lease: 2, TtlMs: day + 1}).stream.Recv()
	wantReason(t, err, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	c := f.holder()
	claim := c.claim("b", 2)
	claim.TtlMs = day + 1
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{claim}})
	c.fails(1, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	wantEqual(t, "held", f.info("b").Held, false)
	wantEqual(t, "of etcd's API", f.grant(9_000_000_000, 3).TTL, 9_000_000_000)
}
