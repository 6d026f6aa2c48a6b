package forwarding

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

// Stream serves a stream. If only the leader serves the method, the leader does so: this member by handle, another
// member by relaying. Otherwise handle serves it. While there is no leader, and nothing was read from the client,
// Stream tries again for as long as a read may wait.
func (f *Forwarder) Stream(method string, impl any, stream grpc.ServerStream, handle grpc.StreamHandler) error {
	r := f.routes[method]
	if r == nil {
		return handle(impl, stream)
	}
	if admission.FromPeer(stream.Context()) {
		if !f.Leads() {
			return replica.ErrNotLeader
		}
		return handle(impl, stream)
	}
	for limit := time.Now().Add(f.patience); ; {
		leader, err := f.member.AwaitLeader(stream.Context())
		switch {
		case err != nil:
			return err
		case leader == f.self():
			return handle(impl, stream)
		}
		begun, err := f.relay(leader, r, stream, time.Until(limit))
		if begun || !leaderMayServe(err) || time.Until(limit) < forwardPause {
			return err
		}
		if err := lifetime.Pause(stream.Context(), forwardPause); err != nil {
			return err
		}
	}
}

// relay forwards a stream to the leader, message by message, in both directions. It holds at most one message in each
// direction, so a side that does not read stops the other from sending. It ends when another member leads. If begun is
// false, nothing was read from the client.
func (f *Forwarder) relay(leader uint64, r *route, stream grpc.ServerStream, patience time.Duration) (begun bool, err error) {
	share := f.places.Join(admission.IdentityOf(stream.Context()))
	defer share.Leave()
	if err := share.Take(); err != nil {
		return false, err
	}
	defer share.Release(1)
	f.sent.Add(1)
	ctx, end := f.life.Stream(stream.Context(), lifetime.OneLeadership)
	defer end(nil)
	if f.life.Leadership().Leader != leader { // the leader has just changed
		return false, replica.ErrNotLeader
	}
	call, err := f.openAt(ctx, end, leader, r, patience, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true})
	if err != nil {
		return false, err
	}
	f.life.Go(func() {
		if err := pump(call, stream, r.newRequest()); errors.Is(err, io.EOF) {
			_ = call.CloseSend() // if it fails, receiving returns the reason
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
	return true, f.relayError(ctx, r, call, err, answered)
}

// pump forwards the messages of a client until it has no more. It returns nil if the leader accepts no more: the error
// of its answers says why.
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

// relayError translates the end of a stream at the leader. Once the leader has answered, the client knows the outcome
// of each answered request. Before that, a request may or may not have changed something.
func (f *Forwarder) relayError(ctx context.Context, r *route, call grpc.ClientStream, err error, answered bool) error {
	if answered {
		as := *r
		as.changes = false
		r = &as
	}
	return f.forwardError(ctx, r, call, err)
}
