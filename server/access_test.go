package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/guard"
)

// startWithUsers starts a server whose member tells it of tokens.
func startWithUsers(t *testing.T) *front {
	t.Helper()
	return startConfiguredWithUsers(t, anyPort())
}

// startConfiguredWithUsers does the same with a configuration of the test. Simple tokens have the default TTL unless the test
// gives Logins.
func startConfiguredWithUsers(t *testing.T, cfg Config) *front {
	t.Helper()
	if cfg.BcryptCost = 4; cfg.Logins == nil {
		cfg.Logins = NewLogins(DefaultAuthTokenTTL)
	}
	n, err := node.Start(t.Context(), node.Config{Dir: t.TempDir(), LoggedIn: cfg.Logins.Learn})
	wantOK(t, err)
	t.Cleanup(func() {
		if err := n.Stop(limited(t, context.Background())); err != nil {
			t.Errorf("stopping the node: %v", err)
		}
	})
	<-n.Ready()
	return startOn(t, cfg, n)
}

// addUsers makes the users root, alice with the role half for the keys from a to c, and bare, and enables access.
func (f *front) addUsers() {
	f.t.Helper()
	f.enableAccess(map[string]string{"root": "root", "alice": "alice", "bare": "bare"}, "alice", "half", "a", "c")
}

// enableAccess makes users with passwords, root among them, gives one of them a role for the keys from first to end, and
// enables access.
func (f *front) enableAccess(passwords map[string]string, user, role, first, end string) {
	f.t.Helper()
	ctx := f.ctx()
	for name, password := range passwords {
		_, err := f.auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: name, Password: password})
		wantOK(f.t, err)
	}
	_, err := f.auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	wantOK(f.t, err)
	_, err = f.auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: role})
	wantOK(f.t, err)
	_, err = f.auth.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: &authpb.Permission{
		PermType: authpb.READWRITE, Key: []byte(first), RangeEnd: []byte(end),
	}})
	wantOK(f.t, err)
	_, err = f.auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: user, Role: role})
	wantOK(f.t, err)
	_, err = f.auth.AuthEnable(ctx, &pb.AuthEnableRequest{})
	wantOK(f.t, err)
}

// as returns the context of a user's request. The passwords of users are their names.
func (f *front) as(user string) context.Context {
	f.t.Helper()
	if user == "" {
		return f.ctx()
	}
	resp, err := f.auth.Authenticate(f.ctx(), &pb.AuthenticateRequest{Name: user, Password: user})
	wantOK(f.t, err)
	return metadata.AppendToOutgoingContext(f.ctx(), "token", resp.Token)
}

func TestUsersReadAndWriteWhatTheirRolesAllow(t *testing.T) {
	f := startWithUsers(t)
	f.put("m", "secret")
	f.addUsers()
	for user, want := range map[string]struct{ own, other error }{
		"":      {rpctypes.ErrGRPCUserEmpty, rpctypes.ErrGRPCUserEmpty},
		"bare":  {rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCPermissionDenied},
		"alice": {nil, rpctypes.ErrGRPCPermissionDenied},
		"root":  {nil, nil},
	} {
		ctx := f.as(user)
		for key, want := range map[string]error{"a": want.own, "m": want.other} {
			_, err := f.kv.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte("1")})
			wantStatus(t, err, want)
			for _, serializable := range []bool{false, true} {
				resp, err := f.kv.Range(ctx, &pb.RangeRequest{Key: []byte(key), Serializable: serializable})
				wantStatus(t, err, want)
				if want != nil && resp != nil {
					t.Errorf("%s reads %v beside an error", user, resp)
				}
			}
			_, err = f.kv.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte(key)}}})
			wantStatus(t, err, want)
		}
	}
	_, err := f.kv.Put(metadata.AppendToOutgoingContext(f.ctx(), "token", "forged.1"), &pb.PutRequest{Key: []byte("a")})
	wantStatus(t, err, rpctypes.ErrGRPCInvalidAuthToken)
}

// A watcher receives no event of after its right was withdrawn.
func TestWithdrawnRightEndsAWatcher(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	root := f.as("root")
	stream, err := f.watch.Watch(f.as("alice"))
	wantOK(t, err)
	create := func(key string) {
		wantOK(t, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(key)}}}))
	}
	create("m")
	resp, err := stream.Recv()
	wantOK(t, err)
	wantEqual(t, "reason", resp.CancelReason, rpctypes.ErrGRPCPermissionDenied.Error())
	create("a")
	_, err = stream.Recv()
	wantOK(t, err)
	_, err = f.kv.Put(root, &pb.PutRequest{Key: []byte("a"), Value: []byte("1")})
	wantOK(t, err)
	resp, err = stream.Recv()
	wantOK(t, err)
	wantEqual(t, "events", len(resp.Events), 1)
	_, err = f.auth.RoleRevokePermission(root, &pb.AuthRoleRevokePermissionRequest{Role: "half", Key: []byte("a"), RangeEnd: []byte("c")})
	wantOK(t, err)
	_, err = f.kv.Put(root, &pb.PutRequest{Key: []byte("a"), Value: []byte("2")})
	wantOK(t, err)
	resp, err = stream.Recv()
	wantOK(t, err)
	if len(resp.Events) > 0 || !resp.Canceled || resp.CancelReason != rpctypes.ErrGRPCPermissionDenied.Error() {
		t.Errorf("after the right was withdrawn: %v", resp)
	}
}

// A stream of renewals outlives its token. Lost rights end it with PermissionDenied, and never with a TTL of 0.
func TestRenewalsOutliveTheTokenButNotTheRight(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	root, alice := f.as("root"), f.as("alice")
	_, err := f.lease.LeaseGrant(alice, &pb.LeaseGrantRequest{ID: 7, TTL: 600})
	wantOK(t, err)
	_, err = f.kv.Put(alice, &pb.PutRequest{Key: []byte("a"), Lease: 7})
	wantOK(t, err)
	stream, err := f.lease.LeaseKeepAlive(alice)
	wantOK(t, err)
	renew := func() (*pb.LeaseKeepAliveResponse, error) {
		wantOK(t, stream.Send(&pb.LeaseKeepAliveRequest{ID: 7}))
		return stream.Recv()
	}
	resp, err := renew()
	wantOK(t, err)
	wantEqual(t, "TTL", resp.TTL, 600)
	_, err = f.auth.UserChangePassword(root, &pb.AuthUserChangePasswordRequest{Name: "alice", Password: "another"}) // ends her tokens
	wantOK(t, err)
	_, err = f.kv.Range(alice, &pb.RangeRequest{Key: []byte("a")})
	wantStatus(t, err, rpctypes.ErrGRPCInvalidAuthToken)
	resp, err = renew()
	wantOK(t, err)
	wantEqual(t, "TTL", resp.TTL, 600)
	_, err = f.auth.UserRevokeRole(root, &pb.AuthUserRevokeRoleRequest{Name: "alice", Role: "half"})
	wantOK(t, err)
	_, err = renew()
	wantStatus(t, err, rpctypes.ErrGRPCPermissionDenied)
	nobody, err := f.lease.LeaseKeepAlive(f.ctx())
	wantOK(t, err)
	wantOK(t, nobody.Send(&pb.LeaseKeepAliveRequest{ID: 7}))
	_, err = nobody.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCUserEmpty)
}

// What is not data needs the role root, or at least a user.
func TestOperationsNeedTheRoleRoot(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	alice := f.as("alice")
	for what, call := range map[string]func(context.Context) error{
		"compact": func(ctx context.Context) error {
			_, err := f.kv.Compact(ctx, &pb.CompactionRequest{Revision: 1})
			return err
		},
		"add": func(ctx context.Context) error {
			_, err := f.cluster.MemberAdd(ctx, &pb.MemberAddRequest{})
			return err
		},
		"hash": func(ctx context.Context) error { _, err := f.maintenance.Hash(ctx, &pb.HashRequest{}); return err },
		"user add": func(ctx context.Context) error {
			_, err := f.auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "x"})
			return err
		},
		"disable": func(ctx context.Context) error {
			_, err := f.auth.AuthDisable(ctx, &pb.AuthDisableRequest{})
			return err
		},
		"snapshot": func(ctx context.Context) error {
			stream, err := f.maintenance.Snapshot(ctx, &pb.SnapshotRequest{})
			wantOK(t, err)
			_, err = stream.Recv()
			return err
		},
	} {
		if err := call(f.ctx()); err == nil || !strings.Contains(err.Error(), "user name is empty") {
			t.Errorf("%s as nobody: %v", what, err)
		}
		if err := call(alice); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s as alice: %v", what, err)
		}
	}
	_, err := f.maintenance.Status(alice, &pb.StatusRequest{})
	wantOK(t, err)
	_, err = f.maintenance.Status(f.ctx(), &pb.StatusRequest{})
	wantStatus(t, err, rpctypes.ErrGRPCUserEmpty)
}

// Names follow rights of their own.
func TestNamesNeedRights(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	_, err := f.node.ChangeAccess(node.As(f.ctx(), access.Caller{User: "root", Revision: f.node.Access().Revision()}),
		access.GrantRight{Role: "half", Right: access.Right{Prefix: "jobs/", Rights: access.Hold}})
	wantOK(t, err)
	names := leasekeeperv1.NewLeasekeeperClient(dial(t, f.server.Addr()))
	acquire := func(ctx context.Context, name string, lease int64) error {
		stream, err := names.Acquire(ctx, &leasekeeperv1.AcquireRequest{Name: name, Lease: lease, TtlMs: 60_000, Holder: &leasekeeperv1.Holder{Id: "h"}})
		wantOK(t, err)
		_, err = stream.Recv()
		return err
	}
	replaceMark := func(ctx context.Context) error {
		_, err := names.ReplaceMark(ctx, &leasekeeperv1.ReplaceMarkRequest{Name: "jobs/a"})
		return err
	}
	alice, bare, root := f.as("alice"), f.as("bare"), f.as("root")
	wantOK(t, acquire(alice, "jobs/a", 5))
	wantCode(t, acquire(alice, "other", 6), codes.PermissionDenied)
	wantCode(t, acquire(bare, "jobs/b", 7), codes.PermissionDenied)
	wantCode(t, acquire(f.ctx(), "jobs/b", 8), codes.Unauthenticated)
	for user, want := range map[context.Context]codes.Code{alice: codes.OK, bare: codes.PermissionDenied, root: codes.OK, f.ctx(): codes.Unauthenticated} {
		_, err := names.Get(user, &leasekeeperv1.GetRequest{Name: "jobs/a"})
		wantCode(t, err, want)
	}
	for what, call := range map[string]func(context.Context) error{
		"get": func(ctx context.Context) error {
			_, err := names.Get(ctx, &leasekeeperv1.GetRequest{Name: "other"})
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := names.List(ctx, &leasekeeperv1.ListRequest{Prefix: "jobs/"})
			return err
		},
		"history": func(ctx context.Context) error {
			_, err := names.History(ctx, &leasekeeperv1.HistoryRequest{Name: "jobs/a"})
			return err
		},
		"mark": func(ctx context.Context) error {
			_, err := names.GetMark(ctx, &leasekeeperv1.GetMarkRequest{Name: "jobs/a"})
			return err
		},
		"pin": func(ctx context.Context) error {
			_, err := names.Pin(ctx, &leasekeeperv1.PinRequest{Name: "jobs/a"})
			return err
		},
		"replace mark": replaceMark,
		"unpin": func(ctx context.Context) error {
			_, err := names.Unpin(ctx, &leasekeeperv1.UnpinRequest{Name: "jobs/a"})
			return err
		},
		"watch": func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := names.Watch(ctx, &leasekeeperv1.WatchRequest{Prefix: "jobs/"})
			wantOK(t, err)
			_, err = stream.Recv()
			return err
		},
	} {
		if err := call(root); err != nil {
			t.Errorf("%s as root: %v", what, err)
		}
		wantCode(t, call(alice), codes.PermissionDenied) // she may hold, and neither watch nor administer
		wantCode(t, call(f.ctx()), codes.Unauthenticated)
	}
	announce := func(ctx context.Context) error {
		_, err := names.Announce(ctx, &leasekeeperv1.AnnounceRequest{Name: "jobs/a", Lease: 5, Text: "hello"})
		return err
	}
	wantCode(t, announce(bare), codes.PermissionDenied)
	wantOK(t, announce(alice))
	_, err = names.Release(bare, &leasekeeperv1.ReleaseRequest{Name: "jobs/a", Lease: 5})
	wantCode(t, err, codes.PermissionDenied)
	_, err = names.Release(alice, &leasekeeperv1.ReleaseRequest{Name: "jobs/a", Lease: 5})
	wantOK(t, err)

	_, err = names.GrantRight(root, &leasekeeperv1.GrantRightRequest{Role: "half", Prefix: "jobs/", Rights: []leasekeeperv1.NameRight{leasekeeperv1.NameRight_WATCH}})
	wantOK(t, err)
	alice = f.as("alice") // the change has ended her token
	_, err = names.GetMark(alice, &leasekeeperv1.GetMarkRequest{Name: "jobs/a"})
	wantOK(t, err)
	wantCode(t, replaceMark(alice), codes.PermissionDenied) // she may hold and watch
}

// JSON carries the token in the header Authorization.
func TestJSONActsWithTheTokenOfItsClient(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	post := func(path, token, body string) (int, map[string]any) {
		t.Helper()
		req, err := http.NewRequestWithContext(f.ctx(), "POST", "http://"+f.server.Addr()+path, strings.NewReader(body))
		wantOK(t, err)
		if token != "" {
			req.Header.Set("Authorization", token)
		}
		resp, err := http.DefaultClient.Do(req)
		wantOK(t, err)
		defer resp.Body.Close()
		answer := make(map[string]any)
		wantOK(t, json.NewDecoder(resp.Body).Decode(&answer))
		return resp.StatusCode, answer
	}
	code, answer := post("/v3/auth/authenticate", "", `{"name":"alice","password":"alice"}`)
	wantEqual(t, "authenticate", code, 200)
	token, _ := answer["token"].(string)
	code, _ = post("/v3/kv/put", token, `{"key":"YQ==","value":"YQ=="}`)
	wantEqual(t, "put a", code, 200)
	code, answer = post("/v3/kv/put", token, `{"key":"bQ==","value":"YQ=="}`)
	if code != 403 || answer["message"] != "etcdserver: permission denied" {
		t.Errorf("put m: %d, %v", code, answer)
	}
	code, answer = post("/v3/kv/put", "", `{"key":"YQ==","value":"YQ=="}`)
	if code == 200 || answer["message"] != "etcdserver: user name is empty" {
		t.Errorf("put without a token: %d, %v", code, answer)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Every method of every service has its place in the checks of rights.
func TestEveryMethodIsKnownToTheGuard(t *testing.T) {
	f := startFront(t)
	for service, info := range f.server.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			if method := "/" + service + "/" + m.Name; !guard.Knows(method) {
				t.Errorf("%s is not known: add it to the methods of package guard", method)
			}
		}
	}
}

// While a program that is no member could act as one, access cannot be enabled.
func TestAccessIsNotEnabledWithoutTokens(t *testing.T) {
	f := startFront(t) // its node passes no logins on
	for _, user := range []string{"root"} {
		_, err := f.auth.UserAdd(f.ctx(), &pb.AuthUserAddRequest{Name: user, Password: user})
		wantOK(t, err)
		_, err = f.auth.UserGrantRole(f.ctx(), &pb.AuthUserGrantRoleRequest{User: user, Role: user})
		wantOK(t, err)
	}
	_, err := f.auth.AuthEnable(f.ctx(), &pb.AuthEnableRequest{})
	wantCode(t, err, codes.FailedPrecondition)
	st, err := f.auth.AuthStatus(f.ctx(), &pb.AuthStatusRequest{})
	wantOK(t, err)
	wantEqual(t, "enabled", st.Enabled, false)
}

// A token counts at every member, and a follower names its user to the leader. Nobody else can name one.
func TestFollowersNameTheUserToTheLeader(t *testing.T) {
	tr := startTrio(t, waitLimit)
	leader, follower := tr.leader()
	follower.addUsers()
	resp, err := follower.auth.Authenticate(follower.ctx(), &pb.AuthenticateRequest{Name: "alice", Password: "alice"})
	wantOK(t, err)
	for _, m := range tr.members {
		as := metadata.AppendToOutgoingContext(m.ctx(), "token", resp.Token)
		_, err = m.kv.Put(as, &pb.PutRequest{Key: []byte("a"), Value: []byte("1")})
		wantOK(t, err)
		_, err = m.kv.Put(as, &pb.PutRequest{Key: []byte("m"), Value: []byte("1")})
		wantStatus(t, err, rpctypes.ErrGRPCPermissionDenied)
		_, err = m.kv.Range(as, &pb.RangeRequest{Key: []byte("a")})
		wantOK(t, err)
		_, err = m.kv.Compact(as, &pb.CompactionRequest{Revision: 1})
		wantStatus(t, err, rpctypes.ErrGRPCPermissionDenied)
		_, err = m.kv.Put(m.ctx(), &pb.PutRequest{Key: []byte("a"), Value: []byte("1")})
		wantStatus(t, err, rpctypes.ErrGRPCUserEmpty)
		_, err = m.kv.Put(metadata.AppendToOutgoingContext(m.ctx(), "token", "forged.1"), &pb.PutRequest{Key: []byte("a")})
		wantStatus(t, err, rpctypes.ErrGRPCInvalidAuthToken)
		// What only members may say has no effect.
		claims := admission.SayCaller(m.ctx(), admission.Known, access.Caller{User: "root", Revision: m.node.Access().Revision()})
		_, err = m.kv.Put(claims, &pb.PutRequest{Key: []byte("a"), Value: []byte("1")})
		wantStatus(t, err, rpctypes.ErrGRPCUserEmpty)
		claims = admission.SayCaller(m.ctx(), admission.Server, access.Caller{})
		_, err = m.kv.Range(claims, &pb.RangeRequest{Key: []byte("a")})
		wantStatus(t, err, rpctypes.ErrGRPCUserEmpty)
	}
	as := metadata.AppendToOutgoingContext(follower.ctx(), "token", resp.Token)
	_, err = follower.lease.LeaseGrant(as, &pb.LeaseGrantRequest{ID: 7, TTL: 600})
	wantOK(t, err)
	_, err = follower.kv.Put(as, &pb.PutRequest{Key: []byte("a"), Lease: 7})
	wantOK(t, err)
	for user, want := range map[string]error{"alice": nil, "bare": rpctypes.ErrGRPCPermissionDenied} {
		stream, err := follower.lease.LeaseKeepAlive(follower.as(user))
		wantOK(t, err)
		wantOK(t, stream.Send(&pb.LeaseKeepAliveRequest{ID: 7}))
		_, err = stream.Recv()
		wantStatus(t, err, want)
	}
	// The members go on asking each other about themselves.
	list, err := leasekeeperv1.NewMembersClient(dial(t, leader.server.Addr())).List(leader.as("alice"), &leasekeeperv1.ListMembersRequest{})
	wantOK(t, err)
	for _, m := range list.Members {
		wantEqual(t, "trouble", m.Trouble, "")
		// The leader counts renewals that came through the follower.
		wantEqual(t, "renewals of "+m.Name, m.Renewals != nil && (*m.Renewals > 0) == (m.Role == leasekeeperv1.Member_LEADER), true)
	}
}
