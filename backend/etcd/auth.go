package etcd

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// user is the user of etcd that requests are made for, and its token. etcd gives a token for a name and a password, and each request
// carries it. A token ends if it is not used for some minutes, if the member that gave it restarts, or if users and roles
// change.
type user struct {
	name, password string

	mu  sync.Mutex
	has bool   // now is set
	now string // the token; empty if etcd has no users
}

// token returns the token to send. If there is none, it asks the endpoint for one. One request asks at each endpoint, and
// others wait for its token until their context ends. So an endpoint that does not answer does not keep a request from asking
// another endpoint.
func (u *user) token(ctx context.Context, w *endpoint) (string, error) {
	if u.name == "" {
		return "", nil
	}
	if token, has := u.current(); has {
		return token, nil
	}
	select {
	case w.asking <- struct{}{}:
		defer func() { <-w.asking }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if token, has := u.current(); has {
		return token, nil
	}
	resp, err := w.auth.Authenticate(outgoing(ctx, ""), &pb.AuthenticateRequest{Name: u.name, Password: u.password})
	if err != nil && !says(err, rpctypes.ErrGRPCAuthNotEnabled) {
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
	if !u.needsToken(err) {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.now == token {
		u.has = false
	}
	return true
}

// needsToken reports whether the request may succeed with another token.
func (u *user) needsToken(err error) bool {
	return u.name != "" && (says(err, rpctypes.ErrGRPCInvalidAuthToken) || says(err, rpctypes.ErrGRPCUserEmpty) || says(err, rpctypes.ErrGRPCAuthOldRevision))
}
