package forwarding

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

const (
	// forwardPause is the pause before a member looks for the leader again. It follows an attempt at a member that did
	// not lead, or was not reachable.
	forwardPause = 20 * time.Millisecond
	// leadershipGrace is how long a member waits for an answer from a former leader. The former leader may not know yet
	// that it no longer leads, and if it is cut off, it never answers.
	leadershipGrace = time.Second
	// askLimit bounds how long another member may take to answer about itself.
	askLimit = time.Second
)

// Member is what a [Forwarder] uses of its member.
type Member interface {
	// Leader returns the leader as far as the member knows, 0 if it knows none.
	Leader() (id, term uint64)
	// AwaitLeader waits until there is a leader, at most for the read timeout.
	AwaitLeader(context.Context) (uint64, error)
	// AwaitApplied waits until this member has applied a log entry, at most for the read timeout.
	AwaitApplied(ctx context.Context, index uint64) bool
	Header() replica.Header
}

// Connections are the connections to the other members.
type Connections interface {
	// Conn returns the connection to another member, nil if there is no such member.
	Conn(member uint64) grpc.ClientConnInterface
}

// Config is what a [Forwarder] needs.
type Config struct {
	Member Member
	Peers  Connections
	// ReadTimeout is how long a request waits for a leader that serves it.
	ReadTimeout time.Duration
	Lifetime    *lifetime.Lifetime
	Places      *admission.Places
	// Caller adds to the metadata of a call to another member who the user of the request is.
	Caller func(context.Context) context.Context
	// ReadsOnly reports whether a request changes nothing although its method can.
	ReadsOnly func(req any) bool
	// Refused reports, by the trailer of a failed call on a connection of Peers, whether the other member refused the call
	// before anything received it.
	Refused func(trailer metadata.MD) bool
}

// Forwarder serves requests where the leader is. Its methods are safe for concurrent use.
type Forwarder struct {
	member    Member
	peers     Connections
	patience  time.Duration
	life      *lifetime.Lifetime
	places    *admission.Places
	readsOnly func(req any) bool
	refused   func(trailer metadata.MD) bool
	caller    func(context.Context) context.Context
	routes    map[string]*route

	sent   atomic.Uint64 // forwarded requests and streams
	failed atomic.Uint64 // the part of sent that did not arrive, or whose answer was lost
}

// New makes a forwarder.
func New(c Config) (*Forwarder, error) {
	routes, err := newRoutes()
	if err != nil {
		return nil, err
	}
	return &Forwarder{
		member: c.Member, peers: c.Peers, patience: c.ReadTimeout, life: c.Lifetime, places: c.Places,
		readsOnly: c.ReadsOnly, refused: c.Refused, caller: c.Caller, routes: routes,
	}, nil
}

// Sent returns the number of forwarded requests and streams.
func (f *Forwarder) Sent() uint64 { return f.sent.Load() }

// Failed returns how many forwarded requests and streams did not reach the leader, or lost their answer.
func (f *Forwarder) Failed() uint64 { return f.failed.Load() }

// Changes reports whether a method that only the leader serves can change something.
func (f *Forwarder) Changes(method string) bool {
	r := f.routes[method]
	return r != nil && r.changes
}

// leaderMayServe reports whether an error means that the request changed nothing, and that the leader may serve it.
func leaderMayServe(err error) bool {
	return errors.Is(err, replica.ErrNoLeader) || errors.Is(err, replica.ErrNotLeader)
}

// errNotReached means that the request was certainly not sent to the leader.
var errNotReached = fmt.Errorf("the leader cannot be reached: %w", replica.ErrNoLeader)

// lostAnswer is the [replica.ErrUnknownOutcome] of a request that was sent to the leader.
type lostAnswer struct{ cause error }

func (l *lostAnswer) Error() string {
	return fmt.Sprintf("%v (sent to the leader, whose answer is lost: %v)", replica.ErrUnknownOutcome, l.cause)
}
func (l *lostAnswer) Unwrap() error { return replica.ErrUnknownOutcome }

// PeerError is an error that another member has returned. The client receives its status unchanged.
type PeerError struct{ Status error }

func (p *PeerError) Error() string { return p.Status.Error() }
func (p *PeerError) Unwrap() error { return p.Status }

// Unary serves a request. If only the leader serves the method, the leader does so: this member by handle, another
// member by forwarding. Otherwise handle serves it. While there is no leader, and nothing has changed, Unary tries
// again for as long as a read may wait.
func (f *Forwarder) Unary(ctx context.Context, method string, req any, handle grpc.UnaryHandler) (any, error) {
	r := f.routeOf(method, req)
	if r == nil {
		return handle(ctx, req)
	}
	if admission.FromPeer(ctx) {
		if !f.Leads() {
			return nil, replica.ErrNotLeader
		}
		return handle(ctx, req)
	}
	for limit := time.Now().Add(f.patience); ; {
		leader, err := f.member.AwaitLeader(ctx)
		if err != nil {
			return nil, err
		}
		var resp any
		if leader == f.self() {
			resp, err = handle(ctx, req)
		} else {
			resp, err = f.forward(ctx, leader, r, req.(proto.Message), time.Until(limit))
		}
		if !leaderMayServe(err) || time.Until(limit) < forwardPause {
			return resp, err
		}
		if err := lifetime.Pause(ctx, forwardPause); err != nil {
			return nil, err
		}
	}
}

// Leads reports whether this member leads as far as it knows.
func (f *Forwarder) Leads() bool {
	leader, _ := f.member.Leader()
	return leader == f.self()
}

func (f *Forwarder) self() uint64 { return f.member.Header().MemberID }

// CallOptions are the options of calls between members. They do not bound sizes, because the member that received the
// request has already refused larger ones.
var CallOptions = []grpc.CallOption{grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)}

// forward sends a request to the leader and returns its answer. patience bounds the time until the request is sent.
//
// The client must see its own change through this member. So the answer waits until this member has applied the change.
// If this member lags, the answer waits only for the read timeout, since the change is already made.
func (f *Forwarder) forward(client context.Context, leader uint64, r *route, req proto.Message, patience time.Duration) (any, error) {
	f.sent.Add(1)
	ctx, cancel := context.WithCancelCause(client)
	defer cancel(nil)
	if !r.stays {
		defer f.cancelAfterLeadership(leader, r, cancel)()
	}
	call, err := f.openAt(ctx, cancel, leader, r, patience, &grpc.StreamDesc{})
	if err != nil {
		return nil, err
	}
	resp := r.newResponse()
	// If sending fails, receiving returns the reason.
	_ = call.SendMsg(req)
	_ = call.CloseSend()
	if err := call.RecvMsg(resp); err != nil {
		return nil, f.forwardError(ctx, r, call, err)
	}
	f.member.AwaitApplied(client, appliedIn(call.Trailer()))
	if h, ok := resp.(interface{ GetHeader() *pb.ResponseHeader }); ok && h.GetHeader() != nil {
		h.GetHeader().MemberId = f.self() // this member answers the client
	}
	return resp, nil
}

// openAt opens a call at another member. If it fails, nothing was sent.
func (f *Forwarder) openAt(ctx context.Context, cancel context.CancelCauseFunc, member uint64, r *route, patience time.Duration, desc *grpc.StreamDesc) (grpc.ClientStream, error) {
	conn := f.peers.Conn(member)
	if conn == nil {
		return nil, errNotReached
	}
	late := time.AfterFunc(max(patience, 0), func() { cancel(errNotReached) })
	if r.audited {
		ctx = admission.WithOrigin(ctx)
	}
	call, err := conn.NewStream(tracing.Forward(f.caller(admission.WithIdentity(ctx))), desc, r.method, CallOptions...)
	if !late.Stop() && err == nil {
		err = errNotReached // and the call is cancelled
	}
	if err == nil {
		return call, nil
	}
	f.failed.Add(1)
	if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return nil, cause
	}
	return nil, errNotReached
}

// forwardError translates the error of a call at another member. The client receives an error of that member unchanged.
// Without an answer, the request may or may not have arrived.
func (f *Forwarder) forwardError(ctx context.Context, r *route, call grpc.ClientStream, err error) error {
	switch verdictOf(call.Trailer()) {
	case verdictAnswered:
		if status.Code(err) != codes.DeadlineExceeded {
			return &PeerError{err}
		}
		// The deadline is the one that this member sent along. Whether it is the client's or this member's own, this member
		// knows.
		if r.changes {
			return &lostAnswer{context.DeadlineExceeded}
		}
		return context.DeadlineExceeded
	case verdictElsewhere:
		return replica.ErrNotLeader
	}
	f.failed.Add(1)
	if status.Code(err) == codes.Unimplemented || f.refused(call.Trailer()) {
		return errNotReached // an older version does not know the method, or the other member does not list this one
	}
	cause := context.Cause(ctx)
	switch {
	case r.changes && cause != nil:
		return &lostAnswer{cause}
	case r.changes:
		return &lostAnswer{err}
	case errors.Is(cause, lifetime.ErrLeaderChanged):
		return errNotReached // the caller can try the next leader at once
	case cause != nil:
		return cause
	}
	return errNotReached
}

// cancelAfterLeadership cancels a call when the member that received it no longer leads. It waits a little before it
// cancels a change, because the answer may still arrive. The caller calls leave when the call has ended.
func (f *Forwarder) cancelAfterLeadership(leader uint64, r *route, cancel context.CancelCauseFunc) (leave func()) {
	leadership := f.life.Leadership()
	if leadership.Leader != leader { // the leader has just changed
		leadership = lifetime.Ended()
	}
	grace := time.Duration(0)
	if r.changes {
		grace = leadershipGrace
	}
	later := make(chan *time.Timer, 1)
	stop := leadership.AfterEnd(func() {
		later <- time.AfterFunc(grace, func() { cancel(lifetime.ErrLeaderChanged) })
	})
	return func() {
		if !stop() {
			(<-later).Stop()
		}
	}
}

// Ask calls another member about itself. If that member does not answer, why is the reason, for people. why is "" if it
// answers, and err is then nil or a [PeerError].
func (f *Forwarder) Ask(ctx context.Context, member uint64, call func(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) error) (why string, err error) {
	conn := f.peers.Conn(member)
	if conn == nil {
		return WhyNoAnswer(errNotReached), errNotReached
	}
	limited, cancel := context.WithTimeout(f.caller(ctx), askLimit)
	defer cancel()
	var trailer metadata.MD
	err = call(limited, conn, append(CallOptions[:len(CallOptions):len(CallOptions)], grpc.Trailer(&trailer))...)
	switch {
	case err == nil:
		return "", nil
	case verdictOf(trailer) == verdictAnswered:
		return "", &PeerError{err}
	}
	return WhyNoAnswer(err), err
}

// WhyNoAnswer returns the reason, for people, why a member did not answer.
func WhyNoAnswer(err error) string {
	if peerError := (*PeerError)(nil); errors.As(err, &peerError) {
		err = peerError.Status
	}
	if status.Code(err) == codes.DeadlineExceeded {
		return "no answer"
	}
	return status.Convert(err).Message()
}
