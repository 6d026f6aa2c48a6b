package server

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// waitLimit bounds every wait of a test for an event that should happen at once.
const waitLimit = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// front is a real node behind a real server, with a client.
type front struct {
	t      testing.TB
	node   *node.Node
	server *Server
	conn   *grpc.ClientConn

	kv          pb.KVClient
	lease       pb.LeaseClient
	watch       pb.WatchClient
	cluster     pb.ClusterClient
	maintenance pb.MaintenanceClient
	auth        pb.AuthClient
	health      healthpb.HealthClient
}

func startNode(t testing.TB) *node.Node {
	t.Helper()
	node, err := node.Start(t.Context(), node.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Stop(limited(t, context.Background())); err != nil {
			t.Errorf("stopping the node: %v", err)
		}
	})
	select {
	case <-node.Ready():
	case <-time.After(waitLimit):
		t.Fatal("the node is not ready")
	}
	return node
}

// anyPort returns a configuration that conflicts with no other server.
func anyPort() Config { return Config{ListenClient: "127.0.0.1:0", ListenHTTP: "127.0.0.1:0"} }

func startFront(t testing.TB) *front { return startWith(t, anyPort(), nil) }

// startWith lets a test change what the server sees of its node.
func startWith(t testing.TB, cfg Config, change func(*node.Node) member) *front {
	t.Helper()
	node := startNode(t)
	m := member(node)
	if change != nil {
		m = change(node)
	}
	f := startOn(t, cfg, m)
	f.node = node
	return f
}

// startOn starts a server for a member, which may be a node itself.
func startOn(t testing.TB, cfg Config, m member) *front {
	t.Helper()
	node, _ := m.(*node.Node)
	s, err := newServer(cfg, m)
	if err != nil {
		t.Fatal(err)
	}
	return startServer(t, s, node)
}

// startServer starts a server with a client.
func startServer(t testing.TB, s *Server, node *node.Node) *front {
	t.Helper()
	f := frontOf(t, s, node)
	t.Cleanup(func() {
		if err := s.Stop(limited(t, context.Background())); err != nil {
			t.Errorf("stopping the server: %v", err)
		}
	})
	return f
}

// frontOf starts a server with a client. The caller stops the server.
func frontOf(t testing.TB, s *Server, node *node.Node) *front {
	t.Helper()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, node: node, server: s, conn: dial(t, s.Addr())}
	f.kv, f.lease, f.watch = pb.NewKVClient(f.conn), pb.NewLeaseClient(f.conn), pb.NewWatchClient(f.conn)
	f.cluster, f.maintenance = pb.NewClusterClient(f.conn), pb.NewMaintenanceClient(f.conn)
	f.auth, f.health = pb.NewAuthClient(f.conn), healthpb.NewHealthClient(f.conn)
	return f
}

func dial(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// limited bounds ctx by the longest time that a test may wait.
func limited(t testing.TB, ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	t.Cleanup(cancel)
	return ctx
}

func (f *front) ctx() context.Context {
	f.t.Helper()
	return limited(f.t, f.t.Context())
}

// needLeader returns the context of a client that prefers an error to waiting for a leader.
func needLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
}

func (f *front) grant(ttl, id int64) *pb.LeaseGrantResponse {
	f.t.Helper()
	resp, err := f.lease.LeaseGrant(f.ctx(), &pb.LeaseGrantRequest{TTL: ttl, ID: id})
	wantOK(f.t, err)
	return resp
}

func (f *front) put(key, value string) *pb.PutResponse {
	f.t.Helper()
	resp, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
	wantOK(f.t, err)
	return resp
}

// header checks a header, which every answer except a list of members has.
func (f *front) header(h *pb.ResponseHeader, revision int64) {
	f.t.Helper()
	own := f.node.Header()
	if h.GetClusterId() != own.ClusterID || h.GetMemberId() != own.MemberID || h.GetRaftTerm() != own.Term {
		f.t.Errorf("header %v does not name the member %+v", h, own)
	}
	if h.GetRevision() != revision {
		f.t.Errorf("header's revision is %d, want %d", h.GetRevision(), revision)
	}
}

func wantOK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// wantStatus checks code and text, because clients depend on both.
func wantStatus(t testing.TB, err, want error) {
	t.Helper()
	got, wanted := status.Convert(err), status.Convert(want)
	if got.Code() != wanted.Code() || got.Message() != wanted.Message() {
		t.Errorf("got %v %q, want %v %q", got.Code(), got.Message(), wanted.Code(), wanted.Message())
	}
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("got %v, want code %v", err, want)
	}
}

func wantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", waitLimit, what)
		}
	}
}

// faulty is a real node some of whose methods are replaced, to produce faults that a healthy node does not have.
type faulty struct {
	*node.Node
	serving func() error
	put     func(context.Context) error
	ranged  func(context.Context) error
	renew   func(ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error
	claim   func(context.Context) error
	change  func(roster.Change) error
}

func (f *faulty) ChangeMembers(ctx context.Context, c roster.Change) ([]roster.Member, replica.Header, error) {
	if f.change != nil {
		return nil, f.Header(), f.change(c)
	}
	return f.Node.ChangeMembers(ctx, c)
}

func (f *faulty) Claim(ctx context.Context, claim ownership.Claim) (ownership.Claimed, error) {
	if f.claim != nil {
		return ownership.Claimed{}, f.claim(ctx)
	}
	return f.Node.Claim(ctx, claim)
}

func (f *faulty) Serving() error {
	if f.serving != nil {
		return f.serving()
	}
	return f.Node.Serving()
}

func (f *faulty) CheckReady() error {
	if f.serving != nil {
		return f.serving()
	}
	return f.Node.CheckReady()
}

func (f *faulty) Put(ctx context.Context, req keyspace.PutRequest) (replica.Header, keyspace.PutResult, error) {
	if f.put != nil {
		return replica.Header{}, keyspace.PutResult{}, f.put(ctx)
	}
	return f.Node.Put(ctx, req)
}

func (f *faulty) Range(ctx context.Context, req keyspace.RangeRequest, serializable bool) (replica.Header, keyspace.RangeResult, error) {
	if f.ranged != nil {
		return replica.Header{}, keyspace.RangeResult{}, f.ranged(ctx)
	}
	return f.Node.Range(ctx, req, serializable)
}

func (f *faulty) Confirm(ctx context.Context) error {
	if f.ranged != nil { // it is a read of nothing
		return f.ranged(ctx)
	}
	return f.Node.Confirm(ctx)
}

func (f *faulty) Renew(ctx context.Context, ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error {
	if f.renew != nil {
		return f.renew(ids, answer)
	}
	return f.Node.Renew(ctx, ids, answer)
}
