package conformance

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
)

var rewriteUsers = flag.Bool("rewrite-users", false, "write what etcd answers to users into testdata/users*.txt")

// usersPage makes the requests of a page of users, and writes down how the server answers.
type usersPage struct {
	s    *server
	conn *grpc.ClientConn
	auth pb.AuthClient
	out  strings.Builder

	tokens map[string]string // by user
	jwt    bool              // tokens are JSON Web Tokens
	stale  bool              // a change of users and roles has made them old

	certificate string // the common name of the certificate that is shown; "" for none
}

func newUsersPage(s *server) *usersPage {
	// A connection of clientv3 repeats requests that are refused for their token.
	conn, err := grpc.NewClient(strings.Split(s.addresses(), ",")[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	wantOK(s.t, "connecting", err)
	s.t.Cleanup(func() { conn.Close() })
	return &usersPage{s: s, conn: conn, auth: pb.NewAuthClient(conn), tokens: make(map[string]string)}
}

// as returns the context of a user's request; "" for nobody.
func (p *usersPage) as(user string) context.Context {
	ctx := p.s.context()
	if user == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "token", p.tokens[user])
}

// say writes an outcome down.
func (p *usersPage) say(user, request string, err error) {
	switch {
	case user == "" && p.certificate == "":
		user = "nobody"
	case user == "":
		user = p.certificate + "'s certificate"
	case p.certificate != "":
		user += "'s token"
	}
	if err == nil {
		fmt.Fprintf(&p.out, "%s: %s: ok\n", user, request)
		return
	}
	st := status.Convert(err)
	fmt.Fprintf(&p.out, "%s: %s: %v %s\n", user, request, st.Code(), st.Message())
}

// isRoot reports whether the server takes a request for one of root.
func (p *usersPage) isRoot(user string) bool {
	return user == "root" || user == "" && p.certificate == "root"
}

// login gives a user a token.
func (p *usersPage) login(user, password string) {
	resp, err := p.auth.Authenticate(p.s.context(), &pb.AuthenticateRequest{Name: user, Password: password})
	p.say(user, "log in with "+password, err)
	if err == nil {
		p.tokens[user] = resp.Token
	}
}

func (p *usersPage) title(text string) { fmt.Fprintf(&p.out, "\n# %s\n", text) }

// permission is a permission on a range.
func permission(kind authpb.Permission_Type, key, end string) *authpb.Permission {
	return &authpb.Permission{PermType: kind, Key: []byte(key), RangeEnd: []byte(end)}
}

// manage changes users and roles.
func (p *usersPage) manage(user string, all ...any) {
	for _, r := range all {
		var err error
		ctx := p.as(user)
		switch r := r.(type) {
		case *pb.AuthEnableRequest:
			_, err = p.auth.AuthEnable(ctx, r)
		case *pb.AuthDisableRequest:
			_, err = p.auth.AuthDisable(ctx, r)
		case *pb.AuthUserAddRequest:
			_, err = p.auth.UserAdd(ctx, r)
		case *pb.AuthUserDeleteRequest:
			_, err = p.auth.UserDelete(ctx, r)
		case *pb.AuthUserChangePasswordRequest:
			_, err = p.auth.UserChangePassword(ctx, r)
		case *pb.AuthUserGrantRoleRequest:
			_, err = p.auth.UserGrantRole(ctx, r)
		case *pb.AuthUserRevokeRoleRequest:
			_, err = p.auth.UserRevokeRole(ctx, r)
		case *pb.AuthRoleAddRequest:
			_, err = p.auth.RoleAdd(ctx, r)
		case *pb.AuthRoleDeleteRequest:
			_, err = p.auth.RoleDelete(ctx, r)
		case *pb.AuthRoleGrantPermissionRequest:
			_, err = p.auth.RoleGrantPermission(ctx, r)
		case *pb.AuthRoleRevokePermissionRequest:
			_, err = p.auth.RoleRevokePermission(ctx, r)
		default:
			p.s.t.Fatalf("no request: %T", r)
		}
		p.say(user, fmt.Sprintf("%T{%v}", r, r), err)
	}
}

// look reads users and roles.
func (p *usersPage) look(user string) {
	ctx := p.as(user)
	for _, name := range []string{"root", "alice", "nosuch"} {
		resp, err := p.auth.UserGet(ctx, &pb.AuthUserGetRequest{Name: name})
		p.say(user, fmt.Sprintf("get user %s %v", name, resp.GetRoles()), err)
	}
	for _, name := range []string{"root", "half", "nosuch"} {
		resp, err := p.auth.RoleGet(ctx, &pb.AuthRoleGetRequest{Role: name})
		p.say(user, fmt.Sprintf("get role %s %v", name, resp.GetPerm()), err)
	}
	users, err := p.auth.UserList(ctx, &pb.AuthUserListRequest{})
	p.say(user, fmt.Sprintf("list users %v", users.GetUsers()), err)
	roles, err := p.auth.RoleList(ctx, &pb.AuthRoleListRequest{})
	p.say(user, fmt.Sprintf("list roles %v", roles.GetRoles()), err)
	st, err := p.auth.AuthStatus(ctx, &pb.AuthStatusRequest{})
	p.say(user, fmt.Sprintf("status %v, revision %d", st.GetEnabled(), st.GetAuthRevision()), err)
}

// keys makes requests for keys.
func (p *usersPage) keys(user string) {
	ctx, kv := p.as(user), pb.NewKVClient(p.conn)
	for _, key := range []string{"a", "m", ""} {
		_, err := kv.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte("1"), PrevKv: key == "a"})
		p.say(user, "put "+key, err)
	}
	for _, r := range [][2]string{{"a", "c"}, {"a", "n"}, {"z", ""}, {"", ""}} {
		req := &pb.RangeRequest{Key: []byte(r[0]), RangeEnd: []byte(r[1])}
		_, err := kv.Range(ctx, req)
		p.say(user, fmt.Sprintf("range %q", r), err)
		req.Serializable = true
		_, err = kv.Range(ctx, req)
		p.say(user, fmt.Sprintf("serializable range %q", r), err)
		stream, err := kv.RangeStream(ctx, req)
		if err == nil {
			_, err = stream.Recv()
		}
		p.say(user, fmt.Sprintf("range stream %q", r), err)
		_, err = kv.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte(r[0]), RangeEnd: []byte(r[1])}}})
		p.say(user, fmt.Sprintf("compare %q", r), err)
		_, err = kv.Txn(ctx, &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: req}}},
		}}}}})
		p.say(user, fmt.Sprintf("range in the branch of a branch %q", r), err)
		_, err = kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("k" + r[0]), RangeEnd: []byte(r[1])})
		p.say(user, fmt.Sprintf("delete k%q", r), err)
		_, err = kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(r[0]), RangeEnd: []byte(r[1]), PrevKv: true})
		p.say(user, fmt.Sprintf("delete with previous values %q", r), err)
	}
	_, err := kv.Txn(ctx, &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("m")}}}}})
	p.say(user, "put m in the branch that is not taken", err)
	_, err = kv.Txn(ctx, &pb.TxnRequest{})
	p.say(user, "empty transaction", err)
	_, err = kv.Compact(ctx, &pb.CompactionRequest{Revision: 1 << 40})
	p.say(user, "compact", err)
}

// leases makes requests for leases. Lease 7 is root's, with the keys a and m.
func (p *usersPage) leases(user string, own int64) {
	ctx, leases, kv := p.as(user), pb.NewLeaseClient(p.conn), pb.NewKVClient(p.conn)
	_, err := leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 600, ID: own})
	p.say(user, "grant", err)
	for _, id := range []int64{7, own, 12345} {
		name := fmt.Sprintf("lease %d", id)
		if id == own {
			name = "own lease"
		}
		_, err = kv.Put(ctx, &pb.PutRequest{Key: []byte("b"), Lease: id})
		p.say(user, "attach b to "+name, err)
		resp, err := leases.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id})
		p.say(user, fmt.Sprintf("time to live of %s, granted %d", name, resp.GetGrantedTTL()), err)
		resp, err = leases.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
		p.say(user, fmt.Sprintf("time to live and %d keys of %s", len(resp.GetKeys()), name), err)
		if p.stale && id == 7 {
			continue // docs/compatibility.md says what differs
		}
		stream, err := leases.LeaseKeepAlive(ctx)
		if err == nil {
			err = stream.Send(&pb.LeaseKeepAliveRequest{ID: id})
		}
		ttl := int64(0)
		if err == nil {
			var renewed *pb.LeaseKeepAliveResponse
			renewed, err = stream.Recv()
			ttl = renewed.GetTTL()
		}
		p.say(user, fmt.Sprintf("renew %s: %d", name, ttl), err)
	}
	all, err := leases.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
	p.say(user, fmt.Sprintf("list %v leases", len(all.GetLeases()) > 0), err)
	for _, id := range []int64{own, 7, 12345} {
		if p.isRoot(user) && id == 7 {
			continue
		}
		_, err = leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
		p.say(user, map[bool]string{true: "revoke its own lease", false: fmt.Sprintf("revoke lease %d", id)}[id == own], err)
	}
}

// cluster makes requests about the cluster.
func (p *usersPage) cluster(user string) {
	ctx, m, c := p.as(user), pb.NewMaintenanceClient(p.conn), pb.NewClusterClient(p.conn)
	_, err := m.Status(ctx, &pb.StatusRequest{})
	p.say(user, "status", err)
	_, err = m.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	p.say(user, "list alarms", err)
	_, err = m.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE})
	p.say(user, "remove alarms", err)
	_, err = m.Hash(ctx, &pb.HashRequest{})
	p.say(user, "hash", err)
	_, err = m.HashKV(ctx, &pb.HashKVRequest{})
	p.say(user, "hash of keys", err)
	_, err = m.Defragment(ctx, &pb.DefragmentRequest{})
	p.say(user, "defragment", err)
	_, err = m.Downgrade(ctx, &pb.DowngradeRequest{Action: pb.DowngradeRequest_VALIDATE, Version: "x"})
	if !p.isRoot(user) { // etcd and we word the refusal differently
		p.say(user, "downgrade", err)
	}
	if !p.isRoot(user) { // the answer depends on who leads
		_, err = m.MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: 1})
		p.say(user, "move the leadership", err)
	}
	snapshot, err := m.Snapshot(ctx, &pb.SnapshotRequest{})
	if err == nil {
		_, err = snapshot.Recv()
	}
	p.say(user, "snapshot", err)
	_, err = c.MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
	p.say(user, "list members", err)
	added := &pb.MemberAddRequest{IsLearner: true}
	if !p.isRoot(user) { // root adds none, so that the cluster stays as it is
		added.PeerURLs = []string{"http://127.0.0.1:1"}
	}
	_, err = c.MemberAdd(ctx, added)
	p.say(user, fmt.Sprintf("add a member with %d URLs", len(added.PeerURLs)), err)
	_, err = c.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: 1})
	p.say(user, "promote a member", err)
	_, err = c.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: 1})
	p.say(user, "remove a member", err)
	_, err = c.MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: 1, PeerURLs: []string{"http://127.0.0.1:1"}})
	p.say(user, "update a member", err)
}

// watches opens a watcher for each of some ranges.
func (p *usersPage) watches(user string) {
	for _, r := range [][2]string{{"a", ""}, {"a", "c"}, {"a", "n"}, {"", ""}, {"", "\x00"}} {
		stream, err := pb.NewWatchClient(p.conn).Watch(p.as(user))
		if err == nil {
			err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
				Key: []byte(r[0]), RangeEnd: []byte(r[1]),
			}}})
		}
		var resp *pb.WatchResponse
		if err == nil {
			resp, err = stream.Recv()
		}
		p.say(user, fmt.Sprintf("watch %q: created %v, cancelled %v, id %d, %q", r, resp.GetCreated(), resp.GetCanceled(), resp.GetWatchId(), resp.GetCancelReason()), err)
	}
}

// locks takes and gives back a lock.
func (p *usersPage) locks(user string) {
	for _, name := range []string{"b", "m"} {
		lock := v3lockpb.NewLockClient(p.conn)
		resp, err := lock.Lock(p.as(user), &v3lockpb.LockRequest{Name: []byte(name)})
		p.say(user, "lock "+name, err)
		if err == nil {
			_, err = lock.Unlock(p.as(user), &v3lockpb.UnlockRequest{Key: resp.Key})
			p.say(user, "unlock "+name, err)
		}
	}
}

// elections makes each request of the service for elections. A user that may not campaign makes the others for a leader that
// does not exist.
func (p *usersPage) elections(user string) {
	election := v3electionpb.NewElectionClient(p.conn)
	for _, name := range []string{"b", "m"} {
		won, err := election.Campaign(p.as(user), &v3electionpb.CampaignRequest{Name: []byte(name), Value: []byte("1")})
		p.say(user, "campaign for "+name, err)
		leader := &v3electionpb.LeaderKey{Name: []byte(name), Key: []byte(name + "/1"), Rev: 1, Lease: 1}
		if err == nil {
			leader = won.Leader
		}
		_, err = election.Proclaim(p.as(user), &v3electionpb.ProclaimRequest{Leader: leader, Value: []byte("2")})
		p.say(user, "proclaim in "+name, err)
		found, err := election.Leader(p.as(user), &v3electionpb.LeaderRequest{Name: []byte(name)})
		p.say(user, fmt.Sprintf("leader of %s %q", name, found.GetKv().GetValue()), err)
		p.observe(user, name)
		_, err = election.Resign(p.as(user), &v3electionpb.ResignRequest{Leader: leader})
		p.say(user, "resign in "+name, err)
	}
}

// observe reads the first answer about an election that may have a leader. Without one, only a refusal comes.
func (p *usersPage) observe(user, name string) {
	ctx, cancel := context.WithCancel(p.as(user))
	defer cancel()
	stream, err := v3electionpb.NewElectionClient(p.conn).Observe(ctx, &v3electionpb.LeaderRequest{Name: []byte(name)})
	var seen *v3electionpb.LeaderResponse
	if err == nil {
		seen, err = stream.Recv()
	}
	if err != nil {
		err = errors.New("refused") // docs/compatibility.md says what differs
	}
	p.say(user, fmt.Sprintf("observe %s %q", name, seen.GetKv().GetValue()), err)
}

func (p *usersPage) prepare() {
	p.title("before access is enabled")
	p.look("")
	p.login("root", "r")
	p.manage("", &pb.AuthEnableRequest{}, &pb.AuthUserAddRequest{}, &pb.AuthUserAddRequest{Name: "root", Password: "r"},
		&pb.AuthEnableRequest{}, &pb.AuthUserGrantRoleRequest{User: "root", Role: "nosuch"}, &pb.AuthUserGrantRoleRequest{User: "nosuch", Role: "root"},
		&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}, &pb.AuthRoleAddRequest{}, &pb.AuthRoleAddRequest{Name: "root"},
		&pb.AuthRoleAddRequest{Name: "half"}, &pb.AuthRoleAddRequest{Name: "half"},
		&pb.AuthRoleGrantPermissionRequest{Name: "half"},
		&pb.AuthRoleGrantPermissionRequest{Name: "nosuch", Perm: permission(authpb.READWRITE, "a", "c")},
		&pb.AuthRoleGrantPermissionRequest{Name: "half", Perm: permission(authpb.READWRITE, "c", "a")},
		&pb.AuthRoleGrantPermissionRequest{Name: "half", Perm: permission(authpb.READWRITE, "a", "c")},
		&pb.AuthRoleGrantPermissionRequest{Name: "half", Perm: permission(authpb.READWRITE, "ka", "kc")},
		&pb.AuthRoleGrantPermissionRequest{Name: "half", Perm: permission(authpb.READ, "z", "")},
		&pb.AuthRoleRevokePermissionRequest{Role: "half", Key: []byte("y")},
		&pb.AuthUserAddRequest{Name: "alice", Password: "a"}, &pb.AuthUserAddRequest{Name: "alice", Password: "a"},
		&pb.AuthUserAddRequest{Name: "bare", Password: "b"}, &pb.AuthUserGrantRoleRequest{User: "alice", Role: "half"},
		&pb.AuthUserAddRequest{Name: "cert", Options: &authpb.UserAddOptions{NoPassword: true}},
		&pb.AuthUserChangePasswordRequest{Name: "nosuch", Password: "x"}, &pb.AuthUserRevokeRoleRequest{Name: "bare", Role: "half"},
		&pb.AuthUserDeleteRequest{Name: "nosuch"}, &pb.AuthRoleDeleteRequest{Role: "nosuch"},
		&pb.AuthEnableRequest{}, &pb.AuthEnableRequest{})
}

// run makes all requests of the page.
func (p *usersPage) run() string {
	p.prepare()
	p.title("logins")
	p.login("root", "r")
	p.login("alice", "a")
	p.login("bare", "b")
	p.login("alice", "wrong")
	p.login("nosuch", "x")
	p.login("cert", "x")
	p.tokens["forged"] = "no.token"
	users := []string{"", "forged", "bare", "alice", "root"}
	p.title("users and roles")
	for _, user := range users {
		p.look(user)
	}
	for _, user := range []string{"", "alice"} {
		p.manage(user, &pb.AuthEnableRequest{}, &pb.AuthDisableRequest{}, &pb.AuthUserAddRequest{Name: "x", Password: "x"}, &pb.AuthUserDeleteRequest{Name: "alice"},
			&pb.AuthUserChangePasswordRequest{Name: "alice", Password: "x"}, &pb.AuthUserGrantRoleRequest{User: "alice", Role: "root"},
			&pb.AuthUserRevokeRoleRequest{Name: "alice", Role: "half"}, &pb.AuthRoleAddRequest{Name: "x"}, &pb.AuthRoleDeleteRequest{Role: "half"},
			&pb.AuthRoleGrantPermissionRequest{Name: "half", Perm: permission(authpb.READ, "x", "")}, &pb.AuthRoleRevokePermissionRequest{Role: "half", Key: []byte("z")})
	}
	p.manage("root", &pb.AuthUserDeleteRequest{Name: "root"}, &pb.AuthUserRevokeRoleRequest{Name: "root", Role: "root"}, &pb.AuthRoleDeleteRequest{Role: "root"})
	for _, user := range users {
		p.title("keys")
		p.keys(user)
		p.title("watchers")
		p.watches(user)
		p.title("locks")
		p.locks(user)
		p.title("elections")
		p.elections(user)
		p.title("the cluster")
		p.cluster(user)
	}
	p.title("leases")
	p.rootLease("root")
	for i, user := range users {
		p.leases(user, int64(100+i))
	}
	p.title("rights that change")
	p.manage("root", &pb.AuthRoleRevokePermissionRequest{Role: "half", Key: []byte("a"), RangeEnd: []byte("c")})
	p.watches("alice")
	p.stale = p.jwt
	for i, user := range []string{"alice", "root"} {
		p.keys(user)
		p.leases(user, int64(110+i))
	}
	p.manage("root", &pb.AuthUserChangePasswordRequest{Name: "alice", Password: "new"})
	p.watches("alice")
	p.login("alice", "a")
	p.login("alice", "new")
	p.look("alice")
	p.manage("root", &pb.AuthRoleDeleteRequest{Role: "half"}, &pb.AuthUserDeleteRequest{Name: "alice"})
	p.look("alice")
	p.title("afterwards")
	p.manage("root", &pb.AuthDisableRequest{})
	p.look("")
	p.manage("", &pb.AuthDisableRequest{})
	p.look("")
	return p.out.String()
}

// rootLease makes a lease with keys of which alice may write one.
func (p *usersPage) rootLease(user string) {
	ctx := p.as(user)
	_, err := pb.NewLeaseClient(p.conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 600, ID: 7})
	p.say(user, "grant lease 7", err)
	for _, key := range []string{"a", "m"} {
		_, err = pb.NewKVClient(p.conn).Put(ctx, &pb.PutRequest{Key: []byte(key), Lease: 7})
		p.say(user, "attach "+key, err)
	}
}

// compare compares the page of users of a server with etcd's, which a file of testdata has.
func (p *usersPage) compare(file, page string) {
	t, got := p.s.t, oneSpace(page)
	t.Helper()
	if *rewriteUsers && p.s.target == etcd {
		wantOK(t, "writing", os.WriteFile(file, []byte(got), 0o644))
	}
	text, err := os.ReadFile(file)
	wantOK(t, "reading", err)
	want, have := strings.Split(string(text), "\n"), strings.Split(got, "\n")
	differ := 0
	for i := range max(len(want), len(have)) {
		w, h := "", ""
		if i < len(want) {
			w = want[i]
		}
		if i < len(have) {
			h = have[i]
		}
		if w != h {
			if differ++; differ < 60 {
				t.Errorf("line %d:\nwant %s\ngot  %s", i+1, w, h)
			}
		}
	}
}

// TestUsersGetEtcdsAnswers makes the same requests as nobody, with a forged token, as users with and without rights and as
// root, and compares the answers with those of etcd, which testdata/users.txt has.
func TestUsersGetEtcdsAnswers(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		p := newUsersPage(s)
		p.compare("testdata/users.txt", p.run())
	})
}

// TestUsersWithJSONWebTokensGetEtcdsAnswers does the same with JSON Web Tokens. Each change of users and roles makes those old,
// so the answers differ from those to simple tokens.
func TestUsersWithJSONWebTokensGetEtcdsAnswers(t *testing.T) {
	t.Parallel()
	public, private := rsaFiles(t)
	for _, name := range targets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startTargetWith(t, name, func(s *server) {
				s.flags = append(s.flags, "--auth-token", "jwt,sign-method=RS256,ttl=10m,pub-key="+public+",priv-key="+private)
			})
			p := newUsersPage(s)
			p.jwt = true
			p.compare("testdata/users_jwt.txt", p.run())
		})
	}
}

// rsaFiles makes a key and writes both halves of it into files.
func rsaFiles(t *testing.T) (public, private string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	wantOK(t, "making a key", err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	wantOK(t, "encoding a key", err)
	public, private = filepath.Join(t.TempDir(), "public"), filepath.Join(t.TempDir(), "private")
	for file, block := range map[string]*pem.Block{
		public:  {Type: "PUBLIC KEY", Bytes: der},
		private: {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
	} {
		wantOK(t, "writing a key", os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return public, private
}

// TestClientWithNameAndPassword uses clientv3 as users do. It fetches a token by itself, and another one when the first ends.
func TestClientWithNameAndPassword(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		plain := s.client()
		for _, err := range []error{
			errorOf(plain.UserAdd(s.context(), "root", "r")), errorOf(plain.UserGrantRole(s.context(), "root", "root")),
			errorOf(plain.RoleAdd(s.context(), "half")), errorOf(plain.RoleGrantPermission(s.context(), "half", "a", "c", clientv3.PermissionType(clientv3.PermReadWrite))),
			errorOf(plain.UserAdd(s.context(), "alice", "a")), errorOf(plain.UserGrantRole(s.context(), "alice", "half")),
			errorOf(plain.AuthEnable(s.context())),
		} {
			wantOK(t, "preparing", err)
		}
		open := func(user, password string) *clientv3.Client {
			c, err := clientv3.New(clientv3.Config{
				Endpoints: strings.Split(s.addresses(), ","), DialTimeout: waitLimit, Username: user, Password: password, Logger: zap.NewNop(),
			})
			wantOK(t, "a client of "+user, err)
			t.Cleanup(func() { c.Close() })
			return c
		}
		root, alice := open("root", "r"), open("alice", "a")
		_, err := alice.Put(s.context(), "a", "1")
		wantOK(t, "put", err)
		watch := alice.Watch(s.context(), "a", clientv3.WithRev(1))
		resp := <-watch
		wantEqual(t, "events", len(resp.Events), 1)
		_, err = alice.Put(s.context(), "m", "1")
		wantEqual(t, "put m", fmt.Sprint(err), "etcdserver: permission denied")
		_, err = plain.Put(s.context(), "a", "1")
		wantEqual(t, "nobody", fmt.Sprint(err), "etcdserver: user name is empty")
		lease, err := alice.Grant(s.context(), 60)
		wantOK(t, "grant", err)
		_, err = alice.Put(s.context(), "b", "1", clientv3.WithLease(lease.ID))
		wantOK(t, "attach", err)
		_, err = alice.KeepAliveOnce(s.context(), lease.ID)
		wantOK(t, "renew", err)
		// Another policy: the client goes on with the same or another token.
		_, err = root.RoleGrantPermission(s.context(), "half", "m", "", clientv3.PermissionType(clientv3.PermReadWrite))
		wantOK(t, "grant m", err)
		_, err = alice.Put(s.context(), "m", "1")
		wantOK(t, "put m", err)
		_, err = root.UserChangePassword(s.context(), "alice", "a2")
		wantOK(t, "another password", err)
		_, err = alice.Put(s.context(), "a", "1")
		if err == nil {
			t.Error("a client with the former password writes")
		}
		again := open("alice", "a2")
		_, err = again.Put(s.context(), "a", "2")
		wantOK(t, "put with the new password", err)
		if _, err := clientv3.New(clientv3.Config{
			Endpoints: strings.Split(s.addresses(), ","), DialTimeout: waitLimit, Username: "alice", Password: "wrong", Logger: zap.NewNop(),
		}); err == nil || !strings.Contains(err.Error(), "invalid user ID or password") {
			t.Errorf("a wrong password: %v", err)
		}
	})
}

// oneSpace removes the second space that the text form of messages has at random.
func oneSpace(text string) string { return strings.ReplaceAll(text, "  ", " ") }

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }
