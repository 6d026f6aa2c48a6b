//go:build unix

package postgres

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// A listener receives the names whose owner changed, and no others.
func TestListenReportsOwnerChanges(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s, other := opened(t, database, Config{}), opened(t, database, Config{Namespace: "other"})
	ctx, cancel := context.WithCancel(t.Context())
	names := make(chan string, 100)
	var all sync.WaitGroup
	all.Go(func() { _ = s.Listen(ctx, func(name string) { names <- name }) })
	defer all.Wait()
	defer cancel()
	<-names // the first call of changed: it listens
	renewed := swap(t, s, claim.Op{}, record("x", 1))
	for range 3 {
		r := renewed
		r.Op = claim.NewOp()
		if done, err := s.SwapAll(t.Context(), []claim.Swap{{Old: renewed.Op, Record: r}}); err != nil || !done[0] {
			t.Fatal(done, err)
		}
		renewed = r
		r.Op = claim.NewOp()
		if done, err := s.Swap(t.Context(), claim.Swap{Old: renewed.Op, Record: r}); err != nil || !done {
			t.Fatal(done, err)
		}
		renewed = r
	}
	swap(t, other, claim.Op{}, record("y", 1))
	if done, err := s.Swap(t.Context(), claim.Swap{Old: claim.NewOp(), Record: record("x", 2), Owner: true}); done || err != nil {
		t.Fatal(done, err)
	}
	swap(t, s, claim.Op{}, record("z", 1))
	for _, want := range []string{"x", "z"} { // in the order of their commits
		select {
		case name := <-names:
			if name != want {
				t.Errorf("the notification is about %q, want %q", name, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no notification about %q came", want)
		}
	}
}

// A store sends no notification while no process listens in its namespace, nor when the last process recorded that it
// listens more than a minute ago.
func TestStoreNotifiesOnlyListeners(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s, other := opened(t, database, Config{}), opened(t, database, Config{Namespace: "other"})
	notifies := func() bool {
		t.Helper()
		r := record(claim.NewOp().String(), 1)
		if done, err := s.Swap(t.Context(), claim.Swap{Record: r}); !done || err != nil {
			t.Fatal(done, err)
		}
		was := s.db.alive().notifier
		defer func() { s.db.alive().notifier = was }()
		s.db.alive().notifier = newNotifier()
		send := newFakeSend(s.db.alive().notifier)
		send.proceed <- struct{}{}
		next := r
		next.Op, next.Token, next.Holder = claim.NewOp(), 2, ""
		swap(t, s, r.Op, next)
		s.db.alive().notifier.close(t.Context(), func() {})
		return len(send.sent) > 0
	}
	if notifies() {
		t.Error("the store notifies, though no process listens")
	}
	listen := func(s *Store) (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		names := make(chan string, 100)
		var all sync.WaitGroup
		all.Go(func() { _ = s.Listen(ctx, func(name string) { names <- name }) })
		<-names // the first call of changed: it listens
		return func() { cancel(); all.Wait() }
	}
	defer listen(other)()
	if notifies() {
		t.Error("the store notifies, though the listener is in another namespace")
	}
	defer listen(s)()
	if !notifies() {
		t.Error("the store does not notify, though a process listens")
	}
	run(t, database, "UPDATE leasekeeper_namespace SET listened_at = listened_at - interval '2 minutes'")
	if notifies() {
		t.Error("the store notifies, though the listener recorded itself two minutes ago")
	}
	defer listen(s)()
	if !notifies() {
		t.Error("the store does not notify a new listener")
	}
}

// Listen returns an error when its connection is cut.
func TestListenEndsWithItsConnection(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{})
	begun, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- s.Listen(t.Context(), func(name string) { begun <- name }) }()
	<-begun
	run(t, database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%SET listened_at%' AND pid <> pg_backend_pid() AND datname = current_database()")
	select {
	case err := <-ended:
		says(t, err, backend.ErrUnavailable, "listen")
	case <-time.After(10 * time.Second):
		t.Fatal("Listen does not return")
	}
}

// A waiter takes a released name at once, long before its next poll.
func TestReleasedNameIsTakenAtOnce(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t) + "&poll=1m"
	a, b := keeper(t, database, leasekeeper.WithHolder("a")), keeper(t, database, leasekeeper.WithHolder("b"))
	l, err := a.TryAcquire(t.Context(), "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	late := 0
	for range rounds {
		taken := make(chan *leasekeeper.Lease)
		go func() {
			defer close(taken)
			next, err := b.Acquire(t.Context(), "jobs/x")
			if err != nil {
				t.Error(err)
				return
			}
			taken <- next
		}()
		time.Sleep(60 * time.Millisecond) // by then it usually waits
		began := time.Now()
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, ok := <-taken
		if !ok {
			return
		}
		if time.Since(began) > 50*time.Millisecond {
			late++
		}
		l, a, b = next, b, a
	}
	if late > rounds/2 {
		t.Errorf("%d of %d were taken after more than 50 ms", late, rounds)
	}
}
