package server

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/guard"
	"github.com/leasekeeper/leasekeeper/server/internal/login"
)

// Defaults of users, as in etcd.
const (
	DefaultBcryptCost   = login.DefaultCost
	DefaultAuthTokenTTL = login.DefaultTTL
)

// Logins are the simple tokens that a member knows; see [Config.Logins].
type Logins = login.Logins

// NewLogins makes Logins that expire when they were not used for a time.
func NewLogins(ttl time.Duration) *Logins { return login.NewLogins(ttl) }

// accessMember is what checks of rights use of a node.
type accessMember interface {
	// Access returns the policy that the member has applied.
	Access() *access.Policy
	ChangeAccess(context.Context, access.Command) (replica.Header, error)
	// Login tells all members of a token.
	Login(context.Context, access.Login) (index uint64, header replica.Header, err error)
}

// tokenMember is a member as tokens use it.
type tokenMember struct{ member }

// Login implements [login.Member].
func (m tokenMember) Login(ctx context.Context, c access.Login) (uint64, error) {
	index, _, err := m.member.Login(ctx, c)
	return index, err
}

// newGuard makes the checks of rights, and the tokens.
func (s *Server) newGuard() error {
	options, err := login.ParseOptions(s.cfg.AuthToken)
	if err != nil {
		return err
	}
	logins := s.cfg.Logins
	if logins == nil {
		logins = NewLogins(DefaultAuthTokenTTL)
	}
	if s.tokens, err = options.Open(tokenMember{s.member}, logins, s.log); err != nil {
		return err
	}
	c := guard.Config{
		Access: s.member.Access, Confirm: s.member.Confirm, As: node.As, Tokens: s.tokens,
		CertificateNames: s.cfg.ClientCAFile != "",
	}
	if s.cfg.Cluster != nil {
		c.Trusted = func() bool { return !s.cfg.Cluster.Peers.Open() }
	}
	s.guard = serverGuard{guard.New(c), s, options.JWT != nil || s.cfg.Logins != nil}
	return nil
}

// serverGuard is the checks of rights, with what else is needed before they are enabled.
type serverGuard struct {
	*guard.Guard
	s      *Server
	tokens bool // users can get tokens
}

// Safe implements [etcdapi.Guard].
func (g serverGuard) Safe() error {
	if g.s.cfg.Cluster != nil && g.s.cfg.Cluster.Peers.Open() || !g.tokens {
		return etcdapi.ErrUnsafePeers
	}
	return nil
}

// guardedUnary returns a handler that serves a request only if its method permits it to the user.
func (s *Server) guardedUnary(method string, handle grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, req any) (any, error) {
		if err := s.guard.Method(ctx, method, req); err != nil {
			return nil, err
		}
		return handle(ctx, req)
	}
}

// guardedStream does the same for a stream. The stream belongs to the user that opened it, even when the token expires.
func (s *Server) guardedStream(method string, handle grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		if err := s.guard.Method(stream.Context(), method, nil); err != nil {
			return err
		}
		return handle(srv, admission.WithContext(admission.WithPin(stream.Context()), stream))
	}
}
