package conformance

import (
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// lateness is how long after its TTL a lease may still be there. It is generous:
// how late a server is belongs to the benchmarks.
const lateness = 5 * time.Second

// life is a holder's knowledge of a lease's time: it was acknowledged for ttl,
// and the request that was acknowledged left at sent.
type life struct {
	sent time.Time
	ttl  time.Duration
}

func (l *life) renewed(sent time.Time, seconds int64) {
	l.sent, l.ttl = sent, time.Duration(seconds)*time.Second
}

// checkEnd is called when the end of the lease has been seen.
func (l *life) checkEnd(t *testing.T) {
	t.Helper()
	if lived := time.Since(l.sent); lived < l.ttl {
		t.Errorf("ended after %v of an acknowledged %v", lived, l.ttl)
	}
}

// limit is how long to wait for the end.
func (l *life) limit() time.Duration { return l.ttl + lateness - time.Since(l.sent) }

func TestExpiryDeletesKeysAtOneRevision(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, ls := s.store(), s.stubs()
		w := s.watch()
		watcher := w.watchKey("\x00", "\x00", 6)
		sent := time.Now()
		lease := st.grant(2)
		var l life
		l.renewed(sent, lease.TTL)
		for _, k := range []string{"c", "a", "b"} {
			st.put(k, "v-"+k, clientv3.WithLease(lease.ID)) // 2 to 4
		}
		st.put("bystander", "") // 5

		resp := w.nextWithin(l.limit())
		l.checkEnd(t)
		wantEqual(t, "watcher", resp.WatchId, watcher)
		wantEqual(t, "one response, keys sorted", showEvents(resp.Events), lines(
			"DELETE a= c0 m6 v0", "DELETE b= c0 m6 v0", "DELETE c= c0 m6 v0"))
		wantEqual(t, "and nothing else", len(w.eventsUntil(6)), 0)
		wantEqual(t, "left", keys(st.get("\x00", clientv3.WithFromKey()).Kvs), "bystander")
		wantEqual(t, "revision", st.revision(), 6)

		ttl, err := ls.LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: int64(lease.ID)})
		wantOK(t, "time to live", err)
		wantEqual(t, "ttl", ttl.TTL, -1)
		_, err = ls.LeaseRevoke(s.context(), &pb.LeaseRevokeRequest{ID: int64(lease.ID)})
		wantStatus(t, "revoke", err, codes.NotFound, textLeaseNotFound)
		_, err = ls.Put(s.context(), &pb.PutRequest{Key: []byte("a"), Lease: int64(lease.ID)})
		wantStatus(t, "put", err, codes.NotFound, textLeaseNotFound)
		k := s.keepAlive()
		k.send(int64(lease.ID))
		k.receive(int64(lease.ID), 0)
	})
}

func TestExpiryOfALeaseWithoutKeys(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		sent := time.Now()
		lease := st.grant(1)
		var l life
		l.renewed(sent, lease.TTL)
		eventually(t, l.limit(), "the lease has ended", func() bool {
			resp, err := st.c.Leases(s.context())
			wantOK(t, "leases", err)
			return len(resp.Leases) == 0
		})
		l.checkEnd(t)
		wantEqual(t, "no write", st.revision(), 1)
	})
}

func TestExpiryOfClampedTTLs(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		w := s.watch()
		w.watchKey("\x00", "\x00", 0)
		for i, ttl := range []int64{0, -1} {
			sent := time.Now()
			lease := st.grant(ttl)
			var l life
			l.renewed(sent, lease.TTL)
			st.put("a", "", clientv3.WithLease(lease.ID))
			wantEqual(t, "put", showEvents(w.next().Events), fmt.Sprintf("PUT a= c%[1]d m%[1]d v1 lease %[2]x", 2+2*i, int64(lease.ID)))
			resp := w.nextWithin(l.limit())
			l.checkEnd(t)
			wantEqual(t, "end", showEvents(resp.Events), fmt.Sprintf("DELETE a= c0 m%d v0", 3+2*i))
		}
	})
}

func TestRenewalsPostponeTheEnd(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		sent := time.Now()
		granted := st.grant(4)
		id, first := int64(granted.ID), sent
		var l life
		l.renewed(sent, granted.TTL)
		st.put("a", "", clientv3.WithLease(granted.ID)) // 2
		w := s.watch()
		w.watchKey("a", "", 3)

		// Renewals well within the TTL, until it is over twice.
		k := s.keepAlive()
		for time.Since(first) < 2*l.ttl {
			time.Sleep(l.ttl / 4)
			sent := time.Now()
			k.send(id)
			k.receive(id, granted.TTL)
			l.renewed(sent, granted.TTL)
			wantEqual(t, "the key is there", st.get("a").Count, 1)
		}
		// Then none, and it ends.
		resp := w.nextWithin(l.limit())
		l.checkEnd(t)
		wantEqual(t, "end", showEvents(resp.Events), "DELETE a= c0 m3 v0")
	})
}

func TestExpiryLeavesMovedAndDetachedKeys(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		long := st.grant(600).ID
		sent := time.Now()
		short := st.grant(2)
		var l life
		l.renewed(sent, short.TTL)
		for _, k := range []string{"detached", "kept", "moved", "replaced"} {
			st.put(k, "", clientv3.WithLease(short.ID)) // 2 to 5
		}
		st.put("detached", "")                         // 6
		st.put("kept", "", clientv3.WithIgnoreLease()) // 7
		st.put("moved", "", clientv3.WithLease(long))  // 8
		st.delete("replaced")                          // 9
		st.put("replaced", "")                         // 10
		w := s.watch()
		w.watchKey("\x00", "\x00", 11)
		resp := w.nextWithin(l.limit())
		l.checkEnd(t)
		wantEqual(t, "end", showEvents(resp.Events), "DELETE kept= c0 m11 v0")
		wantEqual(t, "left", st.all(), lines(
			"detached= c2 m6 v2", fmt.Sprintf("moved= c4 m8 v2 lease %x", int64(long)), "replaced= c10 m10 v1"))
	})
}

func TestExpiryOfManyLeases(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		const leases = 50
		lives := make(map[string]*life)
		for i := range leases {
			sent := time.Now()
			lease := st.grant(3)
			key := fmt.Sprintf("key%02d", i)
			lives[key] = new(life)
			lives[key].renewed(sent, lease.TTL)
			st.put(key, "", clientv3.WithLease(lease.ID))
		}
		w := s.watch()
		// On a slow machine the first end before the last are granted.
		w.create(&pb.WatchCreateRequest{Key: []byte("\x00"), RangeEnd: []byte("\x00"), StartRevision: 2,
			Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}})
		revisions := make(map[int64]string)
		for len(revisions) < leases {
			// One response may hold the ends of several leases.
			for _, e := range w.nextWithin(3*time.Second + lateness).Events {
				key := string(e.Kv.Key)
				if revisions[e.Kv.ModRevision] != "" {
					t.Errorf("%s and %s of different leases ended at revision %d", revisions[e.Kv.ModRevision], key, e.Kv.ModRevision)
				}
				revisions[e.Kv.ModRevision] = key
				lives[key].checkEnd(t)
				delete(lives, key)
			}
		}
		wantEqual(t, "leases that have not ended", len(lives), 0)
		wantEqual(t, "one revision for each", st.revision(), 1+2*leases)
	})
}
