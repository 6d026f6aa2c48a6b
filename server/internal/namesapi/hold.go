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
	"github.com/leasekeeper/leasekeeper/internal/traceparent"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/duplex"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

const (
	// maxHoldRequests bounds the requests of one message, which is one call of the node.
	maxHoldRequests = 1024
	// maxHoldOpen bounds the open requests of one stream, without waiting claims. At the bound the server stops reading
	// the stream.
	maxHoldOpen = 1024
	// maxHoldAnswers bounds the answers in one message. However large they are, the message stays below the 4 MiB that
	// clients accept by default.
	maxHoldAnswers = 256
)

type holdStream = grpc.BidiStreamingServer[leasekeeperv1.HoldRequest, leasekeeperv1.HoldResponse]

// Hold serves one stream of claims and releases. One goroutine reads requests and submits them to the member. The
// member's goroutine delivers answers, and another one sends them. This goroutine watches the others. It ends the
// stream if the client does not read or the member does not answer.
func (n *Service) Hold(stream holdStream) error {
	ctx, end := n.cfg.Lifetime.Stream(stream.Context(), lifetime.OneLeadership)
	defer end(nil)
	defer n.cfg.Metrics.OpenHold()()
	h := newHoldSession(n, stream, admission.IdentityOf(ctx))
	h.user = admission.UserOf(ctx)
	h.trace = tracing.IDOf(ctx)
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
			if err := h.overdue(n.cfg.RequestTimeout); err != nil {
				return err
			}
		}
	}
}

// holdSession is one stream of claims and releases. Its fields belong to the reading side, to the sending side, or to
// mu.
type holdSession struct {
	s      *Service
	stream holdStream
	trace  string             // the trace id of the stream's header; empty if it has none
	watch  *node.NameWatch    // delivers changes of the names of waiting claims
	share  *admission.Share   // the places taken by waiting claims
	user   admission.Identity // that of the stream; empty without one
	wake   chan struct{}      // wakes the sending side; capacity 1
	room   chan struct{}      // wakes the reading side after an answer was sent; capacity 1
	gone   chan struct{}      // closed when the stream has ended

	// The reading side owns the fields up to holderErr.
	request   leasekeeperv1.HoldRequest // reused for every message; only its strings are kept
	next      *holdBatch                // for the next requests; nil if there is none yet
	errs      []error                   // for each request of a message, why it is invalid, or nil; reused
	last      uint64                    // the number of the newest request
	holder    []byte                    // the holder of claims that name none; holderErr is set if it is invalid
	holderErr error

	mu        sync.Mutex   // guards the fields up to err
	open      int          // requests that were read, and whose first answer was not sent
	waiting   int          // claims that occupy a place of share
	submitted []*holdBatch // batches with unanswered requests, the oldest first
	delivered []holdAnswers
	idle      []*holdBatch // batches for reuse
	forgotten []uint64
	sending   time.Time // when the message being sent was begun; zero if none is being sent
	closing   error     // why requests are refused; nil while they are accepted
	ended     bool      // reading has ended
	err       error     // why it ended; nil if the client has no more requests

	// The sending side owns the fields below. The maps contain the waiting claims.
	byLease   map[lessor.ID][]*holdRequest
	byNumber  map[uint64]*holdRequest
	out       []*leasekeeperv1.HoldAnswer
	spare     []*leasekeeperv1.HoldAnswer // answers for reuse
	taken     []holdAnswers               // reused
	completed []*holdBatch                // batches that were answered in full
	done      holdTally
}

// holdRequest is one claim or release.
type holdRequest struct {
	number uint64
	name   string
	lease  lessor.ID
	ttl    time.Duration // 0 for a release
	holder []byte
	waits  bool
	trace  string // the trace id; empty if the request is not traced
}

func (r *holdRequest) key() claimKey { return claimKey{r.name, r.lease} }

// method is the method that does the same for one name, in metrics and logs.
func (r *holdRequest) method() string {
	if r.ttl == 0 {
		return leasekeeperv1.Leasekeeper_Release_FullMethodName
	}
	return leasekeeperv1.Leasekeeper_Acquire_FullMethodName
}

// traceOf returns the trace id of a request with that field. A request without a valid one has the trace of the stream.
func (h *holdSession) traceOf(header string) string {
	if id := traceparent.TraceID(header); id != "" {
		return id
	}
	return h.trace
}

func newHoldSession(s *Service, stream holdStream, who admission.Identity) *holdSession {
	h := &holdSession{
		s: s, stream: stream,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gone: make(chan struct{}),
		byLease: make(map[lessor.ID][]*holdRequest), byNumber: make(map[uint64]*holdRequest),
		share: s.cfg.Places.Join(who),
	}
	h.watch = s.cfg.Member.WatchClaims(h.wake)
	return h
}

// errNotRead ends the stream of a client that does not read. Its client cannot know the outcome of unread answers.
var errNotRead = fmt.Errorf("%w: the client does not read the answers", replica.ErrUnknownOutcome)

// overdue returns the reason to end the stream if something takes longer than limit: the client's reading or the
// member's answer. Otherwise it returns nil.
func (h *holdSession) overdue(limit time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.sending.IsZero() && time.Since(h.sending) > limit:
		return errNotRead
	case len(h.submitted) > 0 && time.Since(h.submitted[0].since) > limit:
		return replica.ErrUnknownOutcome
	}
	return nil
}

// read submits requests to the member until the client has no more, or has gone.
func (h *holdSession) read(ctx context.Context) error {
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
		if err := h.submit(ctx, req, n); err != nil {
			return err
		}
		if n > holdwire.MaxReused {
			req.Reset() // free the memory, because the next message may be far away
		}
	}
}

// take waits for room for n requests, and prepares a batch for them. It returns false if the stream has ended.
func (h *holdSession) take(n int, forgotten []uint64) bool {
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

// releasePlaces releases the places of n claims that no longer wait.
func (h *holdSession) releasePlaces(n int) {
	if n == 0 {
		return
	}
	h.mu.Lock()
	h.waiting -= n
	h.mu.Unlock()
	h.share.Release(n)
}

// deliver stores answers of the member. The member calls it from its own goroutine. It never waits.
func (h *holdSession) deliver(batch *holdBatch, known []node.HoldAnswer) {
	if len(known) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delivered = append(h.delivered, holdAnswers{batch, known})
	batch.open -= len(known)
	n := 0
	for n < len(h.submitted) && h.submitted[n].open <= 0 {
		h.submitted[n].queued = false
		n++
	}
	h.submitted = slices.Delete(h.submitted, 0, n)
	duplex.Notify(h.wake)
}

// finish ends the reading side.
func (h *holdSession) finish(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended, h.err = true, duplex.UnlessEOF(err)
	duplex.Notify(h.wake)
}

// serve sends answers until there will be no more.
func (h *holdSession) serve(ctx context.Context) error {
	defer h.leave()
	over := ctx.Done()
	for {
		// The order matters: the answer that queued a claim must be delivered before a change that concerns the claim
		// is applied.
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
		h.applyChanges(ctx, changes)
		if missed {
			if err := h.recheck(ctx); err != nil {
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

// drain ends the stream after its open requests are answered, if the server is stopping. For any other cause it returns
// that cause.
func (h *holdSession) drain(ctx context.Context) error {
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

// leave releases what the stream has counted, and abandons its waiting claims.
func (h *holdSession) leave() {
	h.watch.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = lifetime.ErrStopping // refuse what is still being read
	h.share.Release(h.waiting)
	h.waiting = 0
	for _, r := range h.byNumber { // order: each one separately
		h.s.abandoned.detach(r.key())
		h.s.abandoned.abandon(h.share, r.key(), r.ttl)
	}
	// Claims without an answer may be in a queue, or may soon enter one.
	for _, batch := range h.submitted {
		h.leaveAll(batch)
	}
	for _, d := range h.delivered {
		h.leaveAll(d.batch)
	}
	h.share.Leave()
}

func (h *holdSession) leaveAll(batch *holdBatch) {
	for i := range batch.requests {
		if r := &batch.requests[i]; r.waits {
			h.s.abandoned.abandon(h.share, r.key(), r.ttl)
		}
	}
}

// send sends the prepared answers. first of them are first answers to requests.
func (h *holdSession) send(first int) error {
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
