package cluster

import (
	"context"
	"os"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// A key survives the death of the leader and the replacement of every member, on each kind of server.
func TestClusterOutlivesItsMembers(t *testing.T) {
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			c := Start(t, kind, 3)
			put(t, c.Leader())
			endpoints := c.Endpoints()

			killed := c.KillLeader()
			if leader := c.Leader(); leader == killed {
				t.Fatalf("the killed member %s still leads", killed.Name())
			}
			c.Restart(killed)
			ids := make(map[uint64]bool)
			for _, m := range c.Members() {
				ids[c.idOf(m)] = true
				c.ReplaceMember(m)
				if ids[c.idOf(m)] {
					t.Errorf("member %s has its former id", m.Name())
				}
			}
			for i, m := range c.Members() {
				if m.Endpoint() != endpoints[i] {
					t.Errorf("member %s moved from %s to %s", m.Name(), endpoints[i], m.Endpoint())
				}
				get(t, m)
			}
		})
	}
}

func put(t *testing.T, m *Member) {
	t.Helper()
	err := m.call(func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("k"), Value: []byte("v")})
		return err
	})
	if err != nil {
		t.Fatalf("put at %s: %v", m.Name(), err)
	}
}

func get(t *testing.T, m *Member) {
	t.Helper()
	err := m.call(func(ctx context.Context, conn *grpc.ClientConn) error {
		resp, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("k")})
		if err == nil && (len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "v") {
			t.Errorf("member %s has %v", m.Name(), resp.Kvs)
		}
		return err
	})
	if err != nil {
		t.Fatalf("get at %s: %v", m.Name(), err)
	}
}
