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
	// maxIdleBatches bounds the batches that a stream keeps for reuse, and maxIdleRequests the requests of each. Most
	// streams have small batches, and a large batch costs little per request.
	maxIdleBatches  = 16
	maxIdleRequests = 16
)

// holdBatch contains the requests that were submitted to the member together, followed by those that were refused.
type holdBatch struct {
	requests []holdRequest
	answer   func([]node.HoldAnswer) // receives the member's answers
	answered int                     // requests whose answer was prepared; used by the sending side
	since    time.Time               // set before the member receives the batch

	// The stream's lock guards the fields below.
	open   int  // requests that the member has not answered
	queued bool // in holdSession.submitted
}

// holdAnswers are the member's answers to requests of one batch.
type holdAnswers struct {
	batch *holdBatch
	known []node.HoldAnswer
}

// newBatch returns an empty batch. The caller holds the lock.
func (h *holdSession) newBatch() *holdBatch {
	if n := len(h.idle); n > 0 {
		batch := h.idle[n-1]
		h.idle[n-1], h.idle = nil, h.idle[:n-1]
		return batch
	}
	batch := new(holdBatch)
	batch.answer = func(known []node.HoldAnswer) {
		h.s.cfg.Requests.End(h.user, len(known))
		h.deliver(batch, known)
	}
	return batch
}

// retire keeps completed batches for reuse. It skips a batch that an older one still keeps in the queue. The caller
// holds the lock.
func (h *holdSession) retire() {
	for i, batch := range h.completed {
		h.completed[i] = nil
		if batch.queued || cap(batch.requests) > maxIdleRequests || len(h.idle) >= maxIdleBatches {
			continue
		}
		clear(batch.requests)
		batch.requests, batch.answered = batch.requests[:0], 0
		h.idle = append(h.idle, batch)
	}
	h.completed = h.completed[:0]
}

// submit submits the requests of a message to the member. It returns an error if the client violates the protocol.
func (h *holdSession) submit(ctx context.Context, req *leasekeeperv1.HoldRequest, n int) error {
	if err := h.checkNumbers(req); err != nil {
		return err
	}
	batch := h.next
	h.next = nil
	ops := h.check(ctx, batch, req, n)
	ops, reasons := h.admitAll(batch, ops)
	h.deliver(batch, reasons)
	if len(ops) == 0 {
		return nil
	}
	if err := h.s.cfg.Member.Hold(ctx, h.watch, ops, batch.answer); err != nil {
		batch.failAll(len(ops), err)
	}
	return nil
}

// checkNumbers checks that the numbers of all requests increase, before any of them is accepted.
func (h *holdSession) checkNumbers(req *leasekeeperv1.HoldRequest) error {
	for _, r := range req.Releases {
		if err := h.checkNumber(r.Number); err != nil {
			return err
		}
	}
	for _, c := range req.Claims {
		if err := h.checkNumber(c.Number); err != nil {
			return err
		}
	}
	return nil
}

func (h *holdSession) checkNumber(number uint64) error {
	if number <= h.last {
		return fmt.Errorf("%w: request %d comes after request %d: give each a larger number", backend.ErrInvalid, number, h.last)
	}
	h.last = number
	return nil
}

// check converts the requests of a message into those of a batch, and into commands. It records in h.errs what is wrong
// with each.
func (h *holdSession) check(ctx context.Context, batch *holdBatch, req *leasekeeperv1.HoldRequest, n int) []entry.Command {
	ops := make([]entry.Command, 0, n) // owned by the member from here on
	h.errs = h.errs[:0]
	if cap(batch.requests) < n {
		batch.requests = make([]holdRequest, 0, n)
	}
	for _, r := range req.Releases {
		release := ownership.Release{Name: r.Name, Lease: lessor.ID(r.Lease)}
		ops = append(ops, release)
		batch.requests = append(batch.requests,
			holdRequest{number: r.Number, name: r.Name, lease: release.Lease, trace: h.traceOf(r.Traceparent)})
		h.errs = append(h.errs, checkLease(r.Name, r.Lease))
	}
	for _, c := range req.Claims {
		claim, err := h.claim(c)
		if err == nil {
			err = h.s.cfg.Rights.CountClaim(ctx)
		}
		ops = append(ops, claim)
		batch.requests = append(batch.requests,
			holdRequest{c.Number, claim.Name, claim.Lease, max(claim.TTL, 1), claim.Holder, claim.Wait, h.traceOf(c.Traceparent)})
		h.errs = append(h.errs, err)
	}
	return ops
}

func (h *holdSession) claim(c *leasekeeperv1.HoldClaim) (ownership.Claim, error) {
	claim, err := h.s.newClaim(c.Name, c.Lease, c.TtlMs, c.Wait, c.Priority)
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

// admitAll accepts the valid requests for which there is room. It returns their commands, and the reasons of the
// refused ones.
func (h *holdSession) admitAll(batch *holdBatch, ops []entry.Command) (taken []entry.Command, reasons []node.HoldAnswer) {
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
	h.submitted = append(h.submitted, batch)
	if all {
		return ops, nil
	}
	return batch.separateRefused(ops, h.errs) // under the lock, because leave counts the waiting requests
}

// admit accepts a request, or returns the bound that it exceeds. The caller holds the lock.
func (h *holdSession) admit(r *holdRequest) error {
	if h.closing != nil {
		return h.closing
	}
	if r.waits {
		if h.waiting >= h.s.cfg.MaxStreams {
			return admission.ErrShareTaken
		}
		h.s.abandoned.resume(r.key())
		if err := h.share.Take(); err != nil {
			return err
		}
	}
	if err := h.s.cfg.Requests.Begin(h.user); err != nil {
		if r.waits {
			h.share.Release(1)
		}
		return err
	}
	if r.waits {
		h.waiting++
	}
	return nil
}

// separateRefused moves the refused requests behind the accepted ones. It returns the commands of the accepted ones,
// and the reasons of the others.
func (b *holdBatch) separateRefused(ops []entry.Command, errs []error) (taken []entry.Command, reasons []node.HoldAnswer) {
	kept, refused := b.requests[:0], []holdRequest(nil)
	taken = ops[:0]
	for i, r := range b.requests {
		if errs[i] == nil {
			kept, taken = append(kept, r), append(taken, ops[i])
			continue
		}
		r.waits = false // it occupies no place
		refused, reasons = append(refused, r), append(reasons, node.HoldAnswer{Err: errs[i]})
	}
	for i := range reasons {
		reasons[i].Place = len(kept) + i
	}
	b.requests = append(kept, refused...)
	return taken, reasons
}

// failAll answers the first n requests with an error of the member, which accepted none.
func (b *holdBatch) failAll(n int, err error) {
	all := make([]node.HoldAnswer, n)
	for i := range all {
		all[i] = node.HoldAnswer{Place: i, Err: err}
	}
	b.answer(all)
}
