package conformance

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// grantMany grants leases in parallel, because one after the other each
// would wait for the disk alone.
func (st store) grantMany(n int, ttl int64) []int64 {
	st.s.t.Helper()
	ids := make([]int64, n)
	const workers = 50
	var wg sync.WaitGroup
	ctx := st.s.context()
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				resp, err := st.c.Grant(ctx, ttl)
				if err != nil {
					st.s.t.Errorf("grant: %v", err)
					return
				}
				ids[i] = int64(resp.ID)
			}
		})
	}
	wg.Wait()
	return ids
}

// putMany puts keys in a few rounds at once; which key gets which revision is
// left open.
func (st store) putMany(keys []string, o ...clientv3.OpOption) {
	st.s.t.Helper()
	const workers = 50
	var wg sync.WaitGroup
	ctx := st.s.context()
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(keys); i += workers {
				if _, err := st.c.Put(ctx, keys[i], "v", o...); err != nil {
					st.s.t.Errorf("put: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("key%04d", i)
	}
	return out
}

func TestManyLeases(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, ls := s.store(), s.stubs()
		const n = 2000
		ids := st.grantMany(n, 600)
		list := func() []int64 {
			resp, err := ls.LeaseLeases(s.context(), &pb.LeaseLeasesRequest{})
			wantOK(t, "list", err)
			out := make([]int64, 0, len(resp.Leases))
			for _, l := range resp.Leases {
				out = append(out, l.ID)
			}
			slices.Sort(out)
			return out
		}
		slices.Sort(ids)
		wantEqual(t, "all ids differ", len(slices.Compact(slices.Clone(ids))), n)
		wantEqual(t, "all are listed", slices.Equal(list(), ids), true)
		for _, id := range ids[:n/2] {
			if id%2 == 0 {
				continue
			}
			resp, err := ls.LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: id})
			wantOK(t, "time to live", err)
			wantEqual(t, "granted", resp.GrantedTTL, 600)
			break
		}
		// All of them over one stream, and every one is answered.
		k := s.keepAlive()
		for _, id := range ids {
			k.send(id)
		}
		wantEqual(t, "renewed", k.receiveAll(n, 600), n)
		wantEqual(t, "no write", st.revision(), 1)
		s.kill()
		s.start()
		resp, err := s.stubs().LeaseLeases(s.context(), &pb.LeaseLeasesRequest{})
		wantOK(t, "list", err)
		wantEqual(t, "after a restart", len(resp.Leases), n)
	})
}

// receiveAll receives n answers in any order, each for another lease,
// and returns how many of them were renewals.
func (k keepAlive) receiveAll(n int, ttl int64) int {
	k.t.Helper()
	renewed := 0
	seen := make(map[int64]bool)
	for range n {
		resp, err := k.next()
		wantOK(k.t, "receiving a keep-alive", err)
		if seen[resp.ID] {
			k.t.Errorf("lease %x is answered twice", resp.ID)
		}
		seen[resp.ID] = true
		switch resp.TTL {
		case ttl:
			renewed++
		case 0:
		default:
			k.t.Errorf("lease %x: ttl %d, want %d or 0", resp.ID, resp.TTL, ttl)
		}
	}
	return renewed
}

// wantOneEnd checks that all keys went in one response, at one revision, in
// their order.
func wantOneEnd(t *testing.T, resp *pb.WatchResponse, keys []string, revision int64) {
	t.Helper()
	wantEqual(t, "deletes in one response", len(resp.Events), len(keys))
	wantEqual(t, "header", resp.Header.Revision, revision)
	for i, e := range resp.Events {
		if want := fmt.Sprintf("DELETE %s= c0 m%d v0", keys[i], revision); showEvents(resp.Events[i:i+1]) != want {
			t.Fatalf("event %d is %v, want %s", i, e, want)
		}
	}
}

func TestLeaseWithManyKeysIsRevoked(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		const n = 1000
		lease := st.grant(600).ID
		st.putMany(numbered(n), clientv3.WithLease(lease)) // 2 to n+1
		st.put("bystander", "")                            // n+2
		resp, err := st.c.TimeToLive(s.context(), lease, clientv3.WithAttachedKeys())
		wantOK(t, "time to live", err)
		wantEqual(t, "attached", len(resp.Keys), n)
		w := s.watch()
		w.watchKey("\x00", "\x00", n+3)
		wantEqual(t, "one revision", st.revoke(lease).Header.Revision, n+3)
		wantOneEnd(t, w.next(), numbered(n), n+3)
		wantEqual(t, "left", keys(st.get("\x00", clientv3.WithFromKey()).Kvs), "bystander")
		wantEqual(t, "in the past they are there", st.get("key", clientv3.WithPrefix(), clientv3.WithRev(n+2), clientv3.WithCountOnly()).Count, n)
	})
}

func TestLeaseWithManyKeysExpires(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		const n = 1000
		w := s.watch()
		w.watchKey("key", "kez", n+2)
		sent := time.Now()
		lease := st.grant(8)
		var l life
		l.renewed(sent, lease.TTL)
		st.putMany(numbered(n), clientv3.WithLease(lease.ID)) // 2 to n+1
		resp := w.nextWithin(l.limit() + waitLimit)
		l.checkEnd(t)
		wantOneEnd(t, resp, numbered(n), n+2)
		wantEqual(t, "left", st.all(), "")
	})
}

// While many leases end, renewals of others are answered, on the same stream and
// on others. A renewal of an ending lease is answered with its whole TTL or none.
func TestRenewalsWhileOthersEnd(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		const ending = 300
		stay := st.grant(600).ID
		st.put("stays", "", clientv3.WithLease(stay)) // 2
		short := st.grantMany(ending, 2)
		names := numbered(ending)
		for i, id := range short {
			_, err := st.c.Put(s.context(), names[i], "", clientv3.WithLease(clientv3.LeaseID(id)))
			if err != nil { // the first may be over before the last is attached
				wantText(t, "put", err, textLeaseNotFound)
			}
		}
		mixed, alone := s.keepAlive(), s.keepAlive()
		deadline := time.Now().Add(3*lateness + waitLimit)
		for left := ending; left > 0; {
			if time.Now().After(deadline) {
				t.Fatalf("%d leases have not ended", left)
			}
			// Asking about one that has not ended renews it, so ask about few.
			mixed.send(short[0])
			mixed.send(int64(stay))
			mixed.receiveBoth(short[0], int64(stay), 600)
			alone.send(int64(stay))
			alone.receive(int64(stay), 600)
			resp, err := st.c.Leases(s.context())
			wantOK(t, "leases", err)
			left = len(resp.Leases) - 2 // the one that stays and the one that is renewed
			time.Sleep(20 * time.Millisecond)
		}
		wantEqual(t, "the key that stays", st.get("stays").Count, 1)
	})
}

// receiveBoth takes the answers about two leases, in any order: the first may
// have ended, the second has not.
func (k keepAlive) receiveBoth(first, second, ttl int64) {
	k.t.Helper()
	answers := make(map[int64]int64)
	for range 2 {
		resp, err := k.next()
		wantOK(k.t, "receiving a keep-alive", err)
		answers[resp.ID] = resp.TTL
	}
	if _, answered := answers[first]; !answered || answers[second] != ttl {
		k.t.Errorf("answers %v, want one for %d, and %d for %d", answers, first, ttl, second)
	}
}

// The remaining time is reported in whole seconds, rounded down.
func TestLeaseTimeToLiveIsRoundedDown(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		lease := st.grant(4)
		granted := time.Now()
		// Until it has ended; each answer was worked out after it was asked for.
		for last := lease.TTL; ; time.Sleep(30 * time.Millisecond) {
			asked := time.Since(granted)
			resp, err := st.c.TimeToLive(s.context(), lease.ID)
			wantOK(t, "time to live", err)
			if resp.TTL == -1 {
				break
			}
			// In the last second, and while it is on its way out, nothing is left.
			most := max(lease.TTL-int64((asked+time.Second-1)/time.Second), 0)
			if resp.TTL > most || resp.TTL > last || resp.TTL < 0 {
				t.Fatalf("%d s remain %v after the grant of %d s was answered; it was %d before", resp.TTL, asked, lease.TTL, last)
			}
			last = resp.TTL
			if asked > time.Duration(lease.TTL)*time.Second+lateness+waitLimit {
				t.Fatalf("still there after %v", asked)
			}
		}
	})
}
