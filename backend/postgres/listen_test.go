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

// Only a change of owner is told, and by the name.
func TestListenHearsOwnersChange(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s, other := opened(t, database, Config{}), opened(t, database, Config{Namespace: "other"})
	ctx, cancel := context.WithCancel(t.Context())
	names := make(chan string, 100)
	var all sync.WaitGroup
	all.Go(func() { _ = s.Listen(ctx, func(name string) { names <- name }) })
	defer all.Wait()
	defer cancel()
	<-names // it listens
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
				t.Errorf("heard of %q, and not of %q", name, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing was heard of %q", want)
		}
	}
}

// As long as nobody listens, nobody is notified; nor by those of another namespace, nor any more a while after the last
// has said that it listens.
func TestNobodyIsToldIfNobodyListens(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s, other := opened(t, database, Config{}), opened(t, database, Config{Namespace: "other"})
	tells := func() bool {
		t.Helper()
		r := record(claim.NewOp().String(), 1)
		if done, err := s.Swap(t.Context(), claim.Swap{Record: r}); !done || err != nil {
			t.Fatal(done, err)
		}
		was := s.db.teller
		defer func() { s.db.teller = was }()
		s.db.teller = newTeller()
		told := newTold(s.db.teller)
		told.goOn <- struct{}{}
		next := r
		next.Op, next.Token, next.Holder = claim.NewOp(), 2, ""
		swap(t, s, r.Op, next)
		s.db.teller.close(t.Context(), func() {})
		return len(told.began) > 0
	}
	if tells() {
		t.Error("somebody is notified though nobody listens")
	}
	listen := func(s *Store) (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		names := make(chan string, 100)
		var all sync.WaitGroup
		all.Go(func() { _ = s.Listen(ctx, func(name string) { names <- name }) })
		<-names // it listens
		return func() { cancel(); all.Wait() }
	}
	defer listen(other)()
	if tells() {
		t.Error("somebody is notified though he listens in another namespace")
	}
	defer listen(s)()
	if !tells() {
		t.Error("nobody is notified though somebody listens")
	}
	run(t, database, "UPDATE leasekeeper_namespace SET listened_at = listened_at - interval '2 minutes'")
	if tells() {
		t.Error("somebody is notified though it was long ago that somebody listened")
	}
	defer listen(s)()
	if !tells() {
		t.Error("who listens now is not heard")
	}
}

// A connection that is cut ends the listening, and that is told.
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
		t.Fatal("it goes on")
	}
}

// A waiter takes a name that is released long before it would have polled.
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
		time.Sleep(60 * time.Millisecond) // until it waits, mostly
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
