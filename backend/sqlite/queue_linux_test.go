package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// joinsIn is the environment variable that names the file in whose queue for "x" a child of the test adds a
// ticket.
const joinsIn = "LEASEKEEPER_TEST_JOINS_IN"

func init() { children[joinsIn] = joinAndWait }

// joinAndWait adds a ticket to a queue, prints that, and waits until it is killed or its standard input is
// closed.
func joinAndWait(path string) error {
	s, err := Open(context.Background(), path, Config{})
	if err != nil {
		return err
	}
	q, err := s.Queues(context.Background())
	if err == nil {
		_, err = q.Join(context.Background(), "x")
	}
	if err != nil {
		return err
	}
	fmt.Println("joined")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// joined starts such a child, which is killed when the test ends.
func joined(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), joinsIn+"="+path)
	child.Stderr = os.Stderr
	_, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = child.Process.Kill(), child.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "joined\n" {
		t.Fatalf("the child says %q: %v", line, err)
	}
	return child
}

// keeper returns a keeper with a store of its own, which counts as another process: each store has opened the
// file itself, and locks belong to the open file.
func keeper(t testing.TB, path, holder string) *leasekeeper.Keeper {
	t.Helper()
	k, err := leasekeeper.Open(t.Context(), "sqlite:"+path, leasekeeper.WithHolder(holder))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = k.Shutdown(ctx)
	})
	return k
}

// ticketsIn counts the tickets for x.
func ticketsIn(t testing.TB, s *Store) (n int) {
	t.Helper()
	f, err := openTickets(s.file.path+ticketSuffix, s.file.info)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.close() }()
	_, passed, err := f.counters(s.queueOf("x"))
	for from := passed + 1; err == nil; n++ {
		place, found, failed := f.first(s.queueOf("x"), from, math.MaxUint32)
		if !found {
			err = failed
			break
		}
		from = place + 1
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// until waits for a condition. If it never holds, the test does not end.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it never came to pass that " + what)
		}
	}
}

// acquiring acquires x in the background.
func acquiring(t testing.TB, k *leasekeeper.Keeper) (taken chan *leasekeeper.Lease, cancel func()) {
	ctx, cancel := context.WithCancel(t.Context())
	taken = make(chan *leasekeeper.Lease, 1)
	go func() {
		defer close(taken)
		l, err := k.Acquire(ctx, "x")
		if err == nil {
			taken <- l
		} else if ctx.Err() == nil {
			t.Errorf("acquire: %v", err)
		}
	}()
	return taken, cancel
}

func held(t testing.TB, k *leasekeeper.Keeper) *leasekeeper.Lease {
	t.Helper()
	l, err := k.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func released(t testing.TB, l *leasekeeper.Lease) {
	t.Helper()
	if l == nil {
		t.Fatal("the name was not acquired")
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Processes get the name in the order in which they began to wait, and one that releases it queues behind them.
func TestProcessesGetTheNameInTheirOrder(t *testing.T) {
	path := newPath(t)
	s := opened(t, path, Config{})
	first := keeper(t, path, "first")
	l := held(t, first)
	const waiters = 8
	var order [waiters]chan *leasekeeper.Lease
	for i := range waiters {
		var cancel func()
		order[i], cancel = acquiring(t, keeper(t, path, fmt.Sprint("w", i)))
		defer cancel()
		until(t, "the waiter has a ticket", func() bool { return ticketsIn(t, s) == i+1 })
	}
	released(t, l)
	again, cancel := acquiring(t, first)
	defer cancel()
	for i := range order {
		select {
		case l = <-order[i]:
		case <-again:
			t.Fatalf("the one that released it had it again before waiter %d", i)
		}
		for j := i + 1; j < waiters; j++ {
			if len(order[j]) > 0 {
				t.Errorf("waiter %d had it before %d released it", j, i)
			}
		}
		released(t, l)
	}
	released(t, <-again)
	until(t, "all tickets are gone", func() bool { return ticketsIn(t, s) == 0 })
}

// Processes that all claim the name again and again take turns.
func TestEveryWaitingProcessGetsItsTurn(t *testing.T) {
	const processes, rounds = 10, 6
	path := newPath(t)
	var turns [processes]atomic.Int64
	var all atomic.Int64
	var holder atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	var keepers [processes]*leasekeeper.Keeper
	for i := range keepers {
		keepers[i] = keeper(t, path, fmt.Sprint("p", i))
	}
	s := opened(t, path, Config{})
	l := held(t, keeper(t, path, "first"))
	for i, k := range keepers {
		group.Go(func() {
			for ctx.Err() == nil {
				l, err := k.Acquire(ctx, "x")
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				if !holder.CompareAndSwap(false, true) {
					t.Error("two hold the name")
				}
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
	until(t, "all have a ticket", func() bool { return ticketsIn(t, s) == processes })
	released(t, l)
	group.Wait()
	var counts []int64
	for i := range turns {
		counts = append(counts, turns[i].Load())
	}
	if least := slices.Min(counts); least < rounds/2 {
		t.Errorf("of %d tenures the processes had %v, and the unluckiest less than half of the mean", all.Load(), counts)
	}
}

// A process that is stopped with the first ticket is passed over, and notices when it continues. The ticket of
// a killed process is gone at once.
func TestStoppedHeadIsPassedOverAndADeadTicketIsGone(t *testing.T) {
	path := newPath(t)
	s := opened(t, path, Config{})
	l := held(t, keeper(t, path, "a"))
	stopped, dead := joined(t, path), joined(t, path)
	if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if n := ticketsIn(t, s); n != 2 {
		t.Errorf("%d tickets", n)
	}
	if err := dead.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "the ticket of the dead is gone", func() bool { return ticketsIn(t, s) == 1 })
	one, cancel := acquiring(t, keeper(t, path, "b"))
	defer cancel()
	until(t, "the other waits", func() bool { return ticketsIn(t, s) == 2 })
	began := time.Now()
	released(t, l)
	l = <-one
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("the head was passed over after %v", took)
	}
	released(t, l)
	// No process has to pass it over again. The new holder deletes its ticket, and those before it, in the background.
	until(t, "no ticket counts", func() bool { return ticketsIn(t, s) == 0 })
}

// A claim that does not wait takes a vacant name, even if other processes have tickets. A claim that waits
// leaves it to the head.
func TestClaimWithoutWaitTakesAVacantNameBeforeTheQueue(t *testing.T) {
	path := newPath(t)
	joined(t, path)
	k := keeper(t, path, "a")
	for range 2 { // the second time the keeper remembers the record
		l, err := k.TryAcquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		released(t, l)
	}
	s := opened(t, path, Config{})
	f, err := s.Get(t.Context(), "x")
	if err != nil || !f.Waiting {
		t.Fatalf("another process waits, and the store says %+v, %v", f, err)
	}
	w := claim.Swap{Old: f.Record.Op, Record: record("x", f.Record.Token+1), Owner: true, Alone: true}
	if done, err := s.Swap(t.Context(), w); done || err != nil {
		t.Errorf("a write that others' tickets forbid: %v, %v", done, err)
	}
	w.Alone = false
	if done, err := s.Swap(t.Context(), w); !done || err != nil {
		t.Errorf("the same for one who does not care: %v, %v", done, err)
	}
}

// Waiting writes nothing to the database: observers of the holder count from the record's op.
func TestWaitingWritesNothingToTheDatabase(t *testing.T) {
	path := newPath(t)
	s := opened(t, path, Config{})
	l := held(t, keeper(t, path, "a"))
	waiting, cancel := acquiring(t, keeper(t, path, "b"))
	until(t, "it waits", func() bool { return ticketsIn(t, s) == 1 })
	var before, after int64
	conn, err := s.file.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	version := func(to *int64) {
		if err := conn.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(to); err != nil {
			t.Fatal(err)
		}
	}
	f, err := s.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	version(&before)
	second, end := acquiring(t, keeper(t, path, "c"))
	until(t, "another one waits", func() bool { return ticketsIn(t, s) == 2 })
	end()
	<-second
	until(t, "it has given up", func() bool { return ticketsIn(t, s) == 1 })
	if now, err := s.Get(t.Context(), "x"); err != nil || now.Record.Op != f.Record.Op {
		t.Errorf("%+v, %v", now, err)
	}
	if version(&after); after != before {
		t.Error("the file was written")
	}
	cancel()
	<-waiting
	released(t, l)
}

// If the queue file cannot exist, waiters poll. Whatever lies in its place stays.
func TestWaitingWorksWithoutAQueueFile(t *testing.T) {
	for what, spoil := range map[string]func(path string) error{
		"a folder":        func(path string) error { return os.Mkdir(path, 0o700) },
		"a symbolic link": func(path string) error { return os.Symlink("/dev/null", path) },
		"a pipe":          func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		path := newPath(t)
		s := opened(t, path, Config{})
		if err := spoil(path + ticketSuffix); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Queues(t.Context()); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
		l := held(t, keeper(t, path, "a"))
		one, cancel := acquiring(t, keeper(t, path, "b"))
		defer cancel()
		two, cancel := acquiring(t, keeper(t, path, "c"))
		defer cancel()
		released(t, l)
		for range 2 {
			select {
			case l = <-one:
				one = nil
			case l = <-two:
				two = nil
			}
			released(t, l)
		}
	}
	memory := &Store{file: &file{}}
	if _, err := memory.Queues(t.Context()); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("a database without a file: %v", err)
	}
}

// A queue that is not emptied continues after its last place, and skips a place that another process holds.
func TestPlacesOfAQueueOnlyGrow(t *testing.T) {
	path := newPath(t) + ticketSuffix
	database, err := os.Stat(emptyFile(t, newPath(t)))
	if err != nil {
		t.Fatal(err)
	}
	var all []*ticketFile
	for range 3 {
		f, err := openTickets(path, database)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	const number = queueCount - 1
	take := func(f *ticketFile, want uint32) {
		t.Helper()
		if place, err := f.take(number); place != want || err != nil {
			t.Errorf("place %d, not %d: %v", place, want, err)
		}
	}
	take(all[0], 1)
	take(all[1], 2)
	if err := all[1].write(number, 0, 0); err != nil { // as if the second process had not written its place yet
		t.Fatal(err)
	}
	take(all[2], 3)
	if place, found, err := all[2].first(number, 1, math.MaxUint32); place != 1 || !found || err != nil {
		t.Errorf("the head is %d, %v, %v", place, found, err)
	}
	if err := errors.Join(all[0].unlockTicket(number, 1), all[2].passOver(number, 7), all[2].passOver(number, 5)); err != nil {
		t.Fatal(err)
	}
	if place, found, err := all[0].first(number, 1, math.MaxUint32); place != 2 || !found || err != nil {
		t.Errorf("the head is %d, %v, %v", place, found, err)
	}
	take(all[0], 8)
	if _, passed, err := all[1].counters(number); passed != 7 || err != nil {
		t.Errorf("passed is %d, %v", passed, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != database.Mode() {
		t.Errorf("the database is %v, and the file of the queues %v, %v", database.Mode(), info.Mode(), err)
	}
	// After many places a queue begins again, but not while any process waits.
	if err := all[0].write(number, 0, manyPlaces+1); err != nil {
		t.Fatal(err)
	}
	take(all[0], manyPlaces+2)
	if err := all[0].write(number, 0, math.MaxUint32); err != nil {
		t.Fatal(err)
	}
	if place, err := all[1].take(number); err == nil {
		t.Errorf("place %d was taken after the last", place)
	}
	for _, f := range all {
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
	}
	fresh, err := openTickets(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	take(fresh, 1)
	if err := fresh.close(); err != nil {
		t.Fatal(err)
	}
	if err := fresh.unlockTicket(number, 1); err == nil {
		t.Error("a file that was closed takes orders")
	}
	if _, err := openTickets(path+"x", nil); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}
