package namesapi

import (
	"context"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

const (
	// maxIdleBatches bounds how many batches a stream keeps to be used again, and maxIdleRequests how large
	// they are: those of most streams are small, and the larger ones cost little for each request.
	maxIdleBatches  = 16
	maxIdleRequests = 16
)

// holdBatch is what was handed to the member together, and before its end what was not taken on at all.
type holdBatch struct {
	requests []holdRequest
	answer   func([]node.HoldAnswer) // by the member
	answered int                     // how many were, to the client; of the sending side

	// Guarded by the stream's lock.
	since  time.Time
	open   int  // how many are not answered by the member
	queued bool // among those that were handed
}

// holdAnswers are to requests of one batch.
type holdAnswers struct {
	batch *holdBatch
	known []node.HoldAnswer
}

// newBatch returns one for the next requests. The lock is held.
func (h *holding) newBatch() *holdBatch {
	if n := len(h.idle); n > 0 {
		batch := h.idle[n-1]
		h.idle[n-1], h.idle = nil, h.idle[:n-1]
		return batch
	}
	batch := new(holdBatch)
	batch.answer = func(known []node.HoldAnswer) {
		h.s.cfg.Requests.End(len(known))
		h.deliver(batch, known)
	}
	return batch
}

// retire has batches that were answered in full be used again. One that an older one still keeps in the queue is
// not. The lock is held.
func (h *holding) retire() {
	for i, batch := range h.over {
		h.over[i] = nil
		if batch.queued || cap(batch.requests) > maxIdleRequests || len(h.idle) >= maxIdleBatches {
			continue
		}
		clear(batch.requests)
		batch.requests, batch.answered = batch.requests[:0], 0
		h.idle = append(h.idle, batch)
	}
	h.over = h.over[:0]
}

// hand gives the requests of a message to the member. Its error is that of a client that breaks the rules.
func (h *holding) hand(ctx context.Context, req *leasekeeperv1.HoldRequest, n int) error {
	if err := h.number(req); err != nil {
		return err
	}
	batch := h.next
	h.next = nil
	ops := h.check(batch, req, n)
	ops, reasons := h.admitAll(batch, ops)
	h.deliver(batch, reasons)
	if len(ops) == 0 {
		return nil
	}
	if err := h.s.cfg.Member.Hold(ctx, h.watch, ops, batch.answer); err != nil {
		batch.notHanded(len(ops), err)
	}
	return nil
}

// number checks that the numbers of requests grow, of all before one of them is taken on.
func (h *holding) number(req *leasekeeperv1.HoldRequest) error {
	for _, r := range req.Releases {
		if err := h.follows(r.Number); err != nil {
			return err
		}
	}
	for _, c := range req.Claims {
		if err := h.follows(c.Number); err != nil {
			return err
		}
	}
	return nil
}

func (h *holding) follows(number uint64) error {
	if number <= h.last {
		return fmt.Errorf("%w: request %d comes after request %d: give each a larger number", backend.ErrInvalid, number, h.last)
	}
	h.last = number
	return nil
}

// check turns the requests of a message into those of a batch, and into operations. It notes what is wrong with which.
func (h *holding) check(batch *holdBatch, req *leasekeeperv1.HoldRequest, n int) []entry.Command {
	ops := make([]entry.Command, 0, n) // the member's from here on
	h.errs = h.errs[:0]
	if cap(batch.requests) < n {
		batch.requests = make([]holdRequest, 0, n)
	}
	for _, r := range req.Releases {
		release := ownership.Release{Name: r.Name, Lease: lessor.ID(r.Lease)}
		ops = append(ops, release)
		batch.requests = append(batch.requests, holdRequest{number: r.Number, name: r.Name, lease: release.Lease})
		h.errs = append(h.errs, checkLease(r.Name, r.Lease))
	}
	for _, c := range req.Claims {
		claim, err := h.claim(c)
		ops = append(ops, claim)
		batch.requests = append(batch.requests,
			holdRequest{c.Number, claim.Name, claim.Lease, max(claim.TTL, 1), claim.Holder, claim.Wait})
		h.errs = append(h.errs, err)
	}
	return ops
}

func (h *holding) claim(c *leasekeeperv1.HoldClaim) (ownership.Claim, error) {
	claim, err := h.s.newClaim(c.Name, c.Lease, c.TtlMs, c.Wait)
	switch {
	case err != nil:
	case c.Lease == 0:
		err = errLeaseID(c.Lease)
	case c.Holder != nil || h.holder == nil && h.holderErr == nil:
		claim.Holder, err = writeHolder(c.Holder)
	default:
		claim.Holder, err = h.holder, h.holderErr
	}
	return claim, err
}

// admitAll takes requests on that nothing is wrong with, as far as there is room. It returns their operations, and why
// it refuses the others.
func (h *holding) admitAll(batch *holdBatch, ops []entry.Command) (taken []entry.Command, reasons []node.HoldAnswer) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	all := true
	for i := range batch.requests {
		if h.errs[i] == nil {
			h.errs[i] = h.admit(&batch.requests[i])
		}
		all = all && h.errs[i] == nil
	}
	batch.since, batch.open, batch.queued = now, len(batch.requests), true
	h.handed = append(h.handed, batch)
	if all {
		return ops, nil
	}
	return batch.part(ops, h.errs) // before the lock is given up: leave counts the requests that wait
}

// admit takes a request on, unless there are too many. The lock is held.
func (h *holding) admit(r *holdRequest) error {
	if h.closing != nil {
		return h.closing
	}
	if r.waits {
		if h.waiting >= h.s.cfg.MaxStreams {
			return admission.ErrShareTaken
		}
		h.s.left.back(r.key())
		if err := h.share.Take(); err != nil {
			return err
		}
	}
	if err := h.s.cfg.Requests.Begin(); err != nil {
		if r.waits {
			h.share.Give(1)
		}
		return err
	}
	if r.waits {
		h.waiting++
	}
	return nil
}

// part puts the requests that are refused behind the others, whose operations it returns, and says why.
func (b *holdBatch) part(ops []entry.Command, errs []error) (taken []entry.Command, reasons []node.HoldAnswer) {
	kept, refused := b.requests[:0], []holdRequest(nil)
	taken = ops[:0]
	for i, r := range b.requests {
		if errs[i] == nil {
			kept, taken = append(kept, r), append(taken, ops[i])
			continue
		}
		r.waits = false // it is not counted as one that does
		refused, reasons = append(refused, r), append(reasons, node.HoldAnswer{Err: errs[i]})
	}
	for i := range reasons {
		reasons[i].Place = len(kept) + i
	}
	b.requests = append(kept, refused...)
	return taken, reasons
}

// notHanded answers the first n requests, which the member did not take on.
func (b *holdBatch) notHanded(n int, err error) {
	all := make([]node.HoldAnswer, n)
	for i := range all {
		all[i] = node.HoldAnswer{Place: i, Err: err}
	}
	b.answer(all)
}
