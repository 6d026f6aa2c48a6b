package pages

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/webconsole"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// loginLimit bounds the time for one login.
const loginLimit = 10 * time.Second

// userKey is the key of the metadata that stands for a user, in the context of a change.
type userKey struct{}

// gate implements [webconsole.Access] by the policy of the server.
type gate struct {
	guard  Guard
	store  backend.Backend
	conn   *grpc.ClientConn // for logins
	closed error            // why nobody sees the pages while access is not enabled; nil if everyone may
}

func newGate(guard Guard, store backend.Backend, dial func(context.Context, string) (net.Conn, error)) (*gate, error) {
	conn, err := grpc.NewClient(target, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(asUser))
	if err != nil {
		return nil, err
	}
	return &gate{guard: guard, store: store, conn: conn}, nil
}

func (g *gate) close() error { return g.conn.Close() }

// Open implements [webconsole.Access].
func (g *gate) Open() error {
	if g.Required() {
		return nil
	}
	return g.closed
}

// Required implements [webconsole.Access].
func (g *gate) Required() bool { return g.guard.Policy().Enabled() }

// metadataOf returns what a request of a browser says about its user. A token comes before a certificate.
func metadataOf(r *http.Request, token string) metadata.MD {
	if token == "" {
		token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	m := metadata.Join(admission.IdentityOfRequest(r).Metadata(), admission.OriginOfRequest(r))
	if token != "" {
		m.Set("token", token)
	}
	return m
}

// Login implements [webconsole.Access]. The server checks passwords in turns, as for logins over gRPC.
func (g *gate) Login(r *http.Request, user, password string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), userKey{}, metadata.Join(admission.IdentityOfRequest(r).Metadata(), admission.OriginOfRequest(r))), loginLimit)
	defer cancel()
	answer, err := pb.NewAuthClient(g.conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: user, Password: password})
	switch {
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthFailed):
		return "", webconsole.ErrWrongPassword
	case err != nil:
		return "", errors.New(status.Convert(err).Message())
	}
	return answer.Token, nil
}

// Rights implements [webconsole.Access].
func (g *gate) Rights(r *http.Request, token string) (*webconsole.Rights, error) {
	policy := g.guard.Policy()
	said := metadataOf(r, token)
	caller, err := g.guard.Caller(metadata.NewIncomingContext(admission.MarkGatewayRequest(r.Context()), said))
	if err != nil || caller.User == "" {
		return nil, webconsole.ErrNoUser
	}
	if err := policy.CheckNames(caller, "", 0); err != nil { // the user is gone, or the token is of other rights
		return nil, webconsole.ErrNoUser
	}
	has := func(name string, rights access.Rights) bool { return policy.CheckName(caller, name, rights) == nil }
	return &webconsole.Rights{
		User: caller.User, Version: policy, All: has("", access.Watch), Root: policy.CheckRoot(caller) == nil,
		Sees:        func(name string) bool { return has(name, access.Watch) },
		Administers: func(name string) bool { return has(name, access.Administer) },
		Store:       g.store,
		As:          func(ctx context.Context) context.Context { return context.WithValue(ctx, userKey{}, said) },
	}, nil
}
