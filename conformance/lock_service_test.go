package conformance

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// locks is the Lock service over a connection of its own.
type locks struct {
	s *server
	v3lockpb.LockClient
}

func (s *server) locks() locks {
	s.t.Helper()
	return locks{s, v3lockpb.NewLockClient(s.stubs().conn)}
}

// lock is a request for a lock that has to succeed.
func (l locks) lock(name string, lease clientv3.LeaseID) string {
	l.s.t.Helper()
	resp, err := l.Lock(l.s.context(), &v3lockpb.LockRequest{Name: []byte(name), Lease: int64(lease)})
	wantOK(l.s.t, "lock", err)
	return string(resp.Key)
}

// beginLock asks for a lock and does not wait for it.
func (l locks) beginLock(ctx context.Context, name string, lease clientv3.LeaseID) <-chan error {
	return begin(func() error {
		_, err := l.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: int64(lease)})
		return err
	})
}

func (l locks) unlock(key string) {
	l.s.t.Helper()
	_, err := l.Unlock(l.s.context(), &v3lockpb.UnlockRequest{Key: []byte(key)})
	wantOK(l.s.t, "unlock", err)
}

// wantText checks the text of an error alone: etcd sends the errors that its
// services meet inside with the code Unknown, and it is by the text that clients
// know them.
func wantText(t *testing.T, what string, err error, text string) {
	t.Helper()
	if err == nil || status.Convert(err).Message() != text {
		t.Errorf("%s\n got %v\nwant %q", what, err, text)
	}
}

func withLock(t *testing.T, test func(t *testing.T, s *server)) {
	eachTargetWith(t, test, areaLock)
}

func TestLockService(t *testing.T) {
	withLock(t, func(t *testing.T, s *server) {
		st, l := s.store(), s.locks()
		lease := st.grant(60).ID
		resp, err := l.Lock(s.context(), &v3lockpb.LockRequest{Name: []byte("name"), Lease: int64(lease)})
		wantOK(t, "lock", err)
		wantEqual(t, "key", string(resp.Key), fmt.Sprintf("name/%x", int64(lease)))
		wantEqual(t, "header", resp.Header.Revision, 2)
		wantEqual(t, "identity", *s.identity(resp.Header), *s.identity(st.get("a").Header))
		wantEqual(t, "store", st.all(), fmt.Sprintf("name/%[1]x= c2 m2 v1 lease %[1]x", int64(lease)))
		wantEqual(t, "once more with the same lease", l.lock("name", lease), string(resp.Key))
		wantEqual(t, "revision", st.revision(), 2)

		unlocked, err := l.Unlock(s.context(), &v3lockpb.UnlockRequest{Key: resp.Key})
		wantOK(t, "unlock", err)
		wantEqual(t, "header", unlocked.Header.Revision, 3)
		wantEqual(t, "identity", *s.identity(unlocked.Header), *s.identity(resp.Header))
		wantEqual(t, "store", st.all(), "")
		l.unlock(string(resp.Key)) // unlocking a free lock is no error
		wantEqual(t, "revision", st.revision(), 3)
	})
}

func TestLockServiceGrantsALeaseOfItsOwn(t *testing.T) {
	withLock(t, func(t *testing.T, s *server) {
		st, l := s.store(), s.locks()
		key := l.lock("name", 0)
		kv := st.get(key).Kvs[0]
		wantEqual(t, "key", key, fmt.Sprintf("name/%x", kv.Lease))
		ttl, err := st.c.TimeToLive(s.context(), clientv3.LeaseID(kv.Lease))
		wantOK(t, "time to live", err)
		wantEqual(t, "granted", ttl.GrantedTTL, 60)
		l.unlock(key)
		wantEqual(t, "no name", l.lock("", st.grant(60).ID)[:1], "/")
	})
}

func TestLockServiceErrors(t *testing.T) {
	withLock(t, func(t *testing.T, s *server) {
		st, l := s.store(), s.locks()
		_, err := l.Lock(s.context(), &v3lockpb.LockRequest{Name: []byte("name"), Lease: 99})
		wantText(t, "unknown lease", err, textLeaseNotFound)
		_, err = l.Unlock(s.context(), &v3lockpb.UnlockRequest{})
		wantText(t, "no key", err, textKeyNotProvided)
		wantEqual(t, "no write", st.revision(), 1)
	})
}

func TestLockServiceHandsOverInOrder(t *testing.T) {
	withLock(t, func(t *testing.T, s *server) {
		st, l := s.store(), s.locks()
		const n = 4
		var leases []clientv3.LeaseID
		var got []<-chan error
		for i := range n {
			leases = append(leases, st.grant(60).ID)
			got = append(got, l.beginLock(s.context(), "name", leases[i]))
			st.awaitMembers("name", i+1)
		}
		for i := range n {
			wantOK(t, "lock", due(t, "lock", waitLimit, got[i]))
			for _, other := range got[i+1:] {
				wantEqual(t, "the others wait", len(other), 0)
			}
			if i%2 == 0 {
				l.unlock(fmt.Sprintf("name/%x", int64(leases[i])))
			} else {
				st.revoke(leases[i])
			}
		}
		wantEqual(t, "left over", st.members("name"), 0)
	})
}

func TestLockServiceIsFreedByExpiry(t *testing.T) {
	withLock(t, func(t *testing.T, s *server) {
		st, l := s.store(), s.locks()
		// The service renews nothing: the lease's owner does.
		var held life
		sent := time.Now()
		lease := st.grant(2)
		held.renewed(sent, lease.TTL)
		l.lock("name", lease.ID)
		got := l.beginLock(s.context(), "name", st.grant(60).ID)
		wantOK(t, "next", due(t, "lock", held.limit()+waitLimit, got))
		wantEqual(t, "only the new holder", st.members("name"), 1)
	})
}

func TestLockServiceWaitersThatVanish(t *testing.T) {
	withLock(t, func(t *testing.T, s *server) {
		st, l := s.store(), s.locks()
		key := l.lock("name", st.grant(60).ID)
		ctx, cancel := context.WithCancel(s.context())
		got := l.beginLock(ctx, "name", st.grant(60).ID)
		st.awaitWaiting("name", 2)
		cancel()
		wantEqual(t, "given up", codeOf(due(t, "lock", waitLimit, got)), codes.Canceled)
		st.awaitMembers("name", 1)
		ctx, cancel = context.WithTimeout(s.context(), time.Second)
		defer cancel()
		got = l.beginLock(ctx, "name", st.grant(60).ID)
		wantEqual(t, "out of time", codeOf(due(t, "lock", waitLimit, got)), codes.DeadlineExceeded)
		st.awaitMembers("name", 1)
		// One whose lease ends while it waits does not get the lock.
		gone := st.grant(60).ID
		got = l.beginLock(s.context(), "name", gone)
		st.awaitMembers("name", 2)
		st.revoke(gone)
		l.unlock(key)
		wantText(t, "lease gone", due(t, "lock", waitLimit, got), "mutex: session is expired")
		wantEqual(t, "left over", st.members("name"), 0)
	})
}

// The service, clientv3's mutexes and etcdctl mean the same by a name.
func TestLocksOfAllKindsExcludeEachOther(t *testing.T) {
	eachTargetWith(t, func(t *testing.T, s *server) {
		st, l := s.store(), s.locks()
		key := l.lock("name", st.grant(60).ID)
		m := concurrency.NewMutex(s.session(60), "name")
		wantIs(t, "mutex", m.TryLock(s.context()), concurrency.ErrLocked)
		mutex := begin(func() error { return m.Lock(s.context()) })
		st.awaitMembers("name", 2)
		ctl := s.startCtl("lock", "name")
		st.awaitMembers("name", 3)
		service := l.beginLock(s.context(), "name", st.grant(60).ID)
		st.awaitMembers("name", 4)
		l.unlock(key)
		wantOK(t, "mutex", due(t, "mutex", waitLimit, mutex))
		wantEqual(t, "etcdctl and the service wait", len(ctl.lines)+len(service), 0)
		wantOK(t, "unlock", m.Unlock(s.context()))
		ctl.wantMember("name", "")
		wantEqual(t, "the service waits", len(service), 0)
		ctl.signal(os.Interrupt)
		ctl.wantEnd(0)
		wantOK(t, "service", due(t, "service", waitLimit, service))
		wantEqual(t, "left over", st.members("name"), 1)
	}, areaLock, areaTxn)
}

func TestLocksOfTwoKindsCountTogether(t *testing.T) {
	eachTargetWith(t, func(t *testing.T, s *server) {
		const workers, rounds = 6, 10
		st := s.store()
		var inside atomic.Int32
		unguarded := 0
		guarded := func() {
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d inside", n)
			}
			unguarded++
			inside.Add(-1)
		}
		var wg sync.WaitGroup
		for w := range workers {
			l, lease := s.locks(), st.grant(60).ID
			m := concurrency.NewMutex(s.session(60), "name")
			wg.Go(func() {
				for range rounds {
					var err error
					if w%2 == 0 {
						if err = m.Lock(t.Context()); err == nil {
							guarded()
							err = m.Unlock(t.Context())
						}
					} else {
						var resp *v3lockpb.LockResponse
						if resp, err = l.Lock(t.Context(), &v3lockpb.LockRequest{Name: []byte("name"), Lease: int64(lease)}); err == nil {
							guarded()
							_, err = l.Unlock(t.Context(), &v3lockpb.UnlockRequest{Key: resp.Key})
						}
					}
					if err != nil {
						t.Errorf("worker %d: %v", w, err)
						return
					}
				}
			})
		}
		wg.Wait()
		wantEqual(t, "rounds", unguarded, workers*rounds)
		wantEqual(t, "left over", st.members("name"), 0)
	}, areaLock, areaTxn)
}
