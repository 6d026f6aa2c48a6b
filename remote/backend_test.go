package remote_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/driver"
	"github.com/leasekeeper/leasekeeper/driver/drivertest"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/remote"
	"github.com/leasekeeper/leasekeeper/server"
)

// waitLimit bounds every wait for something that is due at once.
const waitLimit = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a server, and a client of its etcd API that goes by no package of ours.
type store struct {
	t     testing.TB
	addr  string
	kv    pb.KVClient
	lease pb.LeaseClient
}

// startStore starts a server in this process.
func startStore(t testing.TB) *store { return startOwn(t, server.Config{}) }

// startOwn starts a server in this process.
func startOwn(t testing.TB, cfg server.Config) *store {
	t.Helper()
	addr, stop, err := serve(t.TempDir(), cfg)
	ok(t, err)
	t.Cleanup(func() { ok(t, stop()) })
	return storeAt(t, addr)
}

// serve serves from a folder.
func serve(dir string, cfg server.Config) (addr string, stop func() error, err error) {
	return serveAt("127.0.0.1:0", dir, cfg)
}

func serveAt(listen, dir string, cfg server.Config) (addr string, stop func() error, err error) {
	node, err := replica.Start(context.Background(), replica.NodeConfig{Dir: dir})
	if err != nil {
		return "", nil, err
	}
	<-node.Ready()
	cfg.ListenClient, cfg.ListenHTTP = listen, server.HTTPOff
	s, err := server.New(cfg, node)
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		return "", nil, errors.Join(err, node.Stop(context.Background()))
	}
	return s.Addr(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		return errors.Join(s.Stop(ctx), node.Stop(ctx))
	}, nil
}

func storeAt(t testing.TB, addr string) *store {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &store{t: t, addr: addr, kv: pb.NewKVClient(conn), lease: pb.NewLeaseClient(conn)}
}

// limited outlives the test by as long as any wait may take.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// open returns a backend on some endpoints, without a namespace.
func open(t testing.TB, endpoints ...string) *remote.Backend {
	t.Helper()
	return openWith(t, remote.Config{Endpoints: endpoints})
}

func openWith(t testing.TB, cfg remote.Config) *remote.Backend {
	t.Helper()
	b, err := remote.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(limited(t)); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return b
}

// keys returns what is below a name, in the order of creation.
func (s *store) keys(prefix string) []*mvccpb.KeyValue {
	s.t.Helper()
	resp, err := s.kv.Range(limited(s.t), &pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: []byte(prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)),
		SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_ASCEND,
	})
	ok(s.t, err)
	return resp.Kvs
}

func (s *store) put(key, value string, lease int64) int64 {
	s.t.Helper()
	resp, err := s.kv.Put(limited(s.t), &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease})
	ok(s.t, err)
	return resp.Header.Revision
}

func (s *store) delete(key string) {
	s.t.Helper()
	_, err := s.kv.DeleteRange(limited(s.t), &pb.DeleteRangeRequest{Key: []byte(key)})
	ok(s.t, err)
}

func (s *store) grant(ttl int64) int64 {
	s.t.Helper()
	resp, err := s.lease.LeaseGrant(limited(s.t), &pb.LeaseGrantRequest{TTL: ttl})
	ok(s.t, err)
	return resp.ID
}

// alive says whether there is a lease.
func (s *store) alive(id int64) bool {
	s.t.Helper()
	resp, err := s.lease.LeaseTimeToLive(limited(s.t), &pb.LeaseTimeToLiveRequest{ID: id})
	ok(s.t, err)
	return resp.GrantedTTL > 0
}

// none fails if there are keys below a name.
func (s *store) none(name string) {
	s.t.Helper()
	for _, kv := range s.keys(name + "/") {
		s.t.Errorf("left behind: %s", kv.Key)
	}
}

// unique returns a name that nobody else uses.
func unique(last string) string {
	b := make([]byte, 6)
	rand.Read(b)
	return "test-" + hex.EncodeToString(b) + "/" + last
}

func is(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v, and not %v", err, kind)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", waitLimit, what)
		}
	}
}

// deleteOwner removes the key that owns a name.
func (s *store) deleteOwner(name string) {
	s.t.Helper()
	for _, kv := range s.keys(name + "/") {
		if strings.HasSuffix(string(kv.Key), fmt.Sprintf("/%x", kv.Lease)) {
			s.delete(string(kv.Key))
			return
		}
	}
	s.t.Errorf("nobody holds %s", name)
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// asking returns a claim by somebody.
func asking(name string, wait bool) driver.Claim {
	c := driver.Claim{Name: name, Wait: wait, TTL: 10 * time.Second, Holder: driver.Holder{ID: "h", Card: driver.Card{Host: "here", PID: 1}}}
	rand.Read(c.ID[:])
	return c
}

// hold claims a name that is free.
func hold(t testing.TB, b *remote.Backend, name string) (driver.Lease, driver.Grant) {
	t.Helper()
	l, g, err := b.Claim(limited(t), asking(name, false))
	ok(t, err)
	if !g.Held || g.Token == 0 {
		t.Fatalf("%s is free, and not held: %+v", name, g)
	}
	return l, g
}

// stand claims a name that is held.
func stand(t testing.TB, b *remote.Backend, name string) driver.Lease {
	t.Helper()
	l, g, err := b.Claim(limited(t), asking(name, true))
	ok(t, err)
	if g.Held {
		t.Fatalf("%s is held twice: %+v", name, g)
	}
	return l
}

// renew renews one lease.
func renew(t testing.TB, b *remote.Backend, l driver.Lease) driver.Renewal {
	t.Helper()
	var got driver.Renewal
	ok(t, b.Renew(limited(t), []driver.Lease{l}, func(_ int, r driver.Renewal) { got = r }))
	return got
}

func TestBehaviour(t *testing.T) {
	s := startStore(t)
	for _, namespace := range []string{"", "some/namespace"} {
		t.Run("namespace "+namespace, func(t *testing.T) { behaves(t, s, namespace) })
	}
}

func behaves(t *testing.T, s *store, namespace string) {
	drivertest.Run(t, drivertest.Config{New: func(testing.TB) drivertest.Store {
		return drivertest.Store{
			Open: func(t testing.TB) driver.Backend {
				b, err := driver.Open(t.Context(), "leasekeeper://"+s.addr+"/"+namespace)
				ok(t, err)
				return b
			},
			Delete: func(_ testing.TB, name string) {
				s.deleteOwner(strings.TrimPrefix(namespace+"/"+name, "/"))
			},
		}
	}})
}
