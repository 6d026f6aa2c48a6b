package remote

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Claim implements [backend.Backend]. A claim that is repeated does not prolong its lease: the TTL counts from the first
// claim or the last renewal.
func (b *Backend) Claim(ctx context.Context, c backend.Claim) (backend.Lease, backend.Grant, error) {
	if err := store.CheckClaim(c, b.Limits()); err != nil {
		return nil, backend.Grant{}, err
	}
	if err := b.endpoints.Enter(); err != nil {
		return nil, backend.Grant{}, err
	}
	defer b.endpoints.Exit()
	l := &lease{b: b, wire: b.root + c.Name, id: endpoints.LeaseID(c.ID), ttl: c.TTL, holder: c.Holder.ID}
	r, t, o := b.acquire(ctx, &claimArgs{name: l.wire, lease: l.id, ttlMs: ttlUnit.Count(c.TTL), holder: c.Holder, wait: c.Wait, priority: c.Priority})
	switch {
	case o.Err != nil:
		return b.claimFailed(ctx, l, o, "claiming "+c.Name)
	case r.state == leasekeeperv1.AcquireResponse_REFUSED:
		held := b.heldBy(c.Name, r.current)
		if !o.Maybe {
			return nil, backend.Grant{}, held
		}
		return b.void(ctx, l, held, "claiming "+c.Name)
	}
	l.newest.Store(uint64(r.token))
	l.ttl = ttlUnit.Duration(r.ttlMs)
	if r.state == leasekeeperv1.AcquireResponse_HELD {
		return l, l.held(), nil
	}
	l.turn.Store(t)
	return l, backend.Grant{Place: r.place, TTL: l.ttl}, nil
}

func (l *lease) held() backend.Grant {
	return backend.Grant{Held: true, Token: l.token(), TTL: l.ttl}
}

// claimFailed returns what Claim returns for a claim that failed. If an attempt may have had an effect, or may still have
// one, the caller receives the lease and can release it.
func (b *Backend) claimFailed(ctx context.Context, l *lease, o endpoints.Outcome, what string) (backend.Lease, backend.Grant, error) {
	switch {
	case !o.Maybe:
		return nil, backend.Grant{}, o.Read(what)
	case !answered(o.Err):
		return l, backend.Grant{}, o.Write(what)
	case reasonOf(o.Err) == leasekeeperv1.ErrorReason_LOST:
		// An earlier attempt took effect, and its lease has ended since.
		return nil, backend.Grant{}, fmt.Errorf("%w: %s: the lease ended before the server's answer arrived: claim again", backend.ErrUnavailable, what)
	case reasonOf(o.Err) == leasekeeperv1.ErrorReason_LEASE_TAKEN:
		return nil, backend.Grant{}, o.Read(what) // the lease belongs to another claim, so it must not be released
	}
	return b.void(ctx, l, o.Read(what), what)
}

// void returns err for a claim that the server refused, after it has made earlier attempts void: the server refuses a claim
// that arrives after its own release. If the release fails, an earlier attempt may still take effect, and the caller receives the
// lease.
func (b *Backend) void(ctx context.Context, l *lease, err error, what string) (backend.Lease, backend.Grant, error) {
	o := b.releaseLease(ctx, l)
	if o.Err == nil {
		return nil, backend.Grant{}, err
	}
	if endpoints.IsContextError(o.Err) {
		return l, backend.Grant{}, fmt.Errorf("%w: %s: %w", backend.ErrUnknownOutcome, what, o.Err)
	}
	return l, backend.Grant{}, fmt.Errorf("%w: %s: %v; but an earlier attempt may still take effect: %s", backend.ErrUnknownOutcome, what, err, store.Text(o.Err))
}

// errNonsense stands for an answer that does not fit its request.
var errNonsense = status.Error(codes.Internal, "the server's answer does not fit the request: is it a Leasekeeper server?")

// claimArgs are the arguments of a claim.
type claimArgs struct {
	name   string // on the wire
	lease  int64
	ttlMs  int64
	holder backend.Holder
	wait   bool

	priority backend.Priority
}

// reply is an answer to a claim.
type reply struct {
	state   leasekeeperv1.AcquireResponse_State
	token   backend.Token
	ttlMs   int64
	place   int
	current *leasekeeperv1.NameInfo // who holds the name, if another lease does; may be nil
	// overtaken is set if the token may be greater than in an earlier reply.
	overtaken bool
}

// sensible returns an error if a reply does not fit the claim.
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

// acquire claims a name and returns the first answer. If the claim waits in the queue, the turn receives the second one.
func (b *Backend) acquire(ctx context.Context, c *claimArgs) (r reply, t *turn, o endpoints.Outcome) {
	o = b.hold(ctx, func(ctx context.Context, limit time.Duration, w *endpoint, number int64) (sent bool, err error) {
		r, t, sent, err = w.holds.sendClaim(ctx, limit, c, number)
		return sent, err
	}, func(ctx context.Context, w *endpoint, number int64) (sent bool, err error) {
		r, t, sent, err = b.acquireAlone(ctx, w, number, c)
		return sent, err
	})
	return r, t, o
}

// hold makes a request over the Hold stream, or, if the server does not have that method, by a method for one name.
func (b *Backend) hold(ctx context.Context, together func(context.Context, time.Duration, *endpoint, int64) (bool, error), alone request) endpoints.Outcome {
	return b.endpoints.AskWithin(ctx, func(ctx context.Context, limit time.Duration, w *endpoint, number int64) (sent bool, err error) {
		if sent, err = together(ctx, limit, w, number); err != errLacking {
			return sent, err
		}
		bound, unbind := b.endpoints.Bind(ctx)
		defer unbind()
		bound, cancel := context.WithTimeout(bound, limit)
		defer cancel()
		return alone(bound, w, number)
	})
}

// acquireAlone claims a name over a stream of its own. If the claim waits in the queue, the stream outlives this call.
func (b *Backend) acquireAlone(ctx context.Context, w *endpoint, number int64, c *claimArgs) (r reply, t *turn, sent bool, err error) {
	outer, cancel := context.WithCancelCause(b.endpoints.Base)
	leave := context.AfterFunc(ctx, func() { cancel(endpoints.ErrStalled) })
	defer leave()
	s, err := openAcquire(outer, w)
	if err == nil {
		sent = true
		r, err = s.start(&leasekeeperv1.AcquireRequest{
			Name: c.name, Lease: c.lease, TtlMs: c.ttlMs, Holder: wireHolder(c.holder), Wait: c.wait,
			Priority: int32(c.priority),
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

// acquireStream is the client's side of Acquire. The generated code does not say whether it sent something, so this package
// opens the stream itself.
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
	// If sending fails, receiving returns the reason.
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
	return reply{resp.State, backend.Token(resp.Token), resp.TtlMs, int(resp.Place), resp.Current, resp.Overtaken}, nil
}

// because returns the cause of a context that has ended for the error of a stream with that context, else the error.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// heldBy returns the error that names the holder of a name.
func (b *Backend) heldBy(name string, current *leasekeeperv1.NameInfo) error {
	return &backend.HeldError{
		Name: name, Holder: holderOf(current.GetHolder(), current.GetLease()), Token: backend.Token(current.GetToken()),
		Ends: ttlUnit.Duration(current.GetRemainingMs()),
	}
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, l backend.Lease) error {
	own, err := endpoints.Own[*lease](b, l)
	if err != nil {
		return err
	}
	if err := b.endpoints.Enter(); err != nil {
		return err
	}
	defer b.endpoints.Exit()
	if o := b.releaseLease(ctx, own); o.Err != nil {
		return o.Write("releasing " + own.Name())
	}
	return nil
}

func (b *Backend) releaseLease(ctx context.Context, l *lease) endpoints.Outcome {
	return b.hold(ctx, func(ctx context.Context, limit time.Duration, w *endpoint, _ int64) (sent bool, err error) {
		return w.holds.sendRelease(ctx, limit, l.wire, l.id)
	}, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.names.Release(ctx, &leasekeeperv1.ReleaseRequest{Name: l.wire, Lease: l.id}, options...)
		return err
	}))
}
