package namesapi

import (
	"bytes"
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// blank returns an answer to be filled in and sent.
func (h *holding) blank(number uint64) *leasekeeperv1.HoldAnswer {
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

// holdTally is what answers have done, to be counted all at once.
type holdTally struct{ acquired, released, waited int }

// answerAll answers requests for the first time, and returns how many.
func (h *holding) answerAll(delivered []holdAnswers) int {
	n := 0
	h.done = holdTally{}
	for _, d := range delivered {
		for i := range d.known {
			h.answer(&d.batch.requests[d.known[i].Place], &d.known[i])
		}
		n += len(d.known)
		if d.batch.answered += len(d.known); d.batch.answered == len(d.batch.requests) {
			h.over = append(h.over, d.batch)
		}
	}
	h.s.cfg.Metrics.Count(leasekeeperv1.Leasekeeper_Acquire_FullMethodName, codes.OK, h.done.acquired)
	h.s.cfg.Metrics.Count(leasekeeperv1.Leasekeeper_Release_FullMethodName, codes.OK, h.done.released)
	h.waited(h.done.waited)
	return n
}

// answer tells what became of a request.
func (h *holding) answer(r *holdRequest, known *node.HoldAnswer) {
	a, claimed := h.blank(r.number), &known.Claimed
	if known.Err == nil && r.ttl > 0 && claimed.Lease != lessor.NoLease && !sameHolder(claimed.Holder, r.holder) {
		known.Err = ownership.ErrLeaseTaken
	}
	switch {
	case known.Err != nil:
		h.fail(a, r, known.Err)
	case r.ttl == 0:
		a.State, a.Ended = leasekeeperv1.HoldAnswer_RELEASED, known.Ended
		h.s.left.back(r.key())
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
	}
	switch {
	case known.Waits && known.Err == nil:
		queued := *r
		queued.ttl = claimed.TTL
		h.byNumber[r.number] = &queued
		h.byLease[r.lease] = append(h.byLease[r.lease], &queued)
		h.s.left.listen(r.key())
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

// sameHolder says whether a lease was claimed by that holder: its card may have changed since.
func sameHolder(stored, claims []byte) bool {
	return bytes.Equal(stored, claims) || readHolder(stored).Id == readHolder(claims).Id
}

// fail tells that a request failed.
func (h *holding) fail(a *leasekeeperv1.HoldAnswer, r *holdRequest, err error) {
	if ended := (*ownership.EndedError)(nil); errors.As(err, &ended) && errors.Is(err, ownership.ErrLost) {
		err = &lostClaim{ended.Why, ended.Note}
	}
	code, reason, text := h.s.refuse(err)
	a.State, a.Code, a.Reason, a.Error = leasekeeperv1.HoldAnswer_FAILED, uint32(code), reason, text
	method := leasekeeperv1.Leasekeeper_Acquire_FullMethodName
	if r.ttl == 0 {
		method = leasekeeperv1.Leasekeeper_Release_FullMethodName
	}
	h.s.cfg.Metrics.Count(method, code, 1)
}

// turns tells queued claims that they got their turn, or lost their place.
func (h *holding) turns(changes []ownership.Change) {
	for i := range changes {
		c := &changes[i]
		if c.Lease != lessor.NoLease {
			h.settle(c.Lease, c.State.Name, 0, &lostClaim{c.Why, c.Note})
		}
		if c.State.Held {
			h.settle(c.State.Lease, c.State.Name, c.State.Token, nil)
		}
	}
}

// settle answers the claims that wait for the turn of a lease on that name: etcd's clients can also queue the lease for
// other names.
func (h *holding) settle(lease lessor.ID, name string, token int64, err error) {
	for _, r := range h.byLease[lease] {
		if r.name != name {
			continue
		}
		a := h.blank(r.number)
		if err != nil {
			h.fail(a, r, err)
		} else {
			a.State, a.TtlMs, a.Token = leasekeeperv1.HoldAnswer_HELD, r.ttl.Milliseconds(), uint64(token)
			h.s.cfg.Metrics.Count(leasekeeperv1.Leasekeeper_Acquire_FullMethodName, codes.OK, 1)
		}
		h.drop(r)
	}
}

// drop forgets a claim: its client receives nothing more about it.
func (h *holding) drop(r *holdRequest) {
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
	h.s.left.unlisten(r.key())
	h.waited(1)
}

// forget is for claims about whose turn the client does not want to hear any more. One that is not answered
// yet is told of nevertheless.
func (h *holding) forget(numbers []uint64) {
	for _, number := range numbers {
		if r := h.byNumber[number]; r != nil {
			h.drop(r)
			h.s.left.leave(h.share, r.key(), r.ttl)
		}
	}
}

// lookAgain asks about all queued claims, after changes were missed.
func (h *holding) lookAgain(ctx context.Context) error {
	for _, r := range h.byNumber { // order: each by itself
		place, err := h.s.cfg.Member.Place(ctx, r.name, r.lease)
		switch {
		case errors.Is(err, ownership.ErrLost):
			h.settle(r.lease, r.name, 0, err)
		case err != nil:
			return err
		case place.Before == 0:
			h.settle(r.lease, r.name, place.Token, nil)
		}
	}
	return nil
}
