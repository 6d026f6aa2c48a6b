package server

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// ledStream carries out a stream where the leader is, here or at another member. While nobody leads, and nothing was
// taken from the client, it waits and looks again for as long as a read may.
func (s *Server) ledStream(r *route, impl any, stream grpc.ServerStream, handle grpc.StreamHandler) error {
	if admission.FromPeer(stream.Context()) {
		if !s.leads() {
			return replica.ErrNotLeader
		}
		return handle(impl, stream)
	}
	for limit := time.Now().Add(s.cfg.Group.ReadTimeout); ; {
		leader, err := s.leading.AwaitLeader(stream.Context())
		switch {
		case err != nil:
			return err
		case leader == s.self():
			return handle(impl, stream)
		}
		begun, err := s.relay(leader, r, stream, time.Until(limit))
		if begun || !isElsewhere(err) || time.Until(limit) < forwardPause {
			return err
		}
		if err := lifetime.Pause(stream.Context(), forwardPause); err != nil {
			return err
		}
	}
}

// relay passes a stream on to the leader, message by message in both directions. It holds one message of each: who
// does not read keeps the other from sending. It ends when another member leads. Unless it has begun, nothing was taken
// from the client.
func (s *Server) relay(leader uint64, r *route, stream grpc.ServerStream, patience time.Duration) (begun bool, err error) {
	share := s.limits.places.Join(admission.IdentityOf(stream.Context()))
	defer share.Leave()
	if err := share.Take(); err != nil {
		return false, err
	}
	defer share.Give(1)
	s.forwards.sent.Add(1)
	ctx, end := s.life.Stream(stream.Context(), lifetime.OneLeadership)
	defer end(nil)
	if s.life.Leadership().Leader != leader { // it has changed just now
		return false, replica.ErrNotLeader
	}
	call, err := s.openAt(ctx, end, leader, r, patience, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true})
	if err != nil {
		return false, err
	}
	s.life.Go(func() {
		if err := pump(call, stream, r.newRequest()); errors.Is(err, io.EOF) {
			_ = call.CloseSend() // what it fails with, receiving explains
		} else if err != nil {
			end(err)
		}
	})
	answered := false
	resp := r.newResponse()
	for {
		if err = call.RecvMsg(resp); err != nil {
			break
		}
		answered = true
		if err := stream.SendMsg(resp); err != nil {
			return true, err
		}
	}
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return true, s.relayError(ctx, r, call, err, answered)
}

// pump passes on what a client sends, until it has no more. That the other side takes no more is no error: its end
// tells why.
func pump(to grpc.ClientStream, from grpc.ServerStream, m proto.Message) error {
	for {
		if err := from.RecvMsg(m); err != nil {
			return err
		}
		if to.SendMsg(m) != nil {
			return nil
		}
	}
}

// relayError says what the end of a stream at the leader means. Once something was answered, a client knows what it
// has been told about; before that, what changes something may or may not have done so.
func (s *Server) relayError(ctx context.Context, r *route, call grpc.ClientStream, err error, answered bool) error {
	if answered {
		as := *r
		as.changes = false
		r = &as
	}
	return s.forwardError(ctx, r, call, err)
}
