package guard

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
)

// Member is what a [Guard] uses of its member.
type Member interface {
	// Access returns the policy that the member has applied.
	Access() *access.Policy
	// Confirm returns when the member has applied everything that was acknowledged before.
	Confirm(context.Context) error
	// Login tells all members of a token.
	Login(context.Context, access.Login) (index uint64, header replica.Header, err error)
	// AwaitApplied waits until this member has applied a log entry, at most for the read timeout.
	AwaitApplied(ctx context.Context, index uint64) bool
}

// tokenMember is a member as tokens use it.
type tokenMember struct{ Member }

// Login implements [login.Member].
func (m tokenMember) Login(ctx context.Context, c access.Login) (uint64, error) {
	index, _, err := m.Member.Login(ctx, c)
	return index, err
}

// errNoTokens means that the program which made the server passes no logins on.
var errNoTokens = errors.New("nobody could log in: the member passes no tokens on")

// Safe returns why access cannot be enabled; nil if it can.
func (g *Guard) Safe() error {
	switch {
	case g.openPeers():
		return etcdapi.ErrUnsafePeers
	case !g.issues:
		return errors.Join(etcdapi.ErrUnsafePeers, errNoTokens)
	case g.cfg.Members != nil:
		return roster.CheckSecure(g.cfg.Members()...)
	}
	return nil
}

// Unary returns a handler that serves a request only if its method permits it to the user.
func (g *Guard) Unary(method string, handle grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, req any) (any, error) {
		if err := g.Method(ctx, method, req); err != nil {
			return nil, g.note(ctx, method, err)
		}
		resp, err := handle(ctx, req)
		return resp, g.note(ctx, method, err)
	}
}

// Stream does the same for a stream. The stream belongs to the user that opened it, even when the token expires.
func (g *Guard) Stream(method string, handle grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		ctx := stream.Context()
		if err := g.Method(ctx, method, nil); err != nil {
			return g.note(ctx, method, err)
		}
		ctx = admission.WithPin(ctx)
		stream = admission.WithContext(ctx, stream)
		if methods[method] == rootRole {
			stream = rootStream{stream, g}
		}
		return g.note(ctx, method, handle(srv, stream))
	}
}

// rootStream is a stream of which the client gets no message after it has lost the role root.
type rootStream struct {
	grpc.ServerStream
	guard *Guard
}

// SendMsg implements [grpc.ServerStream].
func (s rootStream) SendMsg(m any) error {
	if err := s.guard.verdict(s.Context(), root); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}
