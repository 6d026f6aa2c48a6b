package conformance

import (
	"fmt"
	"math"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

const textLeaseExists = "etcdserver: lease already exists"

func TestLeaseGrant(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		ls := s.stubs()
		resp, err := ls.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: 60})
		wantOK(t, "grant", err)
		wantEqual(t, "ttl", resp.TTL, 60)
		wantEqual(t, "error field", resp.Error, "")
		wantEqual(t, "a grant is no write", resp.Header.Revision, 1)
		if resp.ID <= 0 {
			t.Errorf("the server chose id %d, want a positive one", resp.ID)
		}
		if h := resp.Header; h.ClusterId == 0 || h.MemberId == 0 || h.RaftTerm == 0 {
			t.Errorf("header is not filled: %v", h)
		}
	})
}

func TestLeaseGrantChosenID(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, ls := s.store(), s.stubs()
		for _, id := range []int64{1, 0x1234, -1, -42, math.MaxInt64, math.MinInt64} {
			resp, err := ls.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: 60, ID: id})
			wantOK(t, fmt.Sprintf("grant %d", id), err)
			wantEqual(t, "id", resp.ID, id)
			key := fmt.Sprint("key", id)
			st.put(key, "", clientv3.WithLease(clientv3.LeaseID(id)))
			wantEqual(t, "lease of the key", st.get(key).Kvs[0].Lease, id)
			ttl, err := ls.LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
			wantOK(t, "time to live", err)
			wantEqual(t, "id", ttl.ID, id)
			wantEqual(t, "keys", fmt.Sprintf("%s", ttl.Keys), "["+key+"]")
			_, err = ls.LeaseRevoke(s.context(), &pb.LeaseRevokeRequest{ID: id})
			wantOK(t, fmt.Sprintf("revoke %d", id), err)
			wantEqual(t, "key after the end", st.get(key).Count, 0)
		}
	})
}

func TestLeaseGrantServerChosenIDsDiffer(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		seen := make(map[clientv3.LeaseID]bool)
		for range 100 {
			id := st.grant(60).ID
			if seen[id] || id <= 0 {
				t.Fatalf("id %d, after %d others", id, len(seen))
			}
			seen[id] = true
		}
	})
}

func TestLeaseGrantDuplicate(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, ls := s.store(), s.stubs()
		grant := func(ttl int64) error {
			_, err := ls.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: ttl, ID: 7})
			return err
		}
		wantOK(t, "grant", grant(60))
		st.put("a", "", clientv3.WithLease(7)) // 2
		wantStatus(t, "same ttl", grant(60), codes.FailedPrecondition, textLeaseExists)
		wantStatus(t, "other ttl", grant(600), codes.FailedPrecondition, textLeaseExists)
		wantStatus(t, "ttl is checked first", grant(9_000_000_001), codes.OutOfRange, "etcdserver: too large lease TTL")
		ttl, err := ls.LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: 7, Keys: true})
		wantOK(t, "time to live", err)
		wantEqual(t, "the first grant stands", ttl.GrantedTTL, 60)
		wantEqual(t, "and keeps its keys", fmt.Sprintf("%s", ttl.Keys), "[a]")

		st.revoke(7) // 3
		wantOK(t, "grant again after the end", grant(30))
		ttl, err = ls.LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: 7, Keys: true})
		wantOK(t, "time to live", err)
		wantEqual(t, "the new grant", ttl.GrantedTTL, 30)
		wantEqual(t, "inherits nothing", fmt.Sprintf("%s", ttl.Keys), "[]")
		wantEqual(t, "revision", st.revision(), 3)
	})
}

func TestLeaseGrantTTLs(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		ls := s.stubs()
		// Below a minimum, which is each server's own affair, TTLs are raised and
		// not refused; nothing is ever granted for less than was asked.
		for _, ttl := range []int64{0, -1, math.MinInt64, 1} {
			resp, err := ls.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: ttl})
			wantOK(t, fmt.Sprintf("grant for %d", ttl), err)
			if resp.TTL < 1 || resp.TTL > 5 {
				t.Errorf("granted %d s for %d", resp.TTL, ttl)
			}
		}
		for _, ttl := range []int64{5, 3600, 9_000_000_000} {
			resp, err := ls.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: ttl})
			wantOK(t, fmt.Sprintf("grant for %d", ttl), err)
			wantEqual(t, "granted", resp.TTL, ttl)
			left, err := ls.LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: resp.ID})
			wantOK(t, "time to live", err)
			wantEqual(t, "granted, asked later", left.GrantedTTL, ttl)
			if left.TTL > ttl || left.TTL < ttl-4 {
				t.Errorf("%d s remain of %d just granted", left.TTL, ttl)
			}
		}
		for _, ttl := range []int64{9_000_000_001, math.MaxInt64} {
			_, err := ls.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: ttl, ID: 7})
			wantStatus(t, fmt.Sprintf("grant for %d", ttl), err, codes.OutOfRange, "etcdserver: too large lease TTL")
		}
		_, err := ls.LeaseRevoke(s.context(), &pb.LeaseRevokeRequest{ID: 7})
		wantStatus(t, "a refused grant leaves no lease", err, codes.NotFound, textLeaseNotFound)
	})
}
