package conformance

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// session opens a session over a client of its own, as another process would.
func (s *server) session(ttl int) *concurrency.Session {
	s.t.Helper()
	session, err := concurrency.NewSession(s.client(), concurrency.WithTTL(ttl))
	wantOK(s.t, "session", err)
	s.t.Cleanup(func() { session.Close() }) // of no matter once it has ended
	return session
}

// due returns the result of a blocking call, and fails the test if it is overdue.
func due(t *testing.T, what string, within time.Duration, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(within):
		t.Fatalf("%s: nothing within %v", what, within)
		return nil
	}
}

// begin runs a blocking call in a goroutine.
func begin(call func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- call() }()
	return result
}

// members is the number of keys below the name of a lock or an election: its
// holder and its waiters.
func (st store) members(name string) int {
	st.s.t.Helper()
	return int(st.get(name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly()).Count)
}

// awaitMembers waits until there are n members.
func (st store) awaitMembers(name string, n int) {
	st.s.t.Helper()
	eventually(st.s.t, waitLimit, "the queue at "+name, func() bool { return st.members(name) == n })
}

// awaitWaiting is awaitMembers for a member that is about to give up. On etcd its
// key is left behind if it does so between the write and its
// answer. So awaitWaiting also waits for another write.
func (st store) awaitWaiting(name string, n int) {
	st.s.t.Helper()
	st.awaitMembers(name, n)
	for range 3 {
		st.put("meanwhile", "")
	}
}

func TestSessionKeepsItsLeaseUntilClosed(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		session := s.session(3)
		ttl := func() *clientv3.LeaseTimeToLiveResponse {
			resp, err := st.c.TimeToLive(s.context(), session.Lease())
			wantOK(t, "time to live", err)
			return resp
		}
		wantEqual(t, "granted", ttl().GrantedTTL, 3)
		st.put("a", "", clientv3.WithLease(session.Lease()))
		// The passing of time is the subject: it is kept alive.
		select {
		case <-session.Done():
			t.Fatal("the session has ended")
		case <-time.After(5 * time.Second):
		}
		wantEqual(t, "its key", st.get("a").Count, 1)
		wantOK(t, "close", session.Close())
		wantEqual(t, "closing ends the lease", ttl().TTL, -1)
		wantEqual(t, "and its keys", st.get("a").Count, 0)
		select {
		case <-session.Done():
		default:
			t.Error("a closed session is not done")
		}
	})
}

func TestSessionNoticesTheEndOfItsLease(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		session := s.session(3)
		s.store().revoke(session.Lease())
		select {
		case <-session.Done():
		case <-time.After(waitLimit):
			t.Fatalf("not done within %v", waitLimit)
		}
		wantIs(t, "context", session.Ctx().Err(), context.Canceled)
	})
}

func TestSessionOverAnExistingLease(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		first := s.session(600)
		st.put("a", "", clientv3.WithLease(first.Lease()))
		first.Orphan()
		second, err := concurrency.NewSession(s.client(), concurrency.WithLease(first.Lease()))
		wantOK(t, "taking over", err)
		wantEqual(t, "lease", second.Lease(), first.Lease())
		wantEqual(t, "its key", st.get("a").Count, 1)
		wantOK(t, "close", second.Close())
		wantEqual(t, "its key", st.get("a").Count, 0)
	})
}
