package conformance

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

const (
	textKeyNotProvided = "etcdserver: key is not provided"
	textKeyNotFound    = "etcdserver: key not found"
	textLeaseNotFound  = "etcdserver: requested lease not found"
)

func TestPutRevisionsAndVersions(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		wantEqual(t, "empty store", st.revision(), 1)
		wantEqual(t, "first write", st.put("a", "1").Header.Revision, 2)
		wantEqual(t, "second write", st.put("b", "1").Header.Revision, 3)
		wantEqual(t, "same value again", st.put("a", "1").Header.Revision, 4)
		wantEqual(t, "both", st.all(), lines("a=1 c2 m4 v2", "b=1 c3 m3 v1"))
		wantEqual(t, "reading", st.revision(), 4)

		wantEqual(t, "delete", st.delete("a").Header.Revision, 5)
		wantEqual(t, "put after delete", st.put("a", "2").Header.Revision, 6)
		wantEqual(t, "a key created anew", st.all(), lines("a=2 c6 m6 v1", "b=1 c3 m3 v1"))

		id := st.grant(60).ID
		wantEqual(t, "a grant is no write", st.revision(), 6)
		st.revoke(id)
		wantEqual(t, "nor is revoking a lease without keys", st.revision(), 6)
		_, err := s.stubs().Put(s.context(), &pb.PutRequest{Key: []byte("a"), Lease: 99})
		wantStatus(t, "put with an unknown lease", err, codes.NotFound, textLeaseNotFound)
		wantEqual(t, "nor is a refused put", st.revision(), 6)
	})
}

func TestPutPrevKV(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		if prev := st.put("a", "1", clientv3.WithPrevKV()).PrevKv; prev != nil {
			t.Errorf("previous value of a new key: %v", prev)
		}
		wantEqual(t, "previous", show(st.put("a", "2", clientv3.WithPrevKV()).PrevKv), "a=1 c2 m2 v1")
		wantEqual(t, "the one before", show(st.put("a", "3", clientv3.WithPrevKV()).PrevKv), "a=2 c2 m3 v2")
		if prev := st.put("a", "4").PrevKv; prev != nil {
			t.Errorf("previous value that nobody asked for: %v", prev)
		}
		st.delete("a")
		if prev := st.put("a", "5", clientv3.WithPrevKV()).PrevKv; prev != nil {
			t.Errorf("previous value of a deleted key: %v", prev)
		}
	})
}

func TestConcurrentPutsGetDistinctRevisions(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		const writers, each = 8, 25
		revisions := make(chan int64, writers*each)
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range each {
					resp, err := st.c.Put(s.context(), "a", "")
					if err != nil {
						t.Errorf("put: %v", err)
						return
					}
					revisions <- resp.Header.Revision
				}
			})
		}
		wg.Wait()
		close(revisions)
		seen := make(map[int64]bool)
		for r := range revisions {
			if seen[r] || r < 2 || r > 1+writers*each {
				t.Errorf("revision %d, which is taken or out of bounds", r)
			}
			seen[r] = true
		}
		wantEqual(t, "revisions", len(seen), writers*each)
		wantEqual(t, "the key", st.all(), fmt.Sprintf("a= c2 m%d v%d", 1+writers*each, writers*each))
	})
}

func TestPutBinaryKeysAndValues(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		key, value := "\x00\xff\n\xc3\x28", string([]byte{0, 1, 2, 0xfe, 0xff})
		st.put(key, value)
		resp := st.get(key)
		if len(resp.Kvs) != 1 || string(resp.Kvs[0].Key) != key || string(resp.Kvs[0].Value) != value {
			t.Errorf("got %v", resp.Kvs)
		}
		st.put("empty", "")
		wantEqual(t, "empty value", show(st.get("empty").Kvs...), "empty= c3 m3 v1")
	})
}

func TestPutLease(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		one, two := st.grant(60).ID, st.grant(60).ID
		attached := func(id clientv3.LeaseID) string {
			resp, err := st.c.TimeToLive(s.context(), id, clientv3.WithAttachedKeys())
			wantOK(t, "time to live", err)
			return string(bytes.Join(resp.Keys, []byte(" ")))
		}
		st.put("a", "1", clientv3.WithLease(one))
		wantEqual(t, "attached", st.all(), fmt.Sprintf("a=1 c2 m2 v1 lease %x", int64(one)))
		wantEqual(t, "keys of the first", attached(one), "a")

		st.put("a", "2", clientv3.WithLease(two))
		wantEqual(t, "moved", st.all(), fmt.Sprintf("a=2 c2 m3 v2 lease %x", int64(two)))
		wantEqual(t, "keys of the first", attached(one), "")
		wantEqual(t, "keys of the second", attached(two), "a")

		st.put("a", "3", clientv3.WithIgnoreLease())
		wantEqual(t, "kept", st.all(), fmt.Sprintf("a=3 c2 m4 v3 lease %x", int64(two)))

		st.put("a", "4")
		wantEqual(t, "detached", st.all(), "a=4 c2 m5 v4")
		wantEqual(t, "keys of the second", attached(two), "")

		st.put("b", "", clientv3.WithLease(two))
		st.delete("b")
		wantEqual(t, "a deleted key is not attached", attached(two), "")
		st.revoke(two)
		wantEqual(t, "revoking touches what is attached only", st.all(), "a=4 c2 m5 v4")
		wantEqual(t, "revision", st.revision(), 7)
	})
}

func TestPutIgnoreValueAndLease(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		id := int64(st.grant(60).ID)
		st.put("a", "1") // 2
		_, err := kv.Put(s.context(), &pb.PutRequest{Key: []byte("a"), IgnoreValue: true, Lease: id})
		wantOK(t, "ignore_value", err)
		wantEqual(t, "value kept, lease set", st.all(), fmt.Sprintf("a=1 c2 m3 v2 lease %x", id))
		resp, err := kv.Put(s.context(), &pb.PutRequest{Key: []byte("a"), IgnoreValue: true, IgnoreLease: true})
		wantOK(t, "ignoring both", err)
		if resp.PrevKv != nil {
			t.Errorf("previous value that nobody asked for: %v", resp.PrevKv)
		}
		wantEqual(t, "both kept", st.all(), fmt.Sprintf("a=1 c2 m4 v3 lease %x", id))
		_, err = kv.Put(s.context(), &pb.PutRequest{Key: []byte("a"), Value: []byte("2"), IgnoreLease: true})
		wantOK(t, "ignore_lease", err)
		wantEqual(t, "lease kept, value set", st.all(), fmt.Sprintf("a=2 c2 m5 v4 lease %x", id))

		for _, c := range []struct {
			what string
			req  *pb.PutRequest
			code codes.Code
			text string
		}{
			{"ignore_value on an absent key", &pb.PutRequest{Key: []byte("x"), IgnoreValue: true}, codes.InvalidArgument, textKeyNotFound},
			{"ignore_lease on an absent key", &pb.PutRequest{Key: []byte("x"), IgnoreLease: true}, codes.InvalidArgument, textKeyNotFound},
			{"ignore_value with a value", &pb.PutRequest{Key: []byte("a"), Value: []byte("v"), IgnoreValue: true}, codes.InvalidArgument, "etcdserver: value is provided"},
			{"ignore_lease with a lease", &pb.PutRequest{Key: []byte("a"), Lease: id, IgnoreLease: true}, codes.InvalidArgument, "etcdserver: lease is provided"},
			{"value is checked before lease", &pb.PutRequest{Key: []byte("a"), Value: []byte("v"), Lease: id, IgnoreValue: true, IgnoreLease: true}, codes.InvalidArgument, "etcdserver: value is provided"},
			{"unknown lease", &pb.PutRequest{Key: []byte("a"), Lease: id + 1}, codes.NotFound, textLeaseNotFound},
			{"lease is checked before the key's presence", &pb.PutRequest{Key: []byte("x"), Lease: id + 1, IgnoreValue: true}, codes.NotFound, textLeaseNotFound},
			{"no key", &pb.PutRequest{Value: []byte("v")}, codes.InvalidArgument, textKeyNotProvided},
			{"key is checked first", &pb.PutRequest{Value: []byte("v"), IgnoreValue: true, Lease: id + 1}, codes.InvalidArgument, textKeyNotProvided},
		} {
			_, err := kv.Put(s.context(), c.req)
			wantStatus(t, c.what, err, c.code, c.text)
		}
		wantEqual(t, "refused puts leave no trace", st.revision(), 5)
	})
}

func TestEmptyKey(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		kv := s.stubs()
		_, err := kv.Put(s.context(), &pb.PutRequest{})
		wantStatus(t, "put", err, codes.InvalidArgument, textKeyNotProvided)
		_, err = kv.Range(s.context(), &pb.RangeRequest{RangeEnd: []byte("\x00")})
		wantStatus(t, "range", err, codes.InvalidArgument, textKeyNotProvided)
		_, err = kv.Range(s.context(), &pb.RangeRequest{SortOrder: 9})
		wantStatus(t, "range with a second fault", err, codes.InvalidArgument, textKeyNotProvided)
		_, err = kv.DeleteRange(s.context(), &pb.DeleteRangeRequest{RangeEnd: []byte("\x00")})
		wantStatus(t, "delete", err, codes.InvalidArgument, textKeyNotProvided)
	})
}

func TestRequestTooLarge(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		put := func(size int) error {
			_, err := kv.Put(s.context(), &pb.PutRequest{Key: []byte("a"), Value: make([]byte, size)})
			return err
		}
		const limit = 3 << 19 // 1.5 MiB, for the whole request
		wantOK(t, "a little below the limit", put(limit-1024))
		wantEqual(t, "stored", len(st.get("a").Kvs[0].Value), limit-1024)
		for _, size := range []int{limit, limit + 1, limit + 256<<10} {
			wantStatus(t, "above the limit", put(size), codes.InvalidArgument, "etcdserver: request is too large")
		}
		wantEqual(t, "revision", st.revision(), 2)
		// Beyond another half MiB the transport refuses, in words of its own.
		if err := put(limit + 600<<10); codeOf(err) != codes.ResourceExhausted {
			t.Errorf("far above the limit: %v", err)
		}
		wantOK(t, "the connection lives on", put(1))
	})
}
