package server

import (
	"context"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// A client that fills its share is told so, and claims of another client find a place.
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
		t.Errorf("the client is not told the cause: %v", err)
	}
	other := f.server.limits.places.Join("10.0.0.1")
	wantOK(t, other.Take())
	other.Give(1)
	other.Leave()
}

// A claim whose stream has been gone for a TTL ends although its lease is renewed: nobody would hear of its turn.
func TestLeftClaimEnds(t *testing.T) {
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
	eventually(t, "it is left", func() bool { return f.server.left.many.Load() == 1 })
	wantEqual(t, "places of it", f.server.limits.places.Taken(), 1)
	eventually(t, "the claim has ended", func() bool { return f.info("n").Waiting == 0 })
	eventually(t, "its place is free", func() bool { return f.server.limits.places.Taken() == 0 })
	wantEqual(t, "holder", f.info("n").Lease, 1)
	stop()
	<-renewed
}

// A client that comes back within a TTL, or has a second stream, keeps its place in the queue; an owner keeps its name.
func TestLeftClaimIsKept(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	first := f.wait("n", 2, 60_000)
	second := f.wait("n", 2, 60_000)
	eventually(t, "both listen", func() bool { return f.server.limits.places.Waiting() == 2 })
	first.cancel()
	eventually(t, "one listens", func() bool { return f.server.limits.places.Waiting() == 1 })
	wantEqual(t, "left", f.server.left.many.Load(), 0)
	second.cancel()
	eventually(t, "it is left", func() bool { return f.server.left.many.Load() == 1 })
	third := f.wait("n", 2, 60_000)
	wantEqual(t, "left", f.server.left.many.Load(), 0)
	third.cancel()
	eventually(t, "it is left", func() bool { return f.server.left.many.Load() == 1 })
	f.release("n", 1)
	wantOK(t, f.server.endIfWaiting(f.ctx(), leftKey{"n", 2}))
	wantEqual(t, "holder", f.info("n").Lease, 2)
	f.release("n", 2)
	wantEqual(t, "left", f.server.left.many.Load(), 0)
	wantEqual(t, "places", f.server.limits.places.Taken(), 0)
}

// A claim of a Hold stream keeps its place when the stream ends: one in a queue, and one that the member has yet to answer.
func TestLeftClaimsOfHoldKeepTheirPlaces(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	c := f.holder()
	c.send(&leasekeeperv1.HoldRequest{Holder: &leasekeeperv1.Holder{Id: "h"}, Claims: []*leasekeeperv1.HoldClaim{c.claim("n", 2)}})
	c.wants(1, leasekeeperv1.HoldAnswer_IN_LINE)
	c.cancel()
	eventually(t, "it is left", func() bool { return f.server.left.many.Load() == 1 })
	wantEqual(t, "places", f.server.limits.places.Taken(), 1)
	wantOK(t, f.server.endIfWaiting(f.ctx(), leftKey{"n", 2}))
	wantEqual(t, "waiting", f.info("n").Waiting, 0)

	h := newHolding(f.server, nil, "another")
	h.holder = []byte("{}")
	req := &leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{{Number: 1, Name: "n", Lease: 3, TtlMs: 60_000, Wait: true}}}
	batch := h.newBatch()
	h.admitAll(batch, h.check(batch, req, 1))
	h.leave()
	wantEqual(t, "left", f.server.left.many.Load(), 2)
	wantEqual(t, "places", f.server.limits.places.Taken(), 2)
	f.server.limits.requests.End(1) // nobody answers the request
}

// Claims that were refused take no places when their stream ends before they are answered.
func TestRefusedClaimsOfAnEndedStreamTakeNoPlaces(t *testing.T) {
	f := startFront(t)
	s := f.server
	h := newHolding(s, nil, "client")
	most := s.cfg.MaxRequests / 2
	for range most {
		wantOK(t, h.share.Take())
	}
	req := &leasekeeperv1.HoldRequest{Holder: &leasekeeperv1.Holder{Id: "h"}}
	for i := range int64(10) {
		req.Claims = append(req.Claims, &leasekeeperv1.HoldClaim{Number: uint64(i + 1), Name: "n", Lease: i + 1, TtlMs: 60_000, Wait: true})
	}
	h.holder = []byte("{}")
	batch := h.newBatch()
	h.admitAll(batch, h.check(batch, req, len(req.Claims)))
	h.leave()
	wantEqual(t, "places", s.limits.places.Taken(), int64(most))
}

// releasing is a member whose name "n" its first holder releases just after the queue was looked at.
type releasing struct {
	*node.Node
	once sync.Once
}

func (m *releasing) Txn(ctx context.Context, r keyspace.TxnRequest, serializable bool) (replica.Header, keyspace.TxnResult, error) {
	header, result, err := m.Node.Txn(ctx, r, serializable)
	if len(r.Compare) == 0 {
		m.once.Do(func() { _, err = m.Release(ctx, "n", 1) })
	}
	return header, result, err
}

// A left claim that gets its turn while the server is about to end it keeps the name.
func TestLeftClaimThatGetsItsTurnIsKept(t *testing.T) {
	f := startWith(t, anyPort(), func(n *node.Node) member { return &releasing{Node: n} })
	f.hold("n", 1, 60_000)
	f.wait("n", 2, 60_000).cancel()
	wantOK(t, f.server.endIfWaiting(f.ctx(), leftKey{"n", 2}))
	wantEqual(t, "holder", f.info("n").Lease, 2)
}

// Nobody keeps a name for longer than the operator allows without renewing. Etcd's leases have etcd's own bound.
func TestMaxTTLOfNames(t *testing.T) {
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
