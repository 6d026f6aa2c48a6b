package namesapi

import (
	"bytes"
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

// newAnswer adds an answer to the next message, for the caller to fill in.
func (h *holdSession) newAnswer(number uint64) *leasekeeperv1.HoldAnswer {
	var a *leasekeeperv1.HoldAnswer
	if n := len(h.spare); n > 0 {
		a, h.spare = h.spare[n-1], h.spare[:n-1]
		a.Reset()
	} else {
		a = new(leasekeeperv1.HoldAnswer)
	}
	a.Number = number
	h.out = append(h.out, a)
	return a
}

// holdTally counts answers, so that metrics and places are updated once for many answers.
type holdTally struct{ acquired, released, waited int }

// answerAll prepares the first answers to requests, and returns their number.
func (h *holdSession) answerAll(delivered []holdAnswers) int {
	n := 0
	h.done = holdTally{}
	for _, d := range delivered {
		for i := range d.known {
			r := &d.batch.requests[d.known[i].Place]
			h.answer(r, &d.known[i])
			if r.trace != "" {
				h.s.cfg.LogSlow(r.trace, r.method(), time.Since(d.batch.since), d.known[i].Err)
			}
		}
		n += len(d.known)
		if d.batch.answered += len(d.known); d.batch.answered == len(d.batch.requests) {
			h.completed = append(h.completed, d.batch)
		}
	}
	h.s.cfg.Metrics.Count(leasekeeperv1.Leasekeeper_Acquire_FullMethodName, codes.OK, h.done.acquired)
	h.s.cfg.Metrics.Count(leasekeeperv1.Leasekeeper_Release_FullMethodName, codes.OK, h.done.released)
	h.releasePlaces(h.done.waited)
	return n
}

// answer prepares the first answer to a request.
func (h *holdSession) answer(r *holdRequest, known *node.HoldAnswer) {
	a, claimed := h.newAnswer(r.number), &known.Claimed
	if known.Err == nil && r.ttl > 0 && claimed.Lease != lessor.NoLease && !sameHolder(claimed.Holder, r.holder) {
		known.Err = ownership.ErrLeaseTaken
	}
	switch {
	case known.Err != nil:
		h.fail(a, r, known.Err)
	case r.ttl == 0:
		a.State, a.Ended = leasekeeperv1.HoldAnswer_RELEASED, known.Ended
		h.s.abandoned.resume(r.key())
		h.done.released++
	case claimed.Lease == lessor.NoLease:
		a.State, a.Current = leasekeeperv1.HoldAnswer_REFUSED, nameInfo(claimed.Current)
	case claimed.Before == 0:
		a.State = leasekeeperv1.HoldAnswer_HELD
	default:
		a.State, a.Current = leasekeeperv1.HoldAnswer_WAITING, nameInfo(claimed.Current)
	}
	if known.Err == nil && claimed.Lease != lessor.NoLease {
		a.TtlMs, a.Token, a.Place = claimed.TTL.Milliseconds(), uint64(claimed.Token), int32(claimed.Before)
		a.Overtaken = claimed.Overtaken
	}
	switch {
	case known.Waits && known.Err == nil:
		queued := *r
		queued.ttl = claimed.TTL
		h.byNumber[r.number] = &queued
		h.byLease[r.lease] = append(h.byLease[r.lease], &queued)
		h.s.abandoned.attach(r.key())
		return
	case known.Waits:
		h.watch.Drop(r.lease)
	}
	if known.Err == nil && r.ttl > 0 {
		h.done.acquired++
	}
	if r.waits {
		h.done.waited++
	}
}

// sameHolder reports whether two cards have the same holder id. The rest of a card may have changed since the claim.
func sameHolder(stored, claims []byte) bool {
	return bytes.Equal(stored, claims) || readHolder(stored).Id == readHolder(claims).Id
}

// fail fills in the answer to a failed request.
func (h *holdSession) fail(a *leasekeeperv1.HoldAnswer, r *holdRequest, err error) {
	if ended := (*ownership.EndedError)(nil); errors.As(err, &ended) && errors.Is(err, ownership.ErrLost) {
		err = &lostClaim{ended.Why, ended.Note}
	}
	code, reason, text := h.s.refuse(tracing.LogID(r.trace, h.s.cfg.Log), err)
	a.State, a.Code, a.Reason, a.Error = leasekeeperv1.HoldAnswer_FAILED, uint32(code), reason, text
	h.s.cfg.Metrics.Count(r.method(), code, 1)
}

// applyChanges answers waiting claims that now hold their name, or have lost their place.
func (h *holdSession) applyChanges(ctx context.Context, changes []ownership.Change) {
	for i := range changes {
		c := &changes[i]
		if c.Lease != lessor.NoLease {
			h.resolve(ctx, c.Lease, c.State.Name, 0, &lostClaim{c.Why, c.Note})
		}
		if c.State.Held {
			h.resolve(ctx, c.State.Lease, c.State.Name, c.State.Token, nil)
		}
	}
}

// resolve answers the waiting claims of a lease for one name, with an error or, if the user may hold it, with a token. The lease may wait for other
// names too, by etcd's recipe.
func (h *holdSession) resolve(ctx context.Context, lease lessor.ID, name string, token int64, err error) {
	for _, r := range h.byLease[lease] {
		if r.name != name {
			continue
		}
		if err == nil {
			err = h.s.mayTakeTurn(ctx, r.key())
		}
		a := h.newAnswer(r.number)
		if err != nil {
			h.fail(a, r, err)
		} else {
			a.State, a.TtlMs, a.Token = leasekeeperv1.HoldAnswer_HELD, r.ttl.Milliseconds(), uint64(token)
			h.s.cfg.Metrics.Count(leasekeeperv1.Leasekeeper_Acquire_FullMethodName, codes.OK, 1)
		}
		h.drop(r)
	}
}

// drop removes a waiting claim. Its client receives no more answers about it.
func (h *holdSession) drop(r *holdRequest) {
	delete(h.byNumber, r.number)
	var left []*holdRequest
	for _, other := range h.byLease[r.lease] {
		if other != r {
			left = append(left, other)
		}
	}
	if len(left) > 0 {
		h.byLease[r.lease] = left
	} else {
		delete(h.byLease, r.lease)
	}
	h.watch.Drop(r.lease)
	h.s.abandoned.detach(r.key())
	h.releasePlaces(1)
}

// forget drops waiting claims about which the client wants no more answers. A claim that is not answered yet is still
// answered.
func (h *holdSession) forget(numbers []uint64) {
	for _, number := range numbers {
		if r := h.byNumber[number]; r != nil {
			h.drop(r)
			h.s.abandoned.abandon(h.share, r.key(), r.ttl)
		}
	}
}

// recheck looks up all waiting claims after changes were missed.
func (h *holdSession) recheck(ctx context.Context) error {
	for _, r := range h.byNumber { // order: each one separately
		place, err := h.s.cfg.Member.Place(ctx, r.name, r.lease)
		switch {
		case errors.Is(err, ownership.ErrLost), errors.Is(err, access.ErrPermissionDenied):
			h.resolve(ctx, r.lease, r.name, 0, err)
		case err != nil:
			return err
		case place.Before == 0:
			h.resolve(ctx, r.lease, r.name, place.Token, nil)
		}
	}
	return nil
}
