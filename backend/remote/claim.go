package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Claim implements [backend.Backend]. The server does not prolong a lease that is claimed again: its time
// counts from when it was claimed or renewed first.
func (b *Backend) Claim(ctx context.Context, c backend.Claim) (backend.Lease, backend.Grant, error) {
	if err := store.CheckClaim(c, b.Limits()); err != nil {
		return nil, backend.Grant{}, err
	}
	if err := b.endpoints.Enter(); err != nil {
		return nil, backend.Grant{}, err
	}
	defer b.endpoints.Exit()
	l := &lease{b: b, wire: b.root + c.Name, id: endpoints.LeaseID(c.ID), ttl: c.TTL, holder: c.Holder.ID}
	r, t, o := b.acquire(ctx, &claimArgs{name: l.wire, lease: l.id, ttlMs: millis(c.TTL), holder: c.Holder, wait: c.Wait})
	switch {
	case o.err != nil:
		return b.notClaimed(ctx, l, o, "claiming "+c.Name)
	case r.state == leasekeeperv1.AcquireResponse_REFUSED:
		held := b.heldBy(c.Name, r.current)
		if !o.maybe {
			return nil, backend.Grant{}, held
		}
		return b.void(ctx, l, held, "claiming "+c.Name)
	}
	l.token, l.ttl = r.token, length(r.ttlMs)
	if r.state == leasekeeperv1.AcquireResponse_HELD {
		return l, l.held(), nil
	}
	l.turn.Store(t)
	return l, backend.Grant{Place: r.place, TTL: l.ttl}, nil
}

func (l *lease) held() backend.Grant {
	return backend.Grant{Held: true, Token: l.token, TTL: l.ttl}
}

// notClaimed tells about a claim that failed. If an attempt may have had an effect, or may have it yet, the
// lease is the caller's, who can tell whether it still matters.
func (b *Backend) notClaimed(ctx context.Context, l *lease, o outcome, what string) (backend.Lease, backend.Grant, error) {
	switch {
	case !o.maybe:
		return nil, backend.Grant{}, o.read(what)
	case !answered(o.err):
		return l, backend.Grant{}, o.write(what)
	case o.reason() == leasekeeperv1.ErrorReason_LOST:
		// An earlier attempt took effect, and its lease has ended since.
		return nil, backend.Grant{}, fmt.Errorf("%w: %s: the lease ended before it could be told of", backend.ErrUnavailable, what)
	case o.reason() == leasekeeperv1.ErrorReason_LEASE_TAKEN:
		return nil, backend.Grant{}, o.read(what) // it is somebody else's, and not to be released
	}
	return b.void(ctx, l, o.read(what), what)
}

// void returns err for a claim that was refused, when it is sure that no earlier attempt of it can take
// effect any more: the server refuses a claim that comes after its own release.
func (b *Backend) void(ctx context.Context, l *lease, err error, what string) (backend.Lease, backend.Grant, error) {
	o := b.release(ctx, l)
	if o.err == nil {
		return nil, backend.Grant{}, err
	}
	if endpoints.IsContextError(o.err) {
		return l, backend.Grant{}, fmt.Errorf("%w: %s: %w", backend.ErrUnknownOutcome, what, o.err)
	}
	return l, backend.Grant{}, fmt.Errorf("%w: %s: %v; but an earlier attempt may take effect yet: %s", backend.ErrUnknownOutcome, what, err, text(o.err))
}

// errNonsense stands for an answer to something that was not asked.
var errNonsense = status.Error(codes.Internal, "the server's answer makes no sense")

// errStalled ends a stream on which nothing has come for a while.
var errStalled = errors.New("the server did not answer in time")

// claimArgs is what a claim asks for.
type claimArgs struct {
	name   string // as on the wire
	lease  int64
	ttlMs  int64
	holder backend.Holder
	wait   bool
}

// reply is what the server says to that.
type reply struct {
	state   leasekeeperv1.AcquireResponse_State
	token   backend.Token
	ttlMs   int64
	place   int
	current *leasekeeperv1.NameInfo // if it is not ours
}

// sensible returns an error if a reply is none to this claim.
func (c *claimArgs) sensible(r reply) error {
	switch r.state {
	case leasekeeperv1.AcquireResponse_REFUSED:
		if !c.wait {
			return nil
		}
	case leasekeeperv1.AcquireResponse_WAITING, leasekeeperv1.AcquireResponse_HELD:
		if r.token != 0 && r.ttlMs > 0 {
			return nil
		}
	}
	return errNonsense
}

// acquire asks for a name and returns the first answer. If that is a place in line, and who asks waits, the
// turn is where it will be told of.
func (b *Backend) acquire(ctx context.Context, c *claimArgs) (r reply, t *turn, o outcome) {
	o = b.hold(ctx, func(ctx context.Context, limit time.Duration, w *endpoint, number int64) (sent bool, err error) {
		r, t, sent, err = w.holds.claim(ctx, limit, c, number)
		return sent, err
	}, func(ctx context.Context, w *endpoint, number int64) (sent bool, err error) {
		r, t, sent, err = b.acquireAlone(ctx, w, number, c)
		return sent, err
	})
	return r, t, o
}

// hold makes a request over the stream of claims and releases, or, if the server does not know that, alone.
func (b *Backend) hold(ctx context.Context, together func(context.Context, time.Duration, *endpoint, int64) (bool, error), alone request) outcome {
	o := b.endpoints.AskWithin(ctx, func(ctx context.Context, limit time.Duration, w *endpoint, number int64) (sent bool, err error) {
		if sent, err = together(ctx, limit, w, number); err != errLacking {
			return sent, err
		}
		bound, unbind := b.endpoints.Bind(ctx)
		defer unbind()
		bound, cancel := context.WithTimeout(bound, limit)
		defer cancel()
		return alone(bound, w, number)
	})
	return outcome{err: o.Err, maybe: o.Maybe}
}

// acquireAlone asks over a stream of its own, which goes on for who stands in line.
func (b *Backend) acquireAlone(ctx context.Context, w *endpoint, number int64, c *claimArgs) (r reply, t *turn, sent bool, err error) {
	// The stream must outlive this call.
	outer, cancel := context.WithCancelCause(b.endpoints.Base)
	leave := context.AfterFunc(ctx, func() { cancel(errStalled) })
	defer leave()
	s, err := openAcquire(outer, w)
	if err == nil {
		sent = true
		r, err = s.start(&leasekeeperv1.AcquireRequest{
			Name: c.name, Lease: c.lease, TtlMs: c.ttlMs, Holder: wireHolder(c.holder), Wait: c.wait,
		})
	}
	if err == nil {
		err = c.sensible(r)
	}
	if err == nil && c.wait && r.state == leasekeeperv1.AcquireResponse_WAITING {
		return r, b.listen(s, cancel, number, c.lease), sent, nil
	}
	err = because(outer, err)
	cancel(nil)
	return r, nil, sent, err
}

// acquireStream is the client's side of Acquire. It is opened by hand because the generated code does not
// tell whether something was sent.
type acquireStream struct {
	grpc.GenericClientStream[leasekeeperv1.AcquireRequest, leasekeeperv1.AcquireResponse]
}

func openAcquire(ctx context.Context, w *endpoint) (*acquireStream, error) {
	s, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, leasekeeperv1.Leasekeeper_Acquire_FullMethodName)
	if err != nil {
		return nil, err
	}
	opened := new(acquireStream)
	opened.ClientStream = s
	return opened, nil
}

// start sends the request and returns the first reply.
func (s *acquireStream) start(req *leasekeeperv1.AcquireRequest) (reply, error) {
	// What is wrong with sending, receiving says.
	_ = s.ClientStream.SendMsg(req)
	_ = s.ClientStream.CloseSend()
	return s.reply(req.Lease)
}

// reply returns the next reply.
func (s *acquireStream) reply(lease int64) (reply, error) {
	resp, err := s.Recv()
	switch {
	case err != nil:
		return reply{}, err
	case resp.State != leasekeeperv1.AcquireResponse_REFUSED && resp.Lease != lease:
		return reply{}, errNonsense
	}
	return reply{resp.State, backend.Token(resp.Token), resp.TtlMs, int(resp.Place), resp.Current}, nil
}

// because says what was behind the error of a stream.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// heldBy says who has a name.
func (b *Backend) heldBy(name string, current *leasekeeperv1.NameInfo) error {
	return &backend.HeldError{
		Name: name, Holder: holderOf(current.GetHolder(), current.GetLease()), Token: backend.Token(current.GetToken()),
		Ends: length(current.GetRemainingMs()),
	}
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, l backend.Lease) error {
	own, err := b.mine(l)
	if err != nil {
		return err
	}
	if err := b.endpoints.Enter(); err != nil {
		return err
	}
	defer b.endpoints.Exit()
	if o := b.release(ctx, own); o.err != nil {
		return o.write("releasing " + own.Name())
	}
	return nil
}

func (b *Backend) release(ctx context.Context, l *lease) outcome {
	return b.hold(ctx, func(ctx context.Context, limit time.Duration, w *endpoint, _ int64) (sent bool, err error) {
		return w.holds.release(ctx, limit, l.wire, l.id)
	}, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.names.Release(ctx, &leasekeeperv1.ReleaseRequest{Name: l.wire, Lease: l.id}, options...)
		return err
	}))
}
