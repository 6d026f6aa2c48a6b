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
)

const (
	// forwardPause is how long a member waits before it looks again who leads, after the one that it took for
	// the leader has said that it does not lead, or cannot be reached.
	forwardPause = 20 * time.Millisecond
	// leadershipGrace is how long an answer is waited for from a member that no longer leads. It may not know that
	// yet, and one that is cut off will not answer at all.
	leadershipGrace = time.Second
	// askLimit bounds how long another member may take to answer about itself.
	askLimit = time.Second
)

// Member is what a [Forwarder] uses of its member.
type Member interface {
	// Leader returns who leads as far as the member knows, 0 if it knows of nobody.
	Leader() (id, term uint64)
	// AwaitLeader waits, for the read timeout at most, until a member leads.
	AwaitLeader(context.Context) (uint64, error)
	// AwaitApplied waits, for the read timeout at most, until the state of this member has a log entry.
	AwaitApplied(ctx context.Context, index uint64) bool
	Header() replica.Header
}

// Connections are those to the other members.
type Connections interface {
	// Conn returns the connection to another member, nil if there is no such member.
	Conn(member uint64) grpc.ClientConnInterface
}

// Config is what a [Forwarder] is made of.
type Config struct {
	Member Member
	Peers  Connections
	// ReadTimeout is how long a request waits for a leader that takes it.
	ReadTimeout time.Duration
	Lifetime    *lifetime.Lifetime
	Places      *admission.Places
	// ReadsOnly reports whether a request, of a method that may change something, changes nothing.
	ReadsOnly func(req any) bool
}

// Forwarder serves requests where the leader is. Its methods are safe for concurrent use.
type Forwarder struct {
	member    Member
	peers     Connections
	patience  time.Duration
	life      *lifetime.Lifetime
	places    *admission.Places
	readsOnly func(req any) bool
	routes    map[string]*route

	sent   atomic.Uint64 // requests and streams
	failed atomic.Uint64 // those of them that did not get there, or whose answer was lost
}

// New makes a forwarder.
func New(c Config) (*Forwarder, error) {
	routes, err := newRoutes()
	if err != nil {
		return nil, err
	}
	return &Forwarder{
		member: c.Member, peers: c.Peers, patience: c.ReadTimeout, life: c.Lifetime, places: c.Places,
		readsOnly: c.ReadsOnly, routes: routes,
	}, nil
}

// Sent returns how many requests and streams were forwarded.
func (f *Forwarder) Sent() uint64 { return f.sent.Load() }

// Failed returns how many forwarded ones did not get to the leader, or lost their answer.
func (f *Forwarder) Failed() uint64 { return f.failed.Load() }

// Changes reports whether a method, which only the leader serves, may change something.
func (f *Forwarder) Changes(method string) bool {
	r := f.routes[method]
	return r != nil && r.changes
}

// isElsewhere reports whether an error means that nothing has happened, and that the leader may serve the request.
func isElsewhere(err error) bool {
	return errors.Is(err, replica.ErrNoLeader) || errors.Is(err, replica.ErrNotLeader)
}

// errNotReached is for what was surely not sent to the leader.
var errNotReached = fmt.Errorf("the leader cannot be reached: %w", replica.ErrNoLeader)

// lostAnswer is [replica.ErrUnknownOutcome] for what was sent to the leader.
type lostAnswer struct{ cause error }

func (l *lostAnswer) Error() string {
	return fmt.Sprintf("%v (sent to the leader, whose answer is lost: %v)", replica.ErrUnknownOutcome, l.cause)
}
func (l *lostAnswer) Unwrap() error { return replica.ErrUnknownOutcome }

// PeerError is an error that another member has given to the client. The client receives it as it is.
type PeerError struct{ Status error }

func (p *PeerError) Error() string { return p.Status.Error() }
func (p *PeerError) Unwrap() error { return p.Status }

// Unary serves a request at the leader if only the leader serves it, here or at another member; otherwise here. handle
// serves it here. While no member leads, and nothing has happened, it waits and looks again for as long as a read may.
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
		if !isElsewhere(err) || time.Until(limit) < forwardPause {
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

// CallOptions are those of calls between members. What is too large was refused when the client sent it.
var CallOptions = []grpc.CallOption{grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)}

// forward has the leader answer a request. patience is how long it may take until the request is on its way. A client
// that has changed something through this member also sees it here: the answer waits until this member has the change. A
// member that lags keeps the answer for no longer than a read may take, since the change is made.
func (f *Forwarder) forward(client context.Context, leader uint64, r *route, req proto.Message, patience time.Duration) (any, error) {
	f.sent.Add(1)
	ctx, cancel := context.WithCancelCause(client)
	defer cancel(nil)
	if !r.stays {
		defer f.duringLeadership(leader, r, cancel)()
	}
	call, err := f.openAt(ctx, cancel, leader, r, patience, &grpc.StreamDesc{})
	if err != nil {
		return nil, err
	}
	resp := r.newResponse()
	// What sending fails with, receiving explains.
	_ = call.SendMsg(req)
	_ = call.CloseSend()
	if err := call.RecvMsg(resp); err != nil {
		return nil, f.forwardError(ctx, r, call, err)
	}
	f.member.AwaitApplied(client, appliedIn(call.Trailer()))
	if h, ok := resp.(interface{ GetHeader() *pb.ResponseHeader }); ok && h.GetHeader() != nil {
		h.GetHeader().MemberId = f.self() // it is this member that answers the client
	}
	return resp, nil
}

// openAt begins a call at another member. Nothing has been sent if it fails.
func (f *Forwarder) openAt(ctx context.Context, cancel context.CancelCauseFunc, member uint64, r *route, patience time.Duration, desc *grpc.StreamDesc) (grpc.ClientStream, error) {
	conn := f.peers.Conn(member)
	if conn == nil {
		return nil, errNotReached
	}
	late := time.AfterFunc(max(patience, 0), func() { cancel(errNotReached) })
	call, err := conn.NewStream(admission.WithIdentity(ctx), desc, r.method, CallOptions...)
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

// forwardError says what the end of a call at another member means. The client receives the answer of that member as it
// is. Without one the request may have got there, or not.
func (f *Forwarder) forwardError(ctx context.Context, r *route, call grpc.ClientStream, err error) error {
	switch verdictOf(call.Trailer()) {
	case verdictSaid:
		return &PeerError{err}
	case verdictElsewhere:
		return replica.ErrNotLeader
	}
	f.failed.Add(1)
	if status.Code(err) == codes.Unimplemented {
		return errNotReached // a member of an older version, which does not know the method
	}
	cause := context.Cause(ctx)
	switch {
	case r.changes && cause != nil:
		return &lostAnswer{cause}
	case r.changes:
		return &lostAnswer{err}
	case errors.Is(cause, lifetime.ErrLeaderChanged):
		return errNotReached // the next leader can be asked at once
	case cause != nil:
		return cause
	}
	return errNotReached
}

// duringLeadership cancels a call when the member that it was sent to no longer leads. It cancels a call that changes
// something a little later, since the answer may yet come. The caller calls leave when the call has ended.
func (f *Forwarder) duringLeadership(leader uint64, r *route, cancel context.CancelCauseFunc) (leave func()) {
	leadership := f.life.Leadership()
	if leadership.Leader != leader { // just now
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

// Ask calls another member about itself. why says to people why it did not answer. It is empty if the member did; an error
// is then a [PeerError].
func (f *Forwarder) Ask(ctx context.Context, member uint64, call func(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) error) (why string, err error) {
	conn := f.peers.Conn(member)
	if conn == nil {
		return WhyNoAnswer(errNotReached), errNotReached
	}
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var trailer metadata.MD
	err = call(limited, conn, append(CallOptions[:len(CallOptions):len(CallOptions)], grpc.Trailer(&trailer))...)
	switch {
	case err == nil:
		return "", nil
	case verdictOf(trailer) == verdictSaid:
		return "", &PeerError{err}
	}
	return WhyNoAnswer(err), err
}

// WhyNoAnswer is what people read about a member that did not answer.
func WhyNoAnswer(err error) string {
	if said := (*PeerError)(nil); errors.As(err, &said) {
		err = said.Status
	}
	if status.Code(err) == codes.DeadlineExceeded {
		return "no answer"
	}
	return status.Convert(err).Message()
}
