package remote

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// user is the user that requests are made for, with its token. The server issues a token for a name and a password, and each
// request carries it. A token ends if it is not used for some minutes, or if the password changes. All goroutines of a backend
// share one token. Its methods are safe for concurrent use.
type user struct {
	name, password string
	// asking has a channel for each *grpc.ClientConn. It has an element while a request asks for a token over that connection.
	asking sync.Map

	mu  sync.Mutex
	has bool   // now is set
	now string // the token; empty if the server has no users
}

// tokenTries is how often a request is made with another token before it counts as refused for the moment.
const tokenTries = 4

// errTokenRefused stands for a request or a stream whose token is no longer valid. It had no effect, and the next attempt asks
// for another token.
var errTokenRefused = refusal(codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "the token of the user is no longer valid; the next attempt asks for another one")

// refusal returns an error as our server makes it.
func refusal(code codes.Code, reason leasekeeperv1.ErrorReason, text string) error {
	st := status.New(code, text)
	if detailed, err := st.WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: reason.String()}); err == nil {
		st = detailed
	}
	return st.Err()
}

// options returns what adds the token to each request of a connection.
func (u *user) options() []grpc.DialOption {
	if u.name == "" {
		return nil
	}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(u.unary), grpc.WithChainStreamInterceptor(u.stream)}
}

// unary makes a call with the token, and once more with another one if the server refuses the token.
func (u *user) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if method == pb.Auth_Authenticate_FullMethodName {
		return invoke(ctx, method, req, reply, conn, options...)
	}
	for range tokenTries {
		token, err := u.token(ctx, conn)
		if err != nil {
			return err
		}
		if err = invoke(withToken(ctx, token), method, req, reply, conn, options...); !u.refused(err, token) {
			return err
		}
	}
	return errTokenRefused
}

// stream opens a stream with the token. The stream belongs to the user from then on, even when the token expires.
func (u *user) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	token, err := u.token(ctx, conn)
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
	user  *user
	token string
}

// RecvMsg returns errTokenRefused if the server refuses the token.
func (s *userStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.user.refused(err, s.token) {
		return errTokenRefused
	}
	return err
}

func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}

// token returns the token to send. If there is none, it asks for one. One request asks over each connection, and others wait
// for its token until their context ends. So a server that does not answer does not keep a request from asking another one.
func (u *user) token(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	if token, has := u.current(); has {
		return token, nil
	}
	asking, _ := u.asking.LoadOrStore(conn, make(chan struct{}, 1))
	select {
	case asking.(chan struct{}) <- struct{}{}:
		defer func() { <-asking.(chan struct{}) }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if token, has := u.current(); has {
		return token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, DefaultRequestTimeout) // the context of a stream may have no deadline
	defer cancel()
	resp, err := pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: u.name, Password: u.password})
	switch {
	case says(err, rpctypes.ErrGRPCAuthNotEnabled):
	case says(err, rpctypes.ErrGRPCAuthFailed), status.Code(err) == codes.Unknown && err != nil:
		return "", refusal(codes.Unauthenticated, leasekeeperv1.ErrorReason_UNAUTHENTICATED, "the server accepts no such user with this password: "+status.Convert(err).Message())
	case err != nil:
		return "", err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.has, u.now = true, resp.GetToken()
	return u.now, nil
}

func (u *user) current() (token string, has bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.now, u.has
}

// refused reports whether err means that the token is not valid. Then the request had no effect, and the next request asks
// for another token.
func (u *user) refused(err error, token string) bool {
	if !needsToken(err) {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.now == token {
		u.has = false
	}
	return true
}

// forget makes the next request ask for another token.
func (u *user) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.has = false
}

// needsToken reports whether a request may succeed with another token.
func needsToken(err error) bool {
	switch reasonOf(err) {
	case leasekeeperv1.ErrorReason_UNAUTHENTICATED, leasekeeperv1.ErrorReason_RIGHTS_CHANGED:
		return true
	}
	return says(err, rpctypes.ErrGRPCInvalidAuthToken) || says(err, rpctypes.ErrGRPCUserEmpty) || says(err, rpctypes.ErrGRPCAuthOldRevision)
}
