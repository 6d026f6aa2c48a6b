package conformance

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// eachRestart runs a test for each way in which a server can go. Nothing that
// was acknowledged may depend on which it was.
func eachRestart(t *testing.T, test func(t *testing.T, s *server, restart func())) {
	t.Parallel()
	for _, way := range []string{"killed", "stopped"} {
		t.Run(way, func(t *testing.T) {
			eachTarget(t, func(t *testing.T, s *server) {
				test(t, s, func() {
					t.Helper()
					if way == "killed" {
						s.kill()
					} else {
						s.stop()
					}
					s.start()
				})
			})
		})
	}
}

func TestRestartKeepsKeysAndRevisions(t *testing.T) {
	eachRestart(t, func(t *testing.T, s *server, restart func()) {
		st := s.store()
		st.put("a", "1")                                                          // 2
		st.put("a", "2")                                                          // 3
		st.put("gone", "")                                                        // 4
		st.delete("gone")                                                         // 5
		header := s.identity(st.put("large", string(make([]byte, 1<<20))).Header) // 6
		for round := range int64(2) {
			restart()
			st = s.store()
			wantEqual(t, "revision", st.revision(), 6+round)
			wantEqual(t, "key", show(st.get("a").Kvs...), fmt.Sprintf("a=%d c2 m%d v%d", 2+round, []int64{3, 7}[round], 2+round))
			wantEqual(t, "past", show(st.get("a", clientv3.WithRev(2)).Kvs...), "a=1 c2 m2 v1")
			wantEqual(t, "deleted", st.get("gone").Count, 0)
			wantEqual(t, "deleted, before", st.get("gone", clientv3.WithRev(4)).Count, 1)
			wantEqual(t, "large value", len(st.get("large").Kvs[0].Value), 1<<20)
			put := st.put("a", fmt.Sprint(3+round))
			wantEqual(t, "revisions go on", put.Header.Revision, 7+round)
			now := s.identity(put.Header)
			if now.cluster != header.cluster || now.member != header.member || now.term < header.term {
				t.Errorf("identity %v, before %v", *now, *header)
			}
		}
		w := s.watch()
		w.watchKey("a", "", 2)
		wantEqual(t, "history", w.eventsUntil(8)[0], lines(
			"PUT a=1 c2 m2 v1", "PUT a=2 c2 m3 v2", "PUT a=3 c2 m7 v3", "PUT a=4 c2 m8 v4"))
	})
}

func TestRestartKeepsLeases(t *testing.T) {
	eachRestart(t, func(t *testing.T, s *server, restart func()) {
		st := s.store()
		chosen := clientv3.LeaseID(-0x1234)
		_, err := s.stubs().LeaseGrant(s.context(), &pb.LeaseGrantRequest{ID: int64(chosen), TTL: 600})
		wantOK(t, "grant", err)
		other, revoked := st.grant(300).ID, st.grant(600).ID
		st.put("a", "", clientv3.WithLease(chosen)) // 2
		st.put("b", "", clientv3.WithLease(chosen)) // 3
		st.put("b", "", clientv3.WithLease(other))  // 4
		st.put("c", "", clientv3.WithLease(other))  // 5
		st.put("c", "")                             // 6
		st.put("d", "", clientv3.WithLease(revoked))
		st.revoke(revoked) // 8
		restart()

		st = s.store()
		wantEqual(t, "keys", st.all(), lines(
			fmt.Sprintf("a= c2 m2 v1 lease %x", uint64(chosen)), fmt.Sprintf("b= c3 m4 v2 lease %x", uint64(other)), "c= c5 m6 v2"))
		check := func(id clientv3.LeaseID, granted int64, keys string) {
			t.Helper()
			resp, err := st.c.TimeToLive(s.context(), id, clientv3.WithAttachedKeys())
			wantOK(t, "time to live", err)
			wantEqual(t, "granted", resp.GrantedTTL, granted)
			wantEqual(t, "bindings", string(bytes.Join(resp.Keys, []byte(" "))), keys)
			// At most the whole TTL, and at least the rest of it by the wall clock.
			if resp.TTL > granted || resp.TTL < granted-100 {
				t.Errorf("%d s remain of %d", resp.TTL, granted)
			}
		}
		check(chosen, 600, "a")
		check(other, 300, "b")
		leases, err := st.c.Leases(s.context())
		wantOK(t, "leases", err)
		wantEqual(t, "leases", len(leases.Leases), 2)
		_, err = s.stubs().LeaseGrant(s.context(), &pb.LeaseGrantRequest{ID: int64(chosen), TTL: 600})
		wantStatus(t, "a kept id", err, codes.FailedPrecondition, textLeaseExists)

		k := s.keepAlive()
		k.send(int64(revoked))
		k.receive(int64(revoked), 0)
		k.send(int64(other))
		k.receive(int64(other), 300)
		st.revoke(chosen)
		wantEqual(t, "a revoke takes the keys along", keys(st.get("\x00", clientv3.WithFromKey()).Kvs), "b c")
		wantEqual(t, "revision", st.revision(), 9)
	})
}

func TestRestartDoesNotChooseLeaseIDsAgain(t *testing.T) {
	eachRestart(t, func(t *testing.T, s *server, restart func()) {
		seen := make(map[clientv3.LeaseID]bool)
		for range 3 {
			st := s.store()
			for range 30 {
				id := st.grant(600).ID
				if seen[id] || id <= 0 {
					t.Fatalf("id %d, after %d others", id, len(seen))
				}
				seen[id] = true
				// An ended lease's id is not to come again either.
				if len(seen)%2 == 0 {
					st.revoke(id)
				}
			}
			restart()
		}
	})
}

func TestRestartDoesNotShortenLeases(t *testing.T) {
	eachRestart(t, func(t *testing.T, s *server, restart func()) {
		st := s.store()
		var fresh, renewed life
		sent := time.Now()
		early := st.grant(5)
		renewed.renewed(sent, early.TTL)
		st.put("renewed", "", clientv3.WithLease(early.ID)) // 2
		time.Sleep(3 * time.Second)                         // most of its TTL, so that the renewal matters
		sent = time.Now()
		late := st.grant(5)
		fresh.renewed(sent, late.TTL)
		st.put("fresh", "", clientv3.WithLease(late.ID)) // 3
		k := s.keepAlive()
		sent = time.Now()
		k.send(int64(early.ID))
		k.receive(int64(early.ID), early.TTL)
		renewed.renewed(sent, early.TTL)
		restart()

		back := time.Now()
		w := s.watch()
		w.watchKey("\x00", "\x00", 4)
		ends := make(map[string]bool)
		for len(ends) < 2 {
			// At the latest a whole TTL after the server is back.
			limit := time.Duration(early.TTL)*time.Second + lateness - time.Since(back)
			for _, e := range w.nextWithin(limit).Events {
				wantEqual(t, "event", e.Type.String(), "DELETE")
				key := string(e.Kv.Key)
				ends[key] = true
				map[string]*life{"fresh": &fresh, "renewed": &renewed}[key].checkEnd(t)
			}
		}
		wantEqual(t, "left", s.store().all(), "")
	})
}

func TestRestartEndsLeasesThatRanOutMeanwhile(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		sent := time.Now()
		lease := st.grant(2)
		var l life
		l.renewed(sent, lease.TTL)
		st.put("a", "", clientv3.WithLease(lease.ID)) // 2
		s.kill()
		time.Sleep(l.ttl + time.Second) // the subject: no server runs when the lease ends
		s.start()
		st = s.store()
		eventually(t, l.ttl+lateness, "the key is gone", func() bool { return st.get("a").Count == 0 })
		wantEqual(t, "revision", st.revision(), 3)
	})
}

func TestRestartUnderClientv3(t *testing.T) {
	eachRestart(t, func(t *testing.T, s *server, restart func()) {
		st := s.store()
		s.settle()
		watched := st.c.Watch(s.context(), "k", clientv3.WithPrefix(), clientv3.WithRev(2))
		lease := st.grant(30)
		renewals, err := st.c.KeepAlive(s.context(), lease.ID)
		wantOK(t, "keep alive", err)
		<-renewals
		for i := range 10 {
			st.put(fmt.Sprintf("k%d", i), "", clientv3.WithLease(lease.ID)) // 2 to 11
		}
		restart()
		// The same client, its watch and its renewals find back by themselves.
		eventually(t, waitLimit, "a write", func() bool {
			_, err := st.c.Put(s.context(), "back", "")
			return err == nil
		})
		for i := range 10 {
			st.put(fmt.Sprintf("k%d", i), "again", clientv3.WithLease(lease.ID))
		}
		var got, last int64
		deadline := time.After(waitLimit)
		for got < 20 {
			select {
			case resp, ok := <-watched:
				if !ok || resp.Err() != nil {
					t.Fatalf("the watch has ended: %v", resp.Err())
				}
				for _, e := range resp.Events {
					if e.Kv.ModRevision <= last {
						t.Fatalf("event of revision %d after %d", e.Kv.ModRevision, last)
					}
					last = e.Kv.ModRevision
					got++
				}
			case <-deadline:
				t.Fatalf("%d events of 20", got)
			}
		}
		select {
		case resp, ok := <-renewals:
			if !ok || resp.TTL != lease.TTL {
				t.Errorf("renewal after the restart: %v", resp)
			}
		case <-time.After(waitLimit):
			t.Error("no renewal after the restart")
		}
	})
}
