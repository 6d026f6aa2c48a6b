package namesapi

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A batch is reused once it is answered in full and no older batch keeps it in the queue. It then contains nothing of
// its earlier use. A large batch is not reused.
func TestHoldReusesAnsweredBatches(t *testing.T) {
	s := startService(t)
	h := newHoldSession(s, nil, "tester")
	defer h.leave()
	queue := func(n int) *holdBatch {
		h.mu.Lock()
		batch := h.newBatch()
		h.mu.Unlock()
		for range n {
			batch.requests = append(batch.requests, holdRequest{number: 1, name: "n", holder: []byte("me")})
			h.errs = append(h.errs[:0], make([]error, len(batch.requests))...)
		}
		_, refused := h.admitAll(batch, nil)
		wantEqual(t, "refused", len(refused), 0)
		return batch
	}
	answer := func(batch *holdBatch, places ...int) {
		for _, place := range places {
			batch.answer([]node.HoldAnswer{{Place: place, Ended: true}})
		}
		h.answerAll(h.delivered)
		h.delivered = nil
		h.retire()
	}
	old, younger, large := queue(2), queue(1), queue(maxIdleRequests+1)
	answer(younger, 0)
	wantEqual(t, "idle behind an older one", len(h.idle), 0)
	answer(old, 1)
	wantEqual(t, "idle and not answered in full", len(h.idle), 0)
	answer(old, 0)
	wantEqual(t, "idle", len(h.idle), 1)
	wantEqual(t, "what it keeps", h.idle[0].requests[:1][0].name, "")
	for place := range large.requests {
		answer(large, place)
	}
	wantEqual(t, "idle", len(h.idle), 1)
	for range 3 {
		again := queue(2)
		wantEqual(t, "it is the same", again == old, true)
		answer(again, 0, 1)
	}
	wantEqual(t, "waited for", len(h.submitted), 0)
	wantEqual(t, "requests under way", s.cfg.Requests.Open(), 0)
}

// After missed changes, because more happened than the watch keeps, the session looks up its claims.
func TestHoldRechecksClaimsAfterMissedChanges(t *testing.T) {
	s := startService(t)
	h := newHoldSession(s, nil, "tester")
	defer h.leave()
	for i, name := range []string{"mine", "another", "lost"} {
		hold(t, s, name, lessor.ID(i+1))
		claim := ownership.Claim{Lease: lessor.ID(11 + i), TTL: 1e10, Name: name, Wait: true}
		h.waiting++
		wantOK(t, h.share.Take())
		known := make(chan []node.HoldAnswer, 1)
		wantOK(t, s.cfg.Member.Hold(t.Context(), h.watch, []entry.Command{claim}, func(k []node.HoldAnswer) { known <- k }))
		request := holdRequest{uint64(i + 1), name, claim.Lease, claim.TTL, nil, true, ""}
		h.answerAll([]holdAnswers{{&holdBatch{requests: []holdRequest{request}}, <-known}})
	}
	wantEqual(t, "queued", len(h.byNumber), 3)
	h.out = nil
	release(t, s, "mine", 1)
	release(t, s, "lost", 13)
	wantOK(t, h.recheck(t.Context()))
	states := make(map[uint64]leasekeeperv1.HoldAnswer_State)
	for _, a := range h.out {
		states[a.Number] = a.State
	}
	wantEqual(t, "answers", len(states), 2)
	wantEqual(t, "mine", states[1], leasekeeperv1.HoldAnswer_HELD)
	wantEqual(t, "lost", states[3], leasekeeperv1.HoldAnswer_FAILED)
	wantEqual(t, "queued", len(h.byNumber), 1)
}
