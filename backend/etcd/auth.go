package etcd

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// user is who asks. etcd gives a token for a name and a password, which is sent with each request until it
// is refused: tokens end when they are not used for some minutes, when the member that gave it restarts,
// or when users and roles change.
type user struct {
	name, password string

	mu  sync.Mutex
	has bool
	now string // empty if etcd does without
}

// token returns the one to send, and asks the endpoint for it if there is none. At each endpoint one request asks, and
// others wait for it, until their context ends: an endpoint that does not answer keeps nobody from asking another.
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

// refused says whether err means that the token was of no use, in which case nothing was done; the next
// request then asks for another.
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

// needsToken says whether another token may be what it takes.
func (u *user) needsToken(err error) bool {
	return u.name != "" && (says(err, rpctypes.ErrGRPCInvalidAuthToken) || says(err, rpctypes.ErrGRPCUserEmpty) || says(err, rpctypes.ErrGRPCAuthOldRevision))
}
