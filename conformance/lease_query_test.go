package conformance

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

func TestLeaseTimeToLive(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, ls := s.store(), s.stubs()
		id := int64(st.grant(60).ID)
		for _, k := range []string{"b", "c", "a", "a/1"} {
			st.put(k, "", clientv3.WithLease(clientv3.LeaseID(id)))
		}
		resp, err := ls.LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: id})
		wantOK(t, "without keys", err)
		wantEqual(t, "id", resp.ID, id)
		wantEqual(t, "granted", resp.GrantedTTL, 60)
		wantEqual(t, "keys that nobody asked for", len(resp.Keys), 0)
		wantEqual(t, "header", resp.Header.Revision, 5)
		if resp.TTL < 40 || resp.TTL > 60 {
			t.Errorf("%d s remain of 60 just granted", resp.TTL)
		}
		resp, err = ls.LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
		wantOK(t, "with keys", err)
		// Sorted here because etcd lists them in no order at all.
		slices.SortFunc(resp.Keys, slices.Compare)
		wantEqual(t, "keys", fmt.Sprintf("%q", resp.Keys), `["a" "a/1" "b" "c"]`)
	})
}

func TestLeaseTimeToLiveOfUnknown(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, ls := s.store(), s.stubs()
		ended := int64(st.grant(60).ID)
		st.revoke(clientv3.LeaseID(ended))
		for _, id := range []int64{0, 1, -1, ended} {
			resp, err := ls.LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
			wantOK(t, "time to live", err)
			wantEqual(t, "id", resp.ID, id)
			wantEqual(t, "ttl", resp.TTL, -1)
			wantEqual(t, "granted", resp.GrantedTTL, 0)
			wantEqual(t, "keys", len(resp.Keys), 0)
			wantEqual(t, "header", resp.Header.Revision, 1)
		}
	})
}

func TestLeaseTimeToLiveCountsDown(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		sent := time.Now()
		lease := st.grant(30)
		last := lease.TTL
		eventually(t, waitLimit, "two seconds less", func() bool {
			resp, err := st.c.TimeToLive(s.context(), lease.ID)
			wantOK(t, "time to live", err)
			// Never more than before without a renewal, and never less than is left
			// when counted from the moment the request was sent.
			if least := lease.TTL - int64(time.Since(sent)/time.Second) - 1; resp.TTL > last || resp.TTL < least {
				t.Fatalf("%d s remain, want %d to %d", resp.TTL, least, last)
			}
			last = resp.TTL
			return last <= lease.TTL-2
		})
	})
}

func TestLeaseLeases(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, ls := s.store(), s.stubs()
		list := func() string {
			resp, err := ls.LeaseLeases(s.context(), &pb.LeaseLeasesRequest{})
			wantOK(t, "list", err)
			ids := []int64{}
			for _, l := range resp.Leases {
				ids = append(ids, l.ID)
			}
			wantEqual(t, "header", resp.Header.Revision, 1)
			return fmt.Sprint(ids)
		}
		wantEqual(t, "none", list(), "[]")
		for _, id := range []int64{30, 10, -5, 20} {
			_, err := ls.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: 600, ID: id})
			wantOK(t, "grant", err)
		}
		// Soonest end first; of equal TTLs that is the order of granting.
		wantEqual(t, "all", list(), "[30 10 -5 20]")
		st.revoke(10)
		wantEqual(t, "one ended", list(), "[30 -5 20]")
	})
}

func TestLeaseErrorsAsClientv3ReportsThem(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		c := s.client()
		_, err := c.Revoke(s.context(), 99)
		wantIs(t, "revoke", err, rpctypes.ErrLeaseNotFound)
		_, err = c.KeepAliveOnce(s.context(), 99)
		wantIs(t, "keep alive once", err, rpctypes.ErrLeaseNotFound)
		_, err = c.Put(s.context(), "a", "", clientv3.WithLease(99))
		wantIs(t, "put", err, rpctypes.ErrLeaseNotFound)
		_, err = c.Grant(s.context(), 9_000_000_001)
		wantIs(t, "grant", err, rpctypes.ErrLeaseTTLTooLarge)
		_, err = c.Get(s.context(), "a", clientv3.WithRev(9))
		wantIs(t, "get", err, rpctypes.ErrFutureRev)
		_, err = c.Get(s.context(), "")
		wantIs(t, "get without a key", err, rpctypes.ErrEmptyKey)
		resp, err := c.TimeToLive(s.context(), 99)
		wantOK(t, "time to live", err)
		wantEqual(t, "ttl", resp.TTL, -1)
		leases, err := c.Leases(s.context())
		wantOK(t, "leases", err)
		wantEqual(t, "leases", len(leases.Leases), 0)
	})
}

func wantIs(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s\n got %v\nwant %v", what, err, want)
	}
}

func TestLeaseRevoke(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, ls := s.store(), s.stubs()
		id := st.grant(60).ID
		for _, k := range []string{"c", "a", "b"} {
			st.put(k, "v-"+k, clientv3.WithLease(id)) // 2 to 4
		}
		st.put("bystander", "") // 5
		w := s.watch()
		watcher := w.watchKey("\x00", "\x00", 6)
		resp, err := ls.LeaseRevoke(s.context(), &pb.LeaseRevokeRequest{ID: int64(id)})
		wantOK(t, "revoke", err)
		wantEqual(t, "one revision for all keys", resp.Header.Revision, 6)
		wantEqual(t, "left", keys(st.get("\x00", clientv3.WithFromKey()).Kvs), "bystander")
		event := w.next()
		wantEqual(t, "watcher", event.WatchId, watcher)
		wantEqual(t, "one response, keys sorted", showEvents(event.Events), lines(
			"DELETE a= c0 m6 v0", "DELETE b= c0 m6 v0", "DELETE c= c0 m6 v0"))

		_, err = ls.LeaseRevoke(s.context(), &pb.LeaseRevokeRequest{ID: int64(id)})
		wantStatus(t, "revoke again", err, codes.NotFound, textLeaseNotFound)
		for _, id := range []int64{0, 1, -1} {
			_, err = ls.LeaseRevoke(s.context(), &pb.LeaseRevokeRequest{ID: id})
			wantStatus(t, fmt.Sprintf("revoke %d", id), err, codes.NotFound, textLeaseNotFound)
		}
		wantEqual(t, "revision", st.revision(), 6)
	})
}
