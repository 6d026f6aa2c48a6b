package credential

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Config is the configuration of a [User].
type Config struct {
	// Name and Password are those of the user. Without a name, no call carries a token.
	Name, Password string
	// Refused is the error of a call or a stream whose token is no longer valid: it had no effect, and the next attempt asks
	// for another token. nil means an error with the code Unavailable.
	Refused error
	// NeedsToken reports whether a call may succeed with another token, besides the errors of etcd's API. It may be nil.
	NeedsToken func(error) bool
	// Limit bounds the time to ask for a token; 0 means [DefaultLimit].
	Limit time.Duration
}

// DefaultLimit bounds the time to ask for a token, because the context of a stream may have no deadline.
const DefaultLimit = 5 * time.Second

// User is the user that the calls of a client are made for, with its token. Make one with [New]. Its methods are safe for
// concurrent use.
type User struct {
	cfg Config
	// asking has a channel for each *grpc.ClientConn. It has an element while a call asks for a token over that connection.
	asking sync.Map
	held   Token
}

// New returns a user that has no token yet.
func New(c Config) *User {
	if c.Refused == nil {
		c.Refused = status.Error(codes.Unavailable, "the token of the user is no longer valid; the next attempt asks for another one")
	}
	if c.Limit == 0 {
		c.Limit = DefaultLimit
	}
	return &User{cfg: c}
}

// tries is how often a call is made with another token before it counts as refused.
const tries = 4

// Options returns what adds the token to each call of a connection.
func (u *User) Options() []grpc.DialOption {
	if u.cfg.Name == "" {
		return nil
	}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(u.unary), grpc.WithChainStreamInterceptor(u.stream)}
}

// unary makes a call with the token, and again with another one if the server refuses the token.
func (u *User) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if method == pb.Auth_Authenticate_FullMethodName {
		return invoke(ctx, method, req, reply, conn, options...)
	}
	for range tries {
		token, err := u.obtain(ctx, conn)
		if err != nil {
			return err
		}
		if err = invoke(withToken(ctx, token), method, req, reply, conn, options...); !u.refused(err, token) {
			return err
		}
	}
	return u.cfg.Refused
}

// stream opens a stream with the token. The stream belongs to the user from then on, even when the token expires.
func (u *User) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	token, err := u.obtain(ctx, conn)
	if err != nil {
		return nil, err
	}
	s, err := open(withToken(ctx, token), desc, conn, method, options...)
	if err != nil {
		return nil, err
	}
	return &userStream{s, u, token}, nil
}

// userStream is a stream that was opened with a token.
type userStream struct {
	grpc.ClientStream
	user  *User
	token string
}

// RecvMsg returns the error of [Config.Refused] if the server refuses the token.
func (s *userStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.user.refused(err, s.token) {
		return s.user.cfg.Refused
	}
	return err
}

func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}

// obtain returns the token to send over a connection.
func (u *User) obtain(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	asking, _ := u.asking.LoadOrStore(conn, make(chan struct{}, 1))
	return u.held.Get(ctx, asking.(chan struct{}), func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, u.cfg.Limit)
		defer cancel()
		resp, err := pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: u.cfg.Name, Password: u.cfg.Password})
		switch {
		case status.Code(err) == codes.Unknown: // so etcd answers to a password for a user without one
			return "", rpctypes.ErrGRPCAuthFailed
		case err != nil && !says(err, rpctypes.ErrGRPCAuthNotEnabled):
			return "", err
		}
		return resp.GetToken(), nil
	})
}

// refused reports whether err means that the token is not valid. Then the request had no effect, and the next request asks
// for another token.
func (u *User) refused(err error, token string) bool {
	if !u.needsToken(err) {
		return false
	}
	u.held.Refuse(token)
	return true
}

// Forget makes the next call ask for another token, because the server has refused this one in an answer of a stream.
func (u *User) Forget() { u.held.Forget() }

// needsToken reports whether a call may succeed with another token.
func (u *User) needsToken(err error) bool {
	return NeedsToken(err) || err != nil && u.cfg.NeedsToken != nil && u.cfg.NeedsToken(err)
}
