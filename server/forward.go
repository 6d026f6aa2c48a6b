package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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
	// leadershipGrace is how long an answer is waited for from a member that leads no more. It may not know that
	// yet, and one that is cut off will not answer at all.
	leadershipGrace = time.Second
)

// isElsewhere says whether an error means that nothing has happened, and that the leader may do it.
func isElsewhere(err error) bool {
	return errors.Is(err, replica.ErrNoLeader) || errors.Is(err, replica.ErrNotLeader)
}

// errNotReached is for what was surely not sent to the leader.
var errNotReached = fmt.Errorf("the leader can not be reached: %w", replica.ErrNoLeader)

// lostAnswer is [replica.ErrUnknownOutcome] for what was sent to the leader.
type lostAnswer struct{ cause error }

func (l *lostAnswer) Error() string {
	return fmt.Sprintf("%v (sent to the leader, whose answer is lost: %v)", replica.ErrUnknownOutcome, l.cause)
}
func (l *lostAnswer) Unwrap() error { return replica.ErrUnknownOutcome }

// passedOn is an error that another member has given to the client: nothing is added to it or taken from it.
type passedOn struct{ status error }

func (p *passedOn) Error() string { return p.status.Error() }
func (p *passedOn) Unwrap() error { return p.status }

// led carries out a request where the leader is, here or at another member. While nobody leads, and nothing has
// happened, it waits and looks again for as long as a read may.
func (s *Server) led(ctx context.Context, r *route, req any, handle grpc.UnaryHandler) (any, error) {
	if admission.FromPeer(ctx) {
		if !s.leads() {
			return nil, replica.ErrNotLeader
		}
		return handle(ctx, req)
	}
	for limit := time.Now().Add(s.cfg.Group.ReadTimeout); ; {
		leader, err := s.leading.AwaitLeader(ctx)
		if err != nil {
			return nil, err
		}
		var resp any
		if leader == s.self() {
			resp, err = handle(ctx, req)
		} else {
			resp, err = s.forward(ctx, leader, r, req.(proto.Message), time.Until(limit))
		}
		if !isElsewhere(err) || time.Until(limit) < forwardPause {
			return resp, err
		}
		if err := lifetime.Pause(ctx, forwardPause); err != nil {
			return nil, err
		}
	}
}

// leads says whether this member leads as far as it knows.
func (s *Server) leads() bool {
	leader, _ := s.leading.Leader()
	return leader == s.self()
}

func (s *Server) self() uint64 { return s.member.Header().MemberID }

// outgoing are the options of calls between members. What is too large was refused when the client sent it.
var outgoing = []grpc.CallOption{grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)}

// forward has the leader answer a request. patience is how long it may take until the request is on its way. Who has
// changed something through this member sees it here, too: the answer waits until this member has it. One that lags
// does not keep it for longer than a read may take, since what was asked for is done.
func (s *Server) forward(client context.Context, leader uint64, r *route, req proto.Message, patience time.Duration) (any, error) {
	s.forwards.sent.Add(1)
	ctx, cancel := context.WithCancelCause(client)
	defer cancel(nil)
	if !r.stays {
		defer s.duringLeadership(leader, r, cancel)()
	}
	call, err := s.openAt(ctx, cancel, leader, r, patience, &grpc.StreamDesc{})
	if err != nil {
		return nil, err
	}
	resp := r.newResponse()
	// What sending fails with, receiving explains.
	_ = call.SendMsg(req)
	_ = call.CloseSend()
	if err := call.RecvMsg(resp); err != nil {
		return nil, s.forwardError(ctx, r, call, err)
	}
	s.leading.AwaitApplied(client, appliedIn(call.Trailer()))
	if h, ok := resp.(interface{ GetHeader() *pb.ResponseHeader }); ok && h.GetHeader() != nil {
		h.GetHeader().MemberId = s.self() // it is this member that answers the client
	}
	return resp, nil
}

// openAt begins a call at another member. Nothing has been sent if it fails.
func (s *Server) openAt(ctx context.Context, cancel context.CancelCauseFunc, member uint64, r *route, patience time.Duration, desc *grpc.StreamDesc) (grpc.ClientStream, error) {
	conn := s.cfg.Group.Peers.Conn(member)
	if conn == nil {
		return nil, errNotReached
	}
	late := time.AfterFunc(max(patience, 0), func() { cancel(errNotReached) })
	call, err := conn.NewStream(admission.WithIdentity(ctx), desc, r.method, outgoing...)
	if !late.Stop() && err == nil {
		err = errNotReached // and the call is cancelled
	}
	if err == nil {
		return call, nil
	}
	s.forwards.failed.Add(1)
	if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return nil, cause
	}
	return nil, errNotReached
}

// forwardError says what the end of a call at another member means. What that member has said is passed on as it
// is. Otherwise the request may have got there, or not.
func (s *Server) forwardError(ctx context.Context, r *route, call grpc.ClientStream, err error) error {
	switch verdictOf(call.Trailer()) {
	case verdictSaid:
		return &passedOn{err}
	case verdictElsewhere:
		return replica.ErrNotLeader
	}
	s.forwards.failed.Add(1)
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

// duringLeadership gives a call up when the member that it was sent to leads no more, and one that changes something some
// time after that, since its answer may yet come. The caller calls leave when it has ended.
func (s *Server) duringLeadership(leader uint64, r *route, cancel context.CancelCauseFunc) (leave func()) {
	leadership := s.life.Leadership()
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
