package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// dialFrom connects to a server from another address of this machine.
func dialFrom(t *testing.T, host, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
			return d.DialContext(ctx, "tcp", addr)
		}))
	wantOK(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// audited returns the records of the audit log from after on, one a line: who, from where, what, to what, why.
func audited(t *testing.T, ctx context.Context, conn *grpc.ClientConn, after uint64) string {
	t.Helper()
	resp, err := leasekeeperv1.NewLeasekeeperClient(conn).Audit(ctx, &leasekeeperv1.AuditRequest{After: after})
	wantOK(t, err)
	var lines []string
	for _, r := range resp.Records {
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s", r.User, r.Address, r.Act, r.Object, r.Reason))
		if r.Time == nil || r.Index == 0 {
			t.Errorf("a record without a time or an index: %v", r)
		}
	}
	return strings.Join(lines, "\n")
}

// The audit log says who carried out which act, and from where. Refused acts and ordinary requests are not in it.
func TestAuditLogNamesUserAddressAndReason(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	ctx, root, alice := f.ctx(), f.as("root"), f.as("alice")
	names := leasekeeperv1.NewLeasekeeperClient(f.conn)
	_, err := names.Audit(alice, &leasekeeperv1.AuditRequest{})
	wantCode(t, err, codes.PermissionDenied)
	_, err = names.Audit(ctx, &leasekeeperv1.AuditRequest{})
	wantCode(t, err, codes.Unauthenticated)
	if got, want := audited(t, root, f.conn, 4), strings.Join([]string{
		` 127.0.0.1 role.add half `, ` 127.0.0.1 role.grant-permission half, readwrite "a" to "c" `,
		` 127.0.0.1 user.grant-role alice, role half `, ` 127.0.0.1 access.enable  `,
	}, "\n"); got != want {
		t.Errorf("setting up users:\n%s\nnot\n%s", got, want)
	}

	forged := metadata.AppendToOutgoingContext(root, "leasekeeper-origin-bin", "6.6.6.6", "leasekeeper-common-name-bin", "forged")
	_, err = f.lease.LeaseGrant(alice, &pb.LeaseGrantRequest{ID: 7, TTL: 600})
	wantOK(t, err)
	_, err = f.kv.Put(alice, &pb.PutRequest{Key: []byte("a"), Lease: 7})
	wantOK(t, err)
	_, err = f.kv.Compact(alice, &pb.CompactionRequest{Revision: 1})
	wantStatus(t, err, rpctypes.ErrGRPCPermissionDenied)
	_, err = names.Pin(alice, &leasekeeperv1.PinRequest{Name: "jobs/a", Reason: "mine"})
	wantCode(t, err, codes.PermissionDenied)
	stream, err := names.Acquire(root, &leasekeeperv1.AcquireRequest{Name: "jobs/a", Lease: 9, TtlMs: 60_000, Holder: &leasekeeperv1.Holder{Id: "h"}})
	wantOK(t, err)
	_, err = stream.Recv()
	wantOK(t, err)
	_, err = names.Pin(forged, &leasekeeperv1.PinRequest{Name: "jobs/a", Reason: "migration"})
	wantOK(t, err)
	_, err = names.Unpin(root, &leasekeeperv1.UnpinRequest{Name: "jobs/a"})
	wantOK(t, err)
	_, err = f.lease.LeaseRevoke(root, &pb.LeaseRevokeRequest{ID: 7})
	wantOK(t, err)
	_, err = f.lease.LeaseGrant(alice, &pb.LeaseGrantRequest{ID: 8, TTL: 600})
	wantOK(t, err)
	_, err = f.lease.LeaseRevoke(alice, &pb.LeaseRevokeRequest{ID: 8})
	wantOK(t, err)
	_, err = f.kv.Compact(root, &pb.CompactionRequest{Revision: 1})
	wantOK(t, err)
	_, err = f.auth.UserChangePassword(root, &pb.AuthUserChangePasswordRequest{Name: "alice", Password: "hush"})
	wantOK(t, err)
	want := strings.Join([]string{
		"root 127.0.0.1 name.pin jobs/a migration", "root 127.0.0.1 name.unpin jobs/a ", "root 127.0.0.1 lease.revoke lease 7 ",
		"root 127.0.0.1 compact revision 1 ", "root 127.0.0.1 user.change-password alice ",
	}, "\n")
	if got := audited(t, root, f.conn, 8); got != want {
		t.Errorf("acts:\n%s\nnot\n%s", got, want)
	}
}

// The audit log says who replaced a mark. A mark that a holder raises, a mark that stays, and a transaction of the same form
// over keys are ordinary requests.
func TestReplacedMarksAreInTheAuditLog(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	root, alice := f.as("root"), f.as("alice")
	names := leasekeeperv1.NewLeasekeeperClient(f.conn)
	_, err := names.GrantRight(root, &leasekeeperv1.GrantRightRequest{Role: "half", Prefix: "jobs/",
		Rights: []leasekeeperv1.NameRight{leasekeeperv1.NameRight_HOLD, leasekeeperv1.NameRight_ADMINISTER}})
	wantOK(t, err)
	replace := func(name string, before, after *leasekeeperv1.Mark, want bool) {
		t.Helper()
		resp, err := names.ReplaceMark(alice, &leasekeeperv1.ReplaceMarkRequest{Name: name, Old: before, New: after})
		wantOK(t, err)
		wantEqual(t, "replaced", resp.Replaced, want)
	}
	five := &leasekeeperv1.Mark{Tick: "5"}
	replace("jobs/a", nil, five, true)
	replace("jobs/a", five, five, true)
	replace("jobs/a", nil, nil, false)
	_, err = names.ReplaceMark(alice, &leasekeeperv1.ReplaceMarkRequest{Name: "other", New: five})
	wantCode(t, err, codes.PermissionDenied)
	stream, err := names.Acquire(alice, &leasekeeperv1.AcquireRequest{Name: "jobs/a", Lease: 9, TtlMs: 60_000, Holder: &leasekeeperv1.Holder{Id: "h"}})
	wantOK(t, err)
	held, err := stream.Recv()
	wantOK(t, err)
	_, err = names.RaiseMark(alice, &leasekeeperv1.RaiseMarkRequest{Name: "jobs/a", Lease: 9, Tick: "6"})
	wantOK(t, err)
	_, err = names.Finish(alice, &leasekeeperv1.FinishRequest{Name: "jobs/a", Lease: 9, Tick: "7"})
	wantOK(t, err)
	replace("jobs/a", &leasekeeperv1.Mark{Tick: "7", Token: held.Token}, nil, true)
	key := []byte("/leasekeeper/marks/jobs/a")
	txn, err := f.kv.Txn(root, &pb.TxnRequest{
		Compare: []*pb.Compare{{Target: pb.Compare_MOD, Key: key, TargetUnion: &pb.Compare_ModRevision{}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: []byte("0 8")}}}},
	})
	wantOK(t, err)
	wantEqual(t, "the transaction succeeded", txn.Succeeded, true)
	want := strings.Join([]string{
		`root 127.0.0.1 role.grant-right half, hold+administer "jobs/" `, "alice 127.0.0.1 name.set-mark jobs/a, tick 5 ", "alice 127.0.0.1 name.unset-mark jobs/a ",
	}, "\n")
	if got := audited(t, root, f.conn, 8); got != want {
		t.Errorf("acts:\n%s\nnot\n%s", got, want)
	}
}

// A refused request is counted once, whatever its front, and leaves no record in the audit log.
func TestRefusedRequestsAreCountedAndNotRecorded(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	before := audited(t, f.as("root"), f.conn, 0)
	denied := func(what string, want int) {
		t.Helper()
		if text := f.metrics(); !strings.Contains(text, fmt.Sprintf("leasekeeper_refused_total{reason=\"denied\"} %d\n", want)) {
			t.Errorf("%s: not %d requests are counted as denied:\n%s", what, want, text)
		}
	}
	denied("before", 0)
	_, err := f.kv.Compact(f.as("alice"), &pb.CompactionRequest{Revision: 1})
	wantStatus(t, err, rpctypes.ErrGRPCPermissionDenied)
	denied("by the needs of the method", 1)
	_, err = f.kv.Put(f.as("alice"), &pb.PutRequest{Key: []byte("x")})
	wantStatus(t, err, rpctypes.ErrGRPCPermissionDenied)
	denied("when it is applied", 2)
	_, err = leasekeeperv1.NewLeasekeeperClient(f.conn).Pin(f.ctx(), &leasekeeperv1.PinRequest{Name: "jobs/a", Reason: "mine"})
	wantCode(t, err, codes.Unauthenticated)
	denied("without a user", 3)
	if after := audited(t, f.as("root"), f.conn, 0); after != before {
		t.Errorf("refused requests are in the audit log:\n%s", after)
	}
}

// The log says who was refused what, for requests and for streams.
func TestRefusalsAreLogged(t *testing.T) {
	for method, refused := range map[string]func(*front, context.Context) error{
		pb.KV_Compact_FullMethodName: func(f *front, ctx context.Context) error {
			_, err := f.kv.Compact(ctx, &pb.CompactionRequest{Revision: 1})
			return err
		},
		pb.Maintenance_Snapshot_FullMethodName: func(f *front, ctx context.Context) error {
			stream, err := pb.NewMaintenanceClient(f.conn).Snapshot(ctx, &pb.SnapshotRequest{})
			wantOK(t, err)
			_, err = stream.Recv()
			return err
		},
	} {
		var logged syncBuffer
		cfg := anyPort()
		cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		f := startConfiguredWithUsers(t, cfg)
		f.addUsers()
		wantStatus(t, refused(f, f.as("alice")), rpctypes.ErrGRPCPermissionDenied)
		want := `msg="a request was refused for want of a right or a user" method=` + method + " user=alice "
		if !strings.Contains(logged.String(), want) {
			t.Errorf("no line with %s:\n%s", want, logged.String())
		}
	}
}

// A follower tells the leader from where a request came, and every member shows the record. The gateway does the same.
func TestForwardedActsNameTheClientsAddress(t *testing.T) {
	tr := startTrio(t, waitLimit)
	_, follower := tr.leader()
	far := dialFrom(t, "127.0.0.2", follower.server.Addr())
	_, err := pb.NewAuthClient(far).UserAdd(follower.ctx(), &pb.AuthUserAddRequest{Name: "u", Password: "hush"})
	wantOK(t, err)
	_, err = leasekeeperv1.NewLeasekeeperClient(far).ReplaceMark(follower.ctx(), &leasekeeperv1.ReplaceMarkRequest{Name: "n", New: &leasekeeperv1.Mark{Tick: "5"}})
	wantOK(t, err)
	_, err = pb.NewClusterClient(far).MemberAdd(follower.ctx(), &pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:1"}, IsLearner: true})
	wantOK(t, err)
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.3")}}).DialContext}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Post("http://"+follower.server.Addr()+"/v3/auth/role/add", "application/json", strings.NewReader(`{"name":"r"}`))
	wantOK(t, err)
	wantOK(t, resp.Body.Close())
	wantEqual(t, "status", resp.StatusCode, 200)
	for _, m := range tr.members {
		got := audited(t, m.ctx(), dial(t, m.server.Addr()), 0)
		lines := strings.Split(got, "\n")
		if len(lines) != 4 || lines[0] != " 127.0.0.2 user.add u " || lines[1] != " 127.0.0.2 name.set-mark n, tick 5 " ||
			!strings.HasPrefix(lines[2], " 127.0.0.2 member.add ") || !strings.HasSuffix(lines[2], ", http://127.0.0.1:1, learner ") || lines[3] != " 127.0.0.3 role.add r " {
			t.Errorf("member %x has\n%s", m.id, got)
		}
	}
}

// A record has the common name of the certificate of the client's connection, whichever member the client called, over gRPC and
// as JSON. A token that names another user, and metadata of the client, do not change it.
func TestForwardedActsNameTheClientsCertificate(t *testing.T) {
	ca := authority.New(t, "ca")
	tr := startEachOfTrio(t, waitLimit, func(cfg *Config, _ *node.ClusterConfig, _ *peer.Config) { *cfg = secured(t, ca, ca) })
	leader, follower := tr.leader()
	dialAs := func(m *trioMember, name string) *grpc.ClientConn {
		t.Helper()
		return m.dialTLS(ca.Trust(ca.Pair(name)))
	}
	first := pb.NewAuthClient(dialAs(follower, "laptop"))
	_, err := first.UserAdd(follower.ctx(), &pb.AuthUserAddRequest{Name: "root", Password: "hush"})
	wantOK(t, err)
	_, err = first.UserGrantRole(follower.ctx(), &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	wantOK(t, err)
	_, err = first.AuthEnable(follower.ctx(), &pb.AuthEnableRequest{})
	wantOK(t, err)
	login, err := first.Authenticate(follower.ctx(), &pb.AuthenticateRequest{Name: "root", Password: "hush"})
	wantOK(t, err)
	want := []string{" laptop 127.0.0.1 user.add root", " laptop 127.0.0.1 user.grant-role root, role root", " laptop 127.0.0.1 access.enable "}

	for through, m := range map[string]*trioMember{"leader": leader, "follower": follower} {
		for proof, c := range map[string]struct{ certificate, token string }{"certificate": {"root", ""}, "token": {"laptop", login.Token}} {
			ctx, headers := m.ctx(), []string{"Grpc-Metadata-Leasekeeper-Common-Name-Bin: Zm9yZ2Vk"}
			if ctx = metadata.AppendToOutgoingContext(ctx, "leasekeeper-common-name-bin", "forged"); c.token != "" {
				ctx, headers = metadata.AppendToOutgoingContext(ctx, "token", c.token), append(headers, "Authorization: "+c.token)
			}
			role := through + " " + proof
			_, err := pb.NewAuthClient(dialAs(m, c.certificate)).RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: role + " grpc"})
			wantOK(t, err)
			m.overHTTP(false, ca.Trust(ca.Pair(c.certificate))).post("/v3/auth/role/add", fmt.Sprintf(`{"name": "%s json"}`, role), headers...)
			want = append(want, "root "+c.certificate+" 127.0.0.1 role.add "+role+" grpc", "root "+c.certificate+" 127.0.0.1 role.add "+role+" json")
		}
	}
	for _, m := range tr.members {
		resp, err := leasekeeperv1.NewLeasekeeperClient(dialAs(m, "root")).Audit(m.ctx(), &leasekeeperv1.AuditRequest{})
		wantOK(t, err)
		var got []string
		for _, r := range resp.Records {
			got = append(got, fmt.Sprintf("%s %s %s %s %s", r.User, r.Certificate, r.Address, r.Act, r.Object))
		}
		if !slices.Equal(got, want) {
			t.Errorf("member %x has\n%s\nnot\n%s", m.id, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
