package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// user is who asks. etcd gives a token for a name and a password, which is sent with each request until it
// is refused: tokens end when they are not used for some minutes, when the member that gave it starts anew,
// or when users and roles change.
type user struct {
	name, password string
	patience       time.Duration // for one answer to a question for a token: others wait for it too

	turn chan struct{} // held by whoever uses what is below; a lock that one can stop waiting for
	has  bool
	now  string // empty if etcd does without
}

func newUser(name, password string, patience time.Duration) user {
	return user{name: name, password: password, patience: patience, turn: make(chan struct{}, 1)}
}

func (u *user) lock(ctx context.Context) error {
	select {
	case u.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (u *user) unlock() { <-u.turn }

// token returns the one to send, and asks for it if there is none.
func (u *user) token(ctx context.Context, w *way) (string, error) {
	if u.name == "" {
		return "", nil
	}
	if err := u.lock(ctx); err != nil {
		return "", err
	}
	defer u.unlock()
	if u.has {
		return u.now, nil
	}
	ctx, cancel := context.WithTimeout(ctx, u.patience)
	defer cancel()
	resp, err := w.auth.Authenticate(outgoing(ctx, ""), &pb.AuthenticateRequest{Name: u.name, Password: u.password})
	switch {
	case says(err, rpctypes.ErrGRPCAuthNotEnabled):
		u.has, u.now = true, ""
	case err != nil:
		return "", err
	default:
		u.has, u.now = true, resp.Token
	}
	return u.now, nil
}

// refused says whether err means that the token was of no use, in which case nothing was done; the next
// request then asks for another.
func (u *user) refused(err error, token string) bool {
	if !u.needsToken(err) {
		return false
	}
	u.turn <- struct{}{}
	defer u.unlock()
	if u.now == token {
		u.has = false
	}
	return true
}

// needsToken says whether another token may be what it takes.
func (u *user) needsToken(err error) bool {
	return u.name != "" && (says(err, rpctypes.ErrGRPCInvalidAuthToken) || says(err, rpctypes.ErrGRPCUserEmpty) || says(err, rpctypes.ErrGRPCAuthOldRevision))
}
