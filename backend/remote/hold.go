package remote

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/traceparent"
)

// lackingFor is how long the backend does not open a Hold stream to an endpoint whose server does not have that method. The
// server may be a newer one after that.
const lackingFor = time.Minute

// errLacking means that the server does not have the method Hold. The request had no effect.
var errLacking = errors.New("the server is older than the method Hold")

// holds sends the claims and releases of many callers to one endpoint.
type holds struct {
	mux[*holdCall]
	lackingUntil atomic.Int64 // the moment until which the server is taken not to have Hold
}

// holdCall is one claim or release that a caller waits for.
type holdCall struct {
	name     string // on the wire
	lease    int64
	ttlMs    int64 // 0 for a release
	wait     bool
	priority backend.Priority
	holder   backend.Holder
	endpoint int64         // the number of the endpoint
	limit    time.Duration // how long it may take
	trace    string        // the caller's header traceparent; empty if there is none
	done     chan struct{} // receives a signal when the first answer, or err, is there; holds one

	// The stream's lock guards the rest until done receives its signal.
	stream *holdStream
	number uint64 // 0 until it is about to be sent
	since  moment // when the stream took it
	until  moment // when it has taken too long
	sent   bool   // it may have reached the server
	answer reply
	failed error // the server's answer, if that is an error
	err    error // why there is no answer
	turn   *turn // of a claim that waits in the queue; nil otherwise
}

// holdCalls are for reuse: each has a channel.
var holdCalls = sync.Pool{New: func() any { return &holdCall{done: make(chan struct{}, 1)} }}

// free makes a call available for reuse. Nothing else may refer to it.
func (c *holdCall) free() {
	*c = holdCall{done: c.done}
	holdCalls.Put(c)
}

// do sends a call and waits for the first answer. If there is one, the stream no longer refers to the call, unless it has a
// turn.
func (h *holds) do(ctx context.Context, c *holdCall) (sent bool, err error) {
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case now() < moment(h.lackingUntil.Load()):
		return false, errLacking
	}
	if c.trace = backend.Traceparent(ctx); !traceparent.Valid(c.trace) {
		c.trace = ""
	}
	if err := h.put(c); err != nil {
		return false, err
	}
	return c.awaitAnswer(ctx)
}

// sendClaim makes a claim. If it has to wait in the queue, and may, the turn receives the second answer.
func (h *holds) sendClaim(ctx context.Context, limit time.Duration, args *claimArgs, number int64) (r reply, t *turn, sent bool, err error) {
	c := holdCalls.Get().(*holdCall)
	c.name, c.lease, c.ttlMs, c.wait, c.holder = args.name, args.lease, args.ttlMs, args.wait, args.holder
	c.priority = args.priority
	c.endpoint, c.limit = number, limit
	if sent, err = h.do(ctx, c); err != nil {
		return reply{}, nil, sent, err
	}
	t, r, err = c.turn, c.answer, c.failed
	if err == nil {
		err = args.sensible(r)
	}
	switch {
	case t == nil:
		c.free()
	case err != nil:
		t.quit(err)
	}
	return r, t, true, err
}

// sendRelease releases a lease.
func (h *holds) sendRelease(ctx context.Context, limit time.Duration, name string, lease int64) (sent bool, err error) {
	c := holdCalls.Get().(*holdCall)
	c.name, c.lease, c.limit = name, lease, limit
	if sent, err = h.do(ctx, c); err != nil {
		return sent, err
	}
	if err = c.failed; err == nil && c.answer.state != released {
		err = errNonsense
	}
	c.free()
	return true, err
}

// awaitAnswer waits for the first answer, and ends when the context does. The stream's alarm enforces the limit.
func (c *holdCall) awaitAnswer(ctx context.Context) (sent bool, err error) {
	caller, keeper := ends(ctx)
	select {
	case <-c.done:
		return c.sent, c.err
	case <-caller:
	case <-keeper:
	}
	s := c.stream
	s.mu.Lock()
	select {
	case <-c.done: // at the same moment
		s.mu.Unlock()
		return c.sent, c.err
	default:
	}
	s.leave(c)
	sent, silent := c.sent, s.silent(c.since, now())
	s.mu.Unlock()
	if silent {
		s.abandon()
	}
	return sent, context.Cause(ctx)
}

// ends returns the channels that end a context before its deadline.
func ends(ctx context.Context) (caller, keeper <-chan struct{}) {
	if r, ok := ctx.(*backend.Request); ok {
		return r.Ends()
	}
	return ctx.Done(), nil
}

// released is the state in the answer to a release.
const released = leasekeeperv1.AcquireResponse_State(leasekeeperv1.HoldAnswer_RELEASED)
