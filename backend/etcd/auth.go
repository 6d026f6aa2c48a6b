package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasekeeper/leasekeeper/internal/credential"
)

// user is the user of etcd that requests are made for, and its token. etcd gives a token for a name and a password, and each request
// carries it. A token ends if it is not used for some minutes, if the member that gave it restarts, or if users and roles
// change.
type user struct {
	name, password string
	held           credential.Token
}

// token returns the token to send. If there is none, it asks the endpoint for one.
func (u *user) token(ctx context.Context, w *endpoint) (string, error) {
	if u.name == "" {
		return "", nil
	}
	return u.held.Get(ctx, w.asking, func(ctx context.Context) (string, error) {
		resp, err := w.auth.Authenticate(outgoing(ctx, ""), &pb.AuthenticateRequest{Name: u.name, Password: u.password})
		if err != nil && !says(err, rpctypes.ErrGRPCAuthNotEnabled) {
			return "", err
		}
		return resp.GetToken(), nil
	})
}

// refused reports whether err means that the token is not valid. Then the request had no effect, and the next request asks
// for another token.
func (u *user) refused(err error, token string) bool {
	if !u.needsToken(err) {
		return false
	}
	u.held.Refuse(token)
	return true
}

// needsToken reports whether the request may succeed with another token.
func (u *user) needsToken(err error) bool { return u.name != "" && credential.NeedsToken(err) }
