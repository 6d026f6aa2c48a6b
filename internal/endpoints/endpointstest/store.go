package endpointstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server"
)

// Store is a server with etcd's API, and a client of it that uses no package of ours.
type Store struct {
	T     testing.TB
	Addr  string
	KV    pb.KVClient
	Lease pb.LeaseClient
}

// Start starts a server in this process.
func Start(t testing.TB, cfg server.Config) *Store {
	t.Helper()
	addr, stop, err := Serve("127.0.0.1:0", t.TempDir(), cfg)
	OK(t, err)
	t.Cleanup(func() { OK(t, stop()) })
	return At(t, addr)
}

// Serve starts a server on a data directory.
func Serve(listen, dir string, cfg server.Config) (addr string, stop func() error, err error) {
	cfg.Logins = server.NewLogins(loginTTL)
	node, err := node.Start(context.Background(), node.Config{Dir: dir, LoggedIn: cfg.Logins.Learn})
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
		ctx, cancel := context.WithTimeout(context.Background(), WaitLimit)
		defer cancel()
		return errors.Join(s.Stop(ctx), node.Stop(ctx))
	}, nil
}

// At returns a client of a running server.
func At(t testing.TB, addr string) *Store {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	OK(t, err)
	t.Cleanup(func() { conn.Close() })
	return &Store{T: t, Addr: addr, KV: pb.NewKVClient(conn), Lease: pb.NewLeaseClient(conn)}
}

// Keys returns the keys with a prefix, in the order of their creation.
func (s *Store) Keys(prefix string) []*mvccpb.KeyValue {
	s.T.Helper()
	resp, err := s.KV.Range(Limited(s.T), &pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: []byte(prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)),
		SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_ASCEND,
	})
	OK(s.T, err)
	return resp.Kvs
}

// Put puts a key and returns its revision.
func (s *Store) Put(key, value string, lease int64) int64 {
	s.T.Helper()
	resp, err := s.KV.Put(Limited(s.T), &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease})
	OK(s.T, err)
	return resp.Header.Revision
}

// Delete deletes a key.
func (s *Store) Delete(key string) {
	s.T.Helper()
	_, err := s.KV.DeleteRange(Limited(s.T), &pb.DeleteRangeRequest{Key: []byte(key)})
	OK(s.T, err)
}

// Grant grants a lease with a TTL in seconds.
func (s *Store) Grant(ttl int64) int64 {
	s.T.Helper()
	resp, err := s.Lease.LeaseGrant(Limited(s.T), &pb.LeaseGrantRequest{TTL: ttl})
	OK(s.T, err)
	return resp.ID
}

// Alive reports whether a lease exists.
func (s *Store) Alive(id int64) bool {
	s.T.Helper()
	resp, err := s.Lease.LeaseTimeToLive(Limited(s.T), &pb.LeaseTimeToLiveRequest{ID: id})
	OK(s.T, err)
	return resp.GrantedTTL > 0
}

// Revoke ends a lease.
func (s *Store) Revoke(id int64) {
	s.T.Helper()
	_, err := s.Lease.LeaseRevoke(Limited(s.T), &pb.LeaseRevokeRequest{ID: id})
	OK(s.T, err)
}

// Compact compacts all revisions before the present one.
func (s *Store) Compact() {
	s.T.Helper()
	rev := s.Put("compact", "", 0)
	_, err := s.KV.Compact(Limited(s.T), &pb.CompactionRequest{Revision: rev})
	OK(s.T, err)
}

// None fails the test if there are keys below a name.
func (s *Store) None(name string) {
	s.T.Helper()
	for _, kv := range s.Keys(name + "/") {
		s.T.Errorf("left behind: %s", kv.Key)
	}
}

// DeleteOwner deletes the key that owns a name.
func (s *Store) DeleteOwner(name string) {
	s.T.Helper()
	for _, kv := range s.Keys(name + "/") {
		if strings.HasSuffix(string(kv.Key), fmt.Sprintf("/%x", kv.Lease)) {
			s.Delete(string(kv.Key))
			return
		}
	}
	s.T.Errorf("no lease holds %s", name)
}
