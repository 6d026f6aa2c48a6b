package namesapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/holdwire"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/duplex"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

const (
	// maxHoldRequests bounds one message, which is one call of the node.
	maxHoldRequests = 1024
	// maxHoldOpen bounds what one stream has under way besides the queued claims; beyond it no more is read.
	maxHoldOpen = 1024
	// maxHoldAnswers bounds one message of answers, so that it stays below the 4 MiB that clients take unless
	// told otherwise however much there is to say about each name.
	maxHoldAnswers = 256
)

type holdStream = grpc.BidiStreamingServer[leasekeeperv1.HoldRequest, leasekeeperv1.HoldResponse]

// Hold works as Renew does: one goroutine reads and hands to the member, the member's own delivers, another
// sends. This one looks after them: it ends the stream when its client does not read, or the member is stuck.
func (n *Service) Hold(stream holdStream) error {
	ctx, end := n.cfg.Lifetime.Stream(stream.Context(), lifetime.OneLeadership)
	defer end(nil)
	defer n.cfg.Metrics.OpenHold()()
	h := newHolding(n, stream, admission.IdentityOf(ctx))
	defer close(h.gone)
	served := make(chan error, 1)
	n.cfg.Lifetime.Go(func() { h.finish(h.read(ctx)) })
	n.cfg.Lifetime.Go(func() { served <- h.serve(ctx) })
	look := time.NewTicker(n.cfg.RequestTimeout / 4)
	defer look.Stop()
	for {
		select {
		case err := <-served:
			return err
		case <-look.C:
			if err := h.stuck(n.cfg.RequestTimeout); err != nil {
				return err
			}
		}
	}
}

// holding is one stream of claims and releases.
type holding struct {
	s      *Service
	stream holdStream
	watch  *node.NameWatch  // tells of the queued claims
	share  *admission.Share // of the places to wait
	wake   chan struct{}    // tells the sending side that there is something to do; holds one
	room   chan struct{}    // tells the reading side that something was answered; holds one
	gone   chan struct{}    // closed when the stream has ended

	// Of the reading side.
	request   leasekeeperv1.HoldRequest // used again and again: nothing of it but its strings is kept
	next      *holdBatch                // for the next requests
	errs      []error                   // why not, for each request of a message; used again and again
	last      uint64                    // number
	holder    []byte                    // who makes the claims that do not say so
	holderErr error

	mu        sync.Mutex
	open      int          // requests that were read, and whose first answer was not sent
	waiting   int          // claims that count among those that wait
	handed    []*holdBatch // to the member, from the oldest that is not answered in full
	delivered []holdAnswers
	idle      []*holdBatch // to be used again
	forgotten []uint64
	sending   time.Time // since when a message is being sent; zero if none is
	closing   error     // why requests are no longer taken; nil while they are
	ended     bool      // nothing more will be read
	err       error     // why, nil if the client just has no more requests

	// Of the sending side: the queued claims.
	byLease  map[lessor.ID][]*holdRequest
	byNumber map[uint64]*holdRequest
	out      []*leasekeeperv1.HoldAnswer
	spare    []*leasekeeperv1.HoldAnswer // used again and again
	taken    []holdAnswers               // likewise
	over     []*holdBatch                // answered in full
	done     holdTally
}

// holdRequest is one claim or release.
type holdRequest struct {
	number uint64
	name   string
	lease  lessor.ID
	ttl    time.Duration // 0: it is a release
	holder []byte
	waits  bool
}

func (r *holdRequest) key() leftKey { return leftKey{r.name, r.lease} }

func newHolding(s *Service, stream holdStream, who admission.Identity) *holding {
	h := &holding{
		s: s, stream: stream,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gone: make(chan struct{}),
		byLease: make(map[lessor.ID][]*holdRequest), byNumber: make(map[uint64]*holdRequest),
		share: s.cfg.Places.Join(who),
	}
	h.watch = s.cfg.Member.WatchClaims(h.wake)
	return h
}

// errNotRead ends a stream. What its client has not read is as good as not answered.
var errNotRead = fmt.Errorf("%w: the client does not read the answers", replica.ErrUnknownOutcome)

// stuck says why the stream must be ended: something takes longer than one may wait for it.
func (h *holding) stuck(limit time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.sending.IsZero() && time.Since(h.sending) > limit:
		return errNotRead
	case len(h.handed) > 0 && time.Since(h.handed[0].since) > limit:
		return replica.ErrUnknownOutcome
	}
	return nil
}

// read hands requests to the member until the client has no more, or has gone.
func (h *holding) read(ctx context.Context) error {
	req := &h.request
	for {
		if err := h.stream.RecvMsg(req); err != nil {
			return err
		}
		n := len(req.Releases) + len(req.Claims)
		if n > maxHoldRequests {
			return fmt.Errorf("%w: a message has %d requests, more than %d: send several messages", backend.ErrInvalid, n, maxHoldRequests)
		}
		if !h.take(n, req.Forget) {
			return nil
		}
		if req.Holder != nil {
			h.holder, h.holderErr = writeHolder(req.Holder)
		}
		if n == 0 {
			continue
		}
		if err := h.hand(ctx, req, n); err != nil {
			return err
		}
		if n > holdwire.MaxReused {
			req.Reset() // the next may be long in coming
		}
	}
}

// take waits for room for so many requests, and sees to a batch for them. It is false if nobody will answer them.
func (h *holding) take(n int, forgotten []uint64) bool {
	for {
		h.mu.Lock()
		if h.open == 0 || h.open+n <= min(maxHoldOpen, h.s.cfg.MaxStreams) {
			h.open += n
			if h.next == nil {
				h.next = h.newBatch()
			}
			if h.s.cfg.Lifetime.Err() != nil && h.closing == nil {
				h.closing = h.s.cfg.Lifetime.Err()
			}
			if len(forgotten) > 0 {
				h.forgotten = append(h.forgotten, forgotten...)
				duplex.Notify(h.wake)
			}
			h.mu.Unlock()
			return true
		}
		h.mu.Unlock()
		select {
		case <-h.room:
		case <-h.gone:
			return false
		}
	}
}

// waited says that n claims no longer wait.
func (h *holding) waited(n int) {
	if n == 0 {
		return
	}
	h.mu.Lock()
	h.waiting -= n
	h.mu.Unlock()
	h.share.Give(n)
}

// deliver is called by the member, from its own goroutine, and does not wait.
func (h *holding) deliver(batch *holdBatch, known []node.HoldAnswer) {
	if len(known) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delivered = append(h.delivered, holdAnswers{batch, known})
	batch.open -= len(known)
	n := 0
	for n < len(h.handed) && h.handed[n].open <= 0 {
		h.handed[n].queued = false
		n++
	}
	h.handed = slices.Delete(h.handed, 0, n)
	duplex.Notify(h.wake)
}

// finish says that nothing more will be read.
func (h *holding) finish(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended, h.err = true, duplex.UnlessEOF(err)
	duplex.Notify(h.wake)
}

// serve sends answers until there will be no more.
func (h *holding) serve(ctx context.Context) error {
	defer h.leave()
	over := ctx.Done()
	for {
		// In this order: a change is told of after the answer that queued the claim was delivered.
		changes, missed := h.watch.Take()
		h.mu.Lock()
		delivered, forgotten, err := h.delivered, h.forgotten, h.err
		done := h.open == 0 && (h.closing != nil || h.ended && len(h.byNumber) == 0)
		closing := h.closing
		h.delivered, h.forgotten = h.taken, nil
		h.mu.Unlock()
		if err != nil {
			return err
		}
		first := h.answerAll(delivered)
		clear(delivered)
		h.taken = delivered[:0]
		h.turns(changes)
		if missed {
			if err := h.lookAgain(ctx); err != nil {
				return err
			}
		}
		h.forget(forgotten)
		if len(h.out) > 0 {
			if err := h.send(first); err != nil {
				return err
			}
			continue
		}
		if done {
			return closing
		}
		select {
		case <-h.wake:
		case <-over:
			if err := h.drain(ctx); err != nil {
				return err
			}
			over = h.stream.Context().Done()
		}
	}
}

// drain has the stream end when what it has under way is answered, if it is the server that ends it.
func (h *holding) drain(ctx context.Context) error {
	cause := context.Cause(ctx)
	if h.stream.Context().Err() != nil || !errors.Is(cause, lifetime.ErrStopping) {
		return cause
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = cause
	duplex.Notify(h.wake)
	return nil
}

// leave undoes what the stream has counted.
func (h *holding) leave() {
	h.watch.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = lifetime.ErrStopping // whatever is read yet will not be taken on
	h.share.Give(h.waiting)
	h.waiting = 0
	for _, r := range h.byNumber { // order: each by itself
		h.s.left.unlisten(r.key())
		h.s.left.leave(h.share, r.key(), r.ttl)
	}
	// What was not answered to the client may be in a queue, or soon will be.
	for _, batch := range h.handed {
		h.leaveAll(batch)
	}
	for _, d := range h.delivered {
		h.leaveAll(d.batch)
	}
	h.share.Leave()
}

func (h *holding) leaveAll(batch *holdBatch) {
	for i := range batch.requests {
		if r := &batch.requests[i]; r.waits {
			h.s.left.leave(h.share, r.key(), r.ttl)
		}
	}
}

// send sends the answers that there are, the first answers to so many requests among them.
func (h *holding) send(first int) error {
	h.mu.Lock()
	h.sending = time.Now()
	h.mu.Unlock()
	var resp leasekeeperv1.HoldResponse
	for rest := h.out; len(rest) > 0; {
		n := min(len(rest), maxHoldAnswers)
		resp.Answers = rest[:n]
		if err := h.stream.Send(&resp); err != nil {
			return err
		}
		rest = rest[n:]
	}
	h.spare = append(h.spare, h.out[:min(len(h.out), maxHoldAnswers)]...)
	clear(h.out)
	h.out = h.out[:0]
	h.mu.Lock()
	h.sending = time.Time{}
	h.open -= first
	h.retire()
	h.mu.Unlock()
	duplex.Notify(h.room)
	return nil
}
