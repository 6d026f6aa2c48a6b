package namesapi

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// A claim that the member has not answered keeps its place when its Hold stream ends.
func TestUnansweredClaimOfHoldKeepsItsPlace(t *testing.T) {
	s := startService(t)
	h := newHoldSession(s, nil, "another")
	h.holder = []byte("{}")
	req := &leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{{Number: 1, Name: "n", Lease: 3, TtlMs: 60_000, Wait: true}}}
	batch := h.newBatch()
	h.admitAll(batch, h.check(t.Context(), batch, req, 1))
	h.leave()
	wantEqual(t, "left", s.AbandonedClaims(), 1)
	wantEqual(t, "places", s.cfg.Places.Taken(), 1)
}

// Refused claims take no places if their stream ends before they are answered.
func TestRefusedClaimsOfAnEndedStreamTakeNoPlaces(t *testing.T) {
	s := startService(t)
	h := newHoldSession(s, nil, "client")
	const most = testRequests / 2
	for range most {
		wantOK(t, h.share.Take())
	}
	req := &leasekeeperv1.HoldRequest{Holder: &leasekeeperv1.Holder{Id: "h"}}
	for i := range int64(10) {
		req.Claims = append(req.Claims, &leasekeeperv1.HoldClaim{Number: uint64(i + 1), Name: "n", Lease: i + 1, TtlMs: 60_000, Wait: true})
	}
	h.holder = []byte("{}")
	batch := h.newBatch()
	h.admitAll(batch, h.check(t.Context(), batch, req, len(req.Claims)))
	h.leave()
	wantEqual(t, "places", s.cfg.Places.Taken(), int64(most))
}

func TestAbandonedClaimIsDeletedFromItsQueue(t *testing.T) {
	s := startService(t)
	hold(t, s, "n", 1)
	hold(t, s, "n", 2)
	wantOK(t, s.removeIfWaiting(t.Context(), claimKey{"n", 2}))
	if _, err := s.cfg.Member.Place(t.Context(), "n", 2); !errors.Is(err, ownership.ErrLost) {
		t.Errorf("the claim is still queued: %v", err)
	}
	wantEqual(t, "holder", holderOf(t, s, "n"), 1)
}

// releasing is a member whose name "n" is released by its first holder just after the queue was read.
type releasing struct {
	Member
	once sync.Once
}

func (m *releasing) Txn(ctx context.Context, r keyspace.TxnRequest, serializable bool) (replica.Header, keyspace.TxnResult, error) {
	header, result, err := m.Member.Txn(ctx, r, serializable)
	if len(r.Compare) == 0 {
		m.once.Do(func() { _, err = m.Release(ctx, "n", 1) })
	}
	return header, result, err
}

// An abandoned claim that becomes the owner while the server is about to remove it keeps the name.
func TestAbandonedClaimThatBecomesOwnerIsKept(t *testing.T) {
	s := startService(t)
	hold(t, s, "n", 1)
	hold(t, s, "n", 2)
	s.cfg.Member = &releasing{Member: s.cfg.Member}
	wantOK(t, s.removeIfWaiting(t.Context(), claimKey{"n", 2}))
	wantEqual(t, "holder", holderOf(t, s, "n"), 2)
	wantOK(t, s.removeIfWaiting(t.Context(), claimKey{"n", 2})) // an owner keeps its name
	wantEqual(t, "holder", holderOf(t, s, "n"), 2)
}
