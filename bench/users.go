package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// tokenKey is the metadata with the token of a user.
const tokenKey = "token"

// bearer adds a token to each request.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{tokenKey: string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// withUsers enables access on the server before a measurement, which is made by a user with a role: all its requests are
// checked. Tokens are simple ones.
func withUsers(run measured) measured {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		if err := s.enableAccess(ctx); err != nil {
			return nil, fmt.Errorf("enabling access: %w", err)
		}
		return run(ctx, s, z)
	}
}

// enableAccess makes root and the user bench, who may use all keys and names, and logs in as bench.
func (s *server) enableAccess(ctx context.Context) error {
	conns, err := s.dial(1)
	if err != nil {
		return err
	}
	defer conns.close()
	auth, names := pb.NewAuthClient(conns[0]), leasekeeperv1.NewLeasekeeperClient(conns[0])
	everything := &authpb.Permission{PermType: authpb.READWRITE, Key: []byte{0}, RangeEnd: []byte{0}}
	for _, step := range []func() error{
		func() error { return errorOf(auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "root", Password: "r"})) },
		func() error {
			return errorOf(auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}))
		},
		func() error { return errorOf(auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "bench", Password: "b"})) },
		func() error { return errorOf(auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "bench"})) },
		func() error {
			return errorOf(auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "bench", Role: "bench"}))
		},
		func() error {
			return errorOf(auth.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: "bench", Perm: everything}))
		},
		func() error {
			if s.name == reference {
				return nil // etcd has no rights over names
			}
			return errorOf(names.GrantRight(ctx, &leasekeeperv1.GrantRightRequest{Role: "bench", Rights: []leasekeeperv1.NameRight{leasekeeperv1.NameRight_HOLD}}))
		},
		func() error { return errorOf(auth.AuthEnable(ctx, &pb.AuthEnableRequest{})) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	resp, err := auth.Authenticate(ctx, &pb.AuthenticateRequest{Name: "bench", Password: "b"})
	s.token = resp.GetToken()
	return err
}

func errorOf[T any](_ T, err error) error { return err }

// claiming measures claims and releases of names by our own API, without a client library.
func claiming(inFlight int) measured {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		if s.name == reference {
			return nil, nil
		}
		conns, err := s.dial(min(inFlight, rateConnections))
		if err != nil {
			return nil, err
		}
		defer conns.close()
		var lease atomic.Int64
		return rate(ctx, s, z, inFlight, "", func(ctx context.Context, worker int, count *atomic.Int64) error {
			names, name := leasekeeperv1.NewLeasekeeperClient(conns.of(worker)), fmt.Sprintf("own/%d", worker)
			for {
				id := lease.Add(1)
				if err := claimOnce(ctx, names, name, id); err != nil {
					return err
				}
				if _, err := names.Release(ctx, &leasekeeperv1.ReleaseRequest{Name: name, Lease: id}); err != nil {
					return err
				}
				count.Add(1)
			}
		})
	}
}

// claimOnce claims a free name.
func claimOnce(ctx context.Context, names leasekeeperv1.LeasekeeperClient, name string, lease int64) error {
	stream, err := names.Acquire(ctx, &leasekeeperv1.AcquireRequest{
		Name: name, Lease: lease, TtlMs: lockTTL.Milliseconds(), Holder: &leasekeeperv1.Holder{Id: "bench"},
	})
	if err != nil {
		return err
	}
	resp, err := stream.Recv()
	if err == nil && resp.State != leasekeeperv1.AcquireResponse_HELD {
		return fmt.Errorf("nobody wants %s, but it is %v", name, resp.State)
	}
	if err == nil {
		_, _ = stream.Recv() // its end, after which the library forgets the stream
	}
	return err
}

// userScenarios are loads without users and with them. Their quotient is what the checks cost.
func userScenarios(z size) (list []scenario) {
	const claims = "claims and releases by stubs, 64 in flight"
	return []scenario{
		{name: claims, rounds: z.rounds, run: claiming(64)},
		{name: claims + ", with users", rounds: z.rounds, run: withUsers(claiming(64))},
		{name: "puts at 64 in flight, with users", rounds: z.rounds, run: withUsers(puts(64, ""))},
		{name: "renewals, pipelined on 8 streams, with users", rounds: z.rounds, run: withUsers(renewalsPipelined)},
		{name: "renewed ids, in messages of 100, with users", rounds: z.rounds, run: withUsers(renewedIDs(100, ""))},
	}
}
