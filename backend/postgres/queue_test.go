//go:build unix

package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// queryOne returns the value of a query for one value.
func queryOne[T any](t testing.TB, database, query string, args ...any) (value T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// tickets returns the number of tickets in a database.
func tickets(t testing.TB, database string) int64 {
	t.Helper()
	return queryOne[int64](t, database, "SELECT count(*) FROM leasekeeper_ticket")
}

// until waits for a condition, and fails the test if it does not come true.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("this did not happen: " + what)
		}
	}
}

// acquiring acquires a name in the background. The channel has the lease, or is closed without one.
func acquiring(t testing.TB, k *leasekeeper.Keeper, name string) (taken chan *leasekeeper.Lease, cancel func()) {
	ctx, cancel := context.WithCancel(t.Context())
	taken = make(chan *leasekeeper.Lease, 1)
	go func() {
		defer close(taken)
		l, err := k.Acquire(ctx, name)
		if err == nil {
			taken <- l
		} else if ctx.Err() == nil {
			t.Errorf("acquire %s: %v", name, err)
		}
	}()
	return taken, cancel
}

func queuesOf(t testing.TB, s *Store) claim.Queues {
	t.Helper()
	q, err := s.Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// Many processes acquire and release one name, and each gets it about equally often.
func TestQueueIsFairAmongProcesses(t *testing.T) {
	const processes, rounds = 12, 8
	database := databases.PostgreSQL(t).Database(t)
	var turns [processes]atomic.Int64
	var all atomic.Int64
	var holder atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	var keepers [processes]*leasekeeper.Keeper
	for i := range keepers {
		keepers[i] = keeper(t, database, leasekeeper.WithHolder(fmt.Sprint("p", i)))
	}
	first := keeper(t, database, leasekeeper.WithHolder("first"))
	l, err := first.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range keepers {
		group.Go(func() {
			for ctx.Err() == nil {
				l, err := k.Acquire(ctx, "x")
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if !holder.CompareAndSwap(false, true) {
					t.Error("two processes hold the name")
				}
				time.Sleep(2 * time.Millisecond)
				holder.Store(false)
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
				turns[i].Add(1)
				if all.Add(1) == processes*rounds {
					stop()
				}
			}
		})
	}
	until(t, "all have a ticket", func() bool { return tickets(t, database) == processes })
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	var counts []int64
	for i := range turns {
		counts = append(counts, turns[i].Load())
	}
	if least := slices.Min(counts); least < rounds/2 {
		t.Errorf("of %d tenures the processes had %v: one had less than half of the mean", all.Load(), counts)
	}
	// Waiting in the queue needs no notifications.
	if queryOne[bool](t, database, "SELECT bool_or(listened_at > '-infinity') FROM leasekeeper_namespace") {
		t.Error("processes that wait for their turn listen to notifications")
	}
}

// A process that releases a name and acquires it again comes after a process that was waiting.
func TestReleaserDoesNotOvertakeTheQueue(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	a, b := keeper(t, database, leasekeeper.WithHolder("a")), keeper(t, database, leasekeeper.WithHolder("b"))
	for i := range 10 {
		l, err := a.Acquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		taken, cancel := acquiring(t, b, "x")
		until(t, "b has a ticket", func() bool { return tickets(t, database) == 1 })
		again := make(chan *leasekeeper.Lease, 1)
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() {
			l, _ := a.Acquire(t.Context(), "x")
			again <- l
		}()
		var first *leasekeeper.Lease
		select {
		case first = <-taken:
		case <-again:
			t.Fatalf("round %d: a had the name again before b", i)
		}
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l = <-again; l == nil {
			t.Fatal("a never had the name again")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
}

// A claim that does not wait takes a vacant name, even if other processes have tickets.
func TestNoWaitTakesAVacantNameBeforeTheQueue(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	k := keeper(t, database)
	s := opened(t, database, Config{})
	q := queuesOf(t, s)
	defer q.Close(t.Context())
	for range 2 { // the second time the keeper remembers the record
		if _, err := q.Join(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		l, err := k.TryAcquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// If the process at the head of the queue runs but does not claim, the next waiter passes it over.
func TestHeadThatDoesNotClaimIsPassedOver(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	holder, k := keeper(t, database, leasekeeper.WithHolder("a")), keeper(t, database, leasekeeper.WithHolder("b"))
	l, err := holder.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	paused := queuesOf(t, opened(t, database, Config{}))
	defer paused.Close(t.Context())
	head, err := paused.Join(t.Context(), "x")
	if err != nil || head.Ahead != 0 {
		t.Fatalf("%+v, %v", head, err)
	}
	taken, cancel := acquiring(t, k, "x")
	defer cancel()
	until(t, "the other has a ticket", func() bool { return tickets(t, database) == 2 })
	released := time.Now()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if <-taken == nil {
		t.Fatal("the name was not taken")
	}
	if took := time.Since(released); took < 200*time.Millisecond {
		t.Errorf("the head was passed over after %v", took)
	}
	// The paused process then finds that it has no ticket.
	if standings, err := paused.Look(t.Context(), claim.Look{For: time.Millisecond}); err != nil || len(standings) != 0 {
		t.Errorf("%+v, %v", standings, err)
	}
}

// Tickets of processes that ended before their claim delay a waiter no longer than a single head may, however many there
// are.
func TestTicketsOfEndedProcessesAreDeleted(t *testing.T) {
	const dead = 20
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{})
	var ends []claim.Queues
	for range dead {
		q := queuesOf(t, s)
		if _, err := q.Join(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, q)
	}
	k := keeper(t, database)
	alive := queuesOf(t, s)
	defer alive.Close(t.Context())
	if _, err := alive.Join(t.Context(), "y"); err != nil {
		t.Fatal(err)
	}
	for _, q := range ends {
		closeConn(t.Context(), q.(*queues).conn) // as the kernel does when a process dies
	}
	began := time.Now()
	l, err := k.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > dead*250*time.Millisecond {
		t.Errorf("acquiring took %[2]v: the waiter waited for each of %[1]d ended processes", dead, took)
	}
	until(t, "only the ticket of the running process is left", func() bool { return tickets(t, database) == 1 })
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Tickets for a name without other waiters are deleted by the next process that waits for any name.
	q := queuesOf(t, s)
	if _, err := q.Join(t.Context(), "z"); err != nil {
		t.Fatal(err)
	}
	closeConn(t.Context(), q.(*queues).conn)
	until(t, "the ticket of the ended process is deleted", func() bool {
		q := queuesOf(t, s)
		defer q.Close(t.Context())
		return tickets(t, database) == 1
	})
}

// A cancelled waiter leaves no ticket.
func TestCancelledWaiterLeavesNoTicket(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	holder, k := keeper(t, database, leasekeeper.WithHolder("a")), keeper(t, database, leasekeeper.WithHolder("b"))
	l, err := holder.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	taken, cancel := acquiring(t, k, "x")
	until(t, "it has a ticket", func() bool { return tickets(t, database) == 1 })
	cancel()
	if l := <-taken; l != nil {
		t.Error("a cancelled waiter got a held name")
	}
	until(t, "it has none", func() bool { return tickets(t, database) == 0 })
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Waiting does not write the record: observers count the holder's time from its last op.
func TestWaitingDoesNotTouchTheRecord(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{})
	_, err := client(t, database).Claim(t.Context(), claim.Request{Name: "x", ID: backend.ID{1}, Holder: backend.Holder{ID: "a"}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Get(t.Context(), "x")
	if err != nil || before.Waiting {
		t.Fatalf("%+v, %v", before, err)
	}
	var cancels []func()
	for i := range 3 {
		_, cancel := acquiring(t, keeper(t, database, leasekeeper.WithHolder(fmt.Sprint("w", i))), "x")
		cancels = append(cancels, cancel)
	}
	until(t, "all wait", func() bool { return tickets(t, database) == 3 })
	time.Sleep(100 * time.Millisecond)
	if f, err := s.Get(t.Context(), "x"); err != nil || f.Record.Op != before.Record.Op || !f.Waiting {
		t.Errorf("%+v, %v", f, err)
	}
	for _, cancel := range cancels {
		cancel()
	}
}

// A process waits for any number of names on one connection, and gets each name when it is released.
func TestWaitingTakesOneConnection(t *testing.T) {
	const names = 30
	database := databases.PostgreSQL(t).Database(t) + "&pool_max_conns=2"
	holder, k := keeper(t, database, leasekeeper.WithHolder("a")), keeper(t, database, leasekeeper.WithHolder("b"))
	var held []*leasekeeper.Lease
	var waiting []chan *leasekeeper.Lease
	for i := range names {
		l, err := holder.Acquire(t.Context(), fmt.Sprint("x", i))
		if err != nil {
			t.Fatal(err)
		}
		taken, cancel := acquiring(t, k, fmt.Sprint("x", i))
		defer cancel()
		held, waiting = append(held, l), append(waiting, taken)
	}
	plain, _, _ := strings.Cut(database, "&pool")
	until(t, "it waits for all", func() bool { return tickets(t, plain) == names })
	if n := queryOne[int64](t, plain, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 1 {
		t.Errorf("%d sessions wait, want 1", n)
	}
	if n := queryOne[int64](t, plain, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"); n > 5 {
		t.Errorf("two processes, one of which waits, have %d connections; two pools have at most 4", n)
	}
	for i, l := range held {
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if <-waiting[i] == nil {
			t.Fatalf("x%d was not taken", i)
		}
	}
}

// A process that only waits has one connection after the idle ones are closed.
func TestLongWaiterHasOneConnection(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	holder := keeper(t, database, leasekeeper.WithHolder("a"))
	l, err := holder.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	taken, cancel := acquiring(t, keeper(t, database+"&application_name=waiter&pool_max_conn_idle_time=50ms&pool_health_check_period=50ms"), "x")
	defer cancel()
	until(t, "it has one connection, and a ticket", func() bool {
		return tickets(t, database) == 1 && queryOne[int64](t, database, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiter'") == 1
	})
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if <-taken == nil {
		t.Fatal("the name was not taken")
	}
}

// If the table of tickets is missing or may not be used, waiting processes poll.
func TestWaitingNeedsNoTickets(t *testing.T) {
	checkHandover := func(t *testing.T, url string, before func()) {
		t.Helper()
		a, b := keeper(t, url, leasekeeper.WithHolder("a")), keeper(t, url, leasekeeper.WithHolder("b"))
		before()
		l, err := a.Acquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		taken, cancel := acquiring(t, b, "x")
		defer cancel()
		time.Sleep(200 * time.Millisecond) // by then it waits
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := <-taken
		if next == nil {
			t.Fatal("the name was not taken")
		}
		if err := next.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l, err := a.Acquire(t.Context(), "x"); err != nil { // with the remembered record
			t.Error(err)
		} else if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	var clerks atomic.Int64 // for unique names: roles belong to the whole server
	prepare := func(t *testing.T) (database, clerk string) {
		database = databases.PostgreSQL(t).Database(t)
		s := opened(t, database, Config{})
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		clerk = user(t, database, "clerk"+fmt.Sprint(clerks.Add(1)))
		run(t, database, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO PUBLIC", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
		return database, clerk
	}
	t.Run("tables of an older version", func(t *testing.T) {
		database, clerk := prepare(t)
		run(t, database, "DROP TABLE leasekeeper_ticket")
		checkHandover(t, clerk, func() {})
		if queryOne[bool](t, database, "SELECT to_regclass('leasekeeper_ticket') IS NOT NULL") {
			t.Error("a user without the right created a table")
		}
	})
	t.Run("tables of an older version, user may create tables", func(t *testing.T) {
		database, _ := prepare(t)
		run(t, database, "DROP TABLE leasekeeper_ticket")
		s := opened(t, database, Config{})
		if !s.HasQueues() {
			t.Error("the table was not made")
		}
		queuesOf(t, s).Close(t.Context())
	})
	t.Run("no right", func(t *testing.T) {
		database, clerk := prepare(t)
		run(t, database, "REVOKE INSERT ON leasekeeper_ticket FROM PUBLIC")
		checkHandover(t, clerk, func() {})
	})
	t.Run("dropped while open", func(t *testing.T) {
		database, clerk := prepare(t)
		checkHandover(t, clerk, func() { run(t, database, "DROP TABLE leasekeeper_ticket") })
	})
	t.Run("right revoked while open", func(t *testing.T) {
		database, clerk := prepare(t)
		checkHandover(t, clerk, func() { run(t, database, "REVOKE ALL ON leasekeeper_ticket FROM PUBLIC") })
	})
	t.Run("a table of another kind", func(t *testing.T) {
		database, clerk := prepare(t)
		run(t, database, "DROP TABLE leasekeeper_ticket", "CREATE TABLE leasekeeper_ticket (what text)", "GRANT ALL ON leasekeeper_ticket TO PUBLIC")
		checkHandover(t, clerk, func() {})
	})
}

// A process behind pgbouncer has a ticket that other processes neither take for one of a dead process nor overtake. If it is
// stopped, they pass it over, later than others.
func TestProcessBehindPgBouncerWaitsInTheQueue(t *testing.T) {
	server := databases.PostgreSQL(t)
	database := server.Database(t)
	through := server.NewPgBouncer(t).Before(t, database)
	holder := keeper(t, database, leasekeeper.WithHolder("holder"))
	l, err := holder.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	first, cancel := acquiring(t, keeper(t, through, leasekeeper.WithHolder("first")), "x")
	defer cancel()
	until(t, "the first waits", func() bool { return tickets(t, database) == 1 })
	second, cancel := acquiring(t, keeper(t, database, leasekeeper.WithHolder("second")), "x")
	defer cancel()
	until(t, "the second waits", func() bool { return tickets(t, database) == 2 })
	third := opened(t, database, Config{})
	if err := third.Tickets(1).Pass(t.Context(), "x", 1<<40); err != nil { // which deletes the tickets of dead processes
		t.Fatal(err)
	}
	if err := third.Tickets(1).Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := tickets(t, database); n != 2 {
		t.Fatalf("%d tickets are left", n)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case l = <-first:
	case <-second:
		t.Fatal("the second had the name before the first")
	}
	stopped := third.PolledTickets(2)
	if _, err := stopped.JoinWith(t.Context(), "x", claim.Ticket{Priority: 1, Every: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	released := time.Now()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := <-second; next == nil || time.Since(released) < 600*time.Millisecond {
		t.Errorf("%v had the name after %v", next, time.Since(released))
	}
}

// When the connection of a waiting process is cut, it gets new tickets, and later the name.
func TestWaitersRejoinTheQueueAfterTheirConnectionIsCut(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	a, b := keeper(t, database, leasekeeper.WithHolder("a")), keeper(t, database, leasekeeper.WithHolder("b"))
	l, err := a.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	taken, cancel := acquiring(t, b, "x")
	defer cancel()
	until(t, "b waits", func() bool { return tickets(t, database) == 1 })
	door := queryOne[int64](t, database, "SELECT door FROM leasekeeper_ticket")
	run(t, database, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
	until(t, "b has another ticket", func() bool {
		return queryOne[int64](t, database, "SELECT coalesce(min(door), $1) FROM leasekeeper_ticket", door) != door
	})
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if <-taken == nil {
		t.Fatal("the name was not taken")
	}
}
