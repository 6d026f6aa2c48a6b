package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func TestMutexIsHeldByOneSessionUntilUnlock(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		session := s.session(60)
		m := concurrency.NewMutex(session, "lock")
		wantOK(t, "lock", m.Lock(s.context()))
		id := int64(session.Lease())
		wantEqual(t, "key", m.Key(), fmt.Sprintf("lock/%x", id))
		wantEqual(t, "store", st.all(), fmt.Sprintf("lock/%[1]x= c2 m2 v1 lease %[1]x", id))
		wantEqual(t, "header", m.Header().Revision, 2)
		owner := func() bool {
			resp, err := st.c.Txn(s.context()).If(m.IsOwner()).Commit()
			wantOK(t, "txn", err)
			return resp.Succeeded
		}
		wantEqual(t, "owner", owner(), true)
		// Once more by the same session changes nothing.
		again := concurrency.NewMutex(session, "lock")
		wantOK(t, "lock again", again.Lock(s.context()))
		wantEqual(t, "revision", st.revision(), 2)
		wantOK(t, "unlock", m.Unlock(s.context()))
		wantEqual(t, "store", st.all(), "")
		wantIs(t, "unlock again", m.Unlock(s.context()), concurrency.ErrLockReleased)
		wantOK(t, "and lock", m.Lock(s.context()))
		wantEqual(t, "owner", owner(), true)
		wantEqual(t, "revision", st.revision(), 4)
	})
}

func TestMutexExcludes(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		const holders, rounds = 6, 15
		var inside atomic.Int32
		unguarded := 0
		var wg sync.WaitGroup
		for range holders {
			m := concurrency.NewMutex(s.session(60), "lock")
			wg.Go(func() {
				for range rounds {
					if err := m.Lock(s.t.Context()); err != nil {
						t.Errorf("lock: %v", err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d inside", n)
					}
					unguarded++
					inside.Add(-1)
					if err := m.Unlock(s.t.Context()); err != nil {
						t.Errorf("unlock: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		wantEqual(t, "rounds", unguarded, holders*rounds)
		wantEqual(t, "left over", s.store().members("lock"), 0)
	})
}

func TestMutexTryLock(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		holder, other := concurrency.NewMutex(s.session(60), "lock"), concurrency.NewMutex(s.session(60), "lock")
		wantOK(t, "try a free lock", holder.TryLock(s.context()))
		wantOK(t, "try its own lock", holder.TryLock(s.context()))
		wantIs(t, "try a held lock", other.TryLock(s.context()), concurrency.ErrLocked)
		wantEqual(t, "no trace of the one who tried", st.members("lock"), 1)
		wantIs(t, "unlock what was not locked", other.Unlock(s.context()), concurrency.ErrLockReleased)
		wantOK(t, "another lock", concurrency.NewMutex(s.session(60), "lock2").TryLock(s.context()))
		wantOK(t, "unlock", holder.Unlock(s.context()))
		wantOK(t, "try again", other.TryLock(s.context()))
	})
}

func TestMutexIsHandedOverInOrder(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		const n = 5
		var mutexes []*concurrency.Mutex
		order := make(chan int, n)
		for i := range n {
			m := concurrency.NewMutex(s.session(60), "lock")
			mutexes = append(mutexes, m)
			go func() {
				if err := m.Lock(s.t.Context()); err != nil {
					t.Errorf("lock: %v", err)
				}
				order <- i
			}()
			st.awaitMembers("lock", i+1)
		}
		for i := range n {
			select {
			case got := <-order:
				wantEqual(t, "holder", got, i)
			case <-time.After(waitLimit):
				t.Fatalf("nobody got the lock within %v", waitLimit)
			}
			wantEqual(t, "the others wait", len(order), 0)
			wantOK(t, "unlock", mutexes[i].Unlock(s.context()))
		}
		wantEqual(t, "left over", st.members("lock"), 0)
	})
}

func TestMutexIsFreedByTheEndOfASession(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		for what, end := range map[string]func(*concurrency.Session){
			"close":  func(held *concurrency.Session) { wantOK(t, "close", held.Close()) },
			"revoke": func(held *concurrency.Session) { st.revoke(held.Lease()) },
			"expiry": func(held *concurrency.Session) { held.Orphan() },
		} {
			name := "lock-" + what
			held := s.session(2)
			wantOK(t, what+": lock", concurrency.NewMutex(held, name).Lock(s.context()))
			next := concurrency.NewMutex(s.session(60), name)
			got := begin(func() error { return next.Lock(s.context()) })
			st.awaitMembers(name, 2)
			end(held)
			wantOK(t, what+": next", due(t, what, 2*time.Second+lateness+waitLimit, got))
			wantEqual(t, what+": only the new holder", st.members(name), 1)
			wantOK(t, what+": unlock", next.Unlock(s.context()))
		}
	})
}

func TestMutexWaitersThatGiveUp(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		holder := concurrency.NewMutex(s.session(60), "lock")
		wantOK(t, "lock", holder.Lock(s.context()))
		// A waiter that gives up leaves no key behind.
		ctx, cancel := context.WithCancel(s.context())
		impatient := concurrency.NewMutex(s.session(60), "lock")
		got := begin(func() error { return impatient.Lock(ctx) })
		st.awaitWaiting("lock", 2)
		cancel()
		wantIs(t, "given up", due(t, "cancel", waitLimit, got), context.Canceled)
		st.awaitMembers("lock", 1)
		// A waiter whose lease has ended gets an error when its turn comes.
		session := s.session(600)
		gone := concurrency.NewMutex(session, "lock")
		got = begin(func() error { return gone.Lock(s.context()) })
		st.awaitMembers("lock", 2)
		st.revoke(session.Lease())
		wantOK(t, "unlock", holder.Unlock(s.context()))
		wantIs(t, "session gone", due(t, "lock", waitLimit, got), concurrency.ErrSessionExpired)
		wantEqual(t, "left over", st.members("lock"), 0)
	})
}

func TestLockerLocksAndUnlocks(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		l := concurrency.NewLocker(s.session(60), "lock")
		for range 3 {
			l.Lock()
			wantEqual(t, "held", st.members("lock"), 1)
			l.Unlock()
			wantEqual(t, "free", st.members("lock"), 0)
		}
	})
}

// A holder that was taken for dead can be kept from writing by the revision of
// its key. This is the use of a lock.
func TestMutexFencesAnExpiredHolder(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		late := s.session(60)
		m := concurrency.NewMutex(late, "lock")
		wantOK(t, "lock", m.Lock(s.context()))
		fenced := func(value string) bool {
			resp, err := st.c.Txn(s.context()).If(m.IsOwner()).Then(clientv3.OpPut("guarded", value)).Commit()
			wantOK(t, "txn", err)
			return resp.Succeeded
		}
		wantEqual(t, "while it holds the lock", fenced("1"), true)
		st.revoke(late.Lease())
		wantEqual(t, "afterwards", fenced("2"), false)
		wantOK(t, "next", concurrency.NewMutex(s.session(60), "lock").TryLock(s.context()))
		wantEqual(t, "when somebody else has it", fenced("3"), false)
		wantEqual(t, "guarded", string(st.get("guarded").Kvs[0].Value), "1")
	})
}
