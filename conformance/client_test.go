package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// client opens an ordinary clientv3 client that is closed with the test.
func (s *server) client() *clientv3.Client {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(s.addresses(), ","),
		DialTimeout: waitLimit,
		Logger:      zap.NewNop(), // expected errors are not worth a line each
		// Requests larger than the server's limit have to reach it, and so do the
		// answers that hold much at one revision reach us.
		MaxCallSendMsgSize: 64 << 20,
		DialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.MaxCallSendMsgSize(64<<20), grpc.MaxCallRecvMsgSize(64<<20))},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// stubs are the bare services over a client's connection, for fields and errors
// that clientv3 hides.
type stubs struct {
	pb.KVClient
	pb.LeaseClient
	pb.ClusterClient
	pb.MaintenanceClient
	watch pb.WatchClient
	conn  *grpc.ClientConn
}

func (s *server) stubs() stubs {
	s.t.Helper()
	conn := s.client().ActiveConnection()
	return stubs{
		pb.NewKVClient(conn), pb.NewLeaseClient(conn), pb.NewClusterClient(conn),
		pb.NewMaintenanceClient(conn), pb.NewWatchClient(conn), conn,
	}
}

// store is the short way to write and read in a test: each request
// has to succeed.
type store struct {
	s *server
	c *clientv3.Client
}

func (s *server) store() store {
	s.t.Helper()
	return store{s, s.client()}
}

func (st store) put(key, value string, o ...clientv3.OpOption) *clientv3.PutResponse {
	st.s.t.Helper()
	resp, err := st.c.Put(st.s.context(), key, value, o...)
	if err != nil {
		st.s.t.Fatalf("put %q: %v", key, err)
	}
	return resp
}

func (st store) get(key string, o ...clientv3.OpOption) *clientv3.GetResponse {
	st.s.t.Helper()
	resp, err := st.c.Get(st.s.context(), key, o...)
	if err != nil {
		st.s.t.Fatalf("get %q: %v", key, err)
	}
	return resp
}

func (st store) delete(key string, o ...clientv3.OpOption) *clientv3.DeleteResponse {
	st.s.t.Helper()
	resp, err := st.c.Delete(st.s.context(), key, o...)
	if err != nil {
		st.s.t.Fatalf("delete %q: %v", key, err)
	}
	return resp
}

// grant grants a lease with an id of the server's choice.
func (st store) grant(ttl int64) *clientv3.LeaseGrantResponse {
	st.s.t.Helper()
	resp, err := st.c.Grant(st.s.context(), ttl)
	if err != nil {
		st.s.t.Fatalf("grant: %v", err)
	}
	return resp
}

func (st store) revoke(id clientv3.LeaseID) *clientv3.LeaseRevokeResponse {
	st.s.t.Helper()
	resp, err := st.c.Revoke(st.s.context(), id)
	if err != nil {
		st.s.t.Fatalf("revoke: %v", err)
	}
	return resp
}

// all is everything there is, in key order.
func (st store) all() string {
	st.s.t.Helper()
	return show(st.get("\x00", clientv3.WithFromKey()).Kvs...)
}

// revision is the store's current revision, from the header of a read.
func (st store) revision() int64 {
	st.s.t.Helper()
	return st.get("revision-probe").Header.Revision
}

// show writes key-value pairs with everything they carry, one line each:
// key=value, create revision, mod revision, version, and the lease if there is one.
func show(kvs ...*mvccpb.KeyValue) string {
	lines := make([]string, 0, len(kvs))
	for _, kv := range kvs {
		line := fmt.Sprintf("%s=%s c%d m%d v%d", kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version)
		if kv.Lease != 0 {
			line += fmt.Sprintf(" lease %x", uint64(kv.Lease))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// keys is show's short form: the keys alone.
func keys(kvs []*mvccpb.KeyValue) string {
	names := make([]string, 0, len(kvs))
	for _, kv := range kvs {
		names = append(names, string(kv.Key))
	}
	return strings.Join(names, " ")
}

// lines joins what show separates.
func lines(l ...string) string { return strings.Join(l, "\n") }

func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s\n got %v\nwant %v", what, got, want)
	}
}

// wantStatus checks the code and the exact text: clients distinguish errors by
// their text.
func wantStatus(t *testing.T, what string, err error, code codes.Code, text string) {
	t.Helper()
	st, ok := status.FromError(err)
	if err == nil || !ok || st.Code() != code || st.Message() != text {
		t.Errorf("%s\n got %v\nwant %v %q", what, err, code, text)
	}
}

func codeOf(err error) codes.Code { return status.Code(err) }

func wantOK(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
