package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// memberCommand is the first argument of a process of a crowd.
const memberCommand = "crowd-member"

// crowdStart bounds how long the processes of a crowd may take to open the database.
const crowdStart = 2 * time.Minute

// A crowd is a number of processes that want one name, with a number of waiters in each.
type crowd struct{ processes, waiters int }

func (c crowd) String() string {
	if c.waiters == 1 {
		return fmt.Sprintf("a crowd of %d processes on one name", c.processes)
	}
	return fmt.Sprintf("a crowd of %d waiters in %d processes on one name", c.processes*c.waiters, c.processes)
}

// turn is one tenure of a waiter. Its times are in nanoseconds of the wall clock, which all processes share.
type turn struct {
	Waiter int    // of all processes
	Token  uint64 // rises with each change of the owner
	// Asked is when the waiter asked for the name, Held when it had it, and Released when it began to release it.
	Asked, Held, Released int64
}

// memberProcess is a process of the crowd, as its parent sees it.
type memberProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// inCrowd measures how a name goes round in a crowd of real processes that hold it for 5 ms each.
func inCrowd(c crowd, goals bool) func(context.Context, way, site, size) ([]figure, error) {
	return func(ctx context.Context, w way, at site, z size) ([]figure, error) {
		if w.store == nil {
			return nil, nil
		}
		members, err := startCrowd(ctx, c, w.store(at.place))
		defer endAll(members)
		if err != nil {
			return nil, err
		}
		// All must have had a turn before it counts, and several while it does.
		lap := time.Duration(c.processes*c.waiters) * 10 * time.Millisecond
		warm, span := max(z.warm, 2*time.Second+lap), max(z.span, 10*time.Second, 6*lap)
		if z.span < time.Second {
			warm, span = 2*time.Second, 4*time.Second
		}
		counts := newDatabaseCounter(ctx, at.place)
		defer counts.close()
		var read []databaseCount
		from, to, err := letRun(ctx, members, warm, span, func() { read = append(read, counts.read(ctx)) })
		if err != nil {
			return nil, err
		}
		all, err := allTurns(members)
		if err != nil {
			return nil, err
		}
		figures, err := crowdFigures(all, c.processes*c.waiters, from, to, goals)
		if err != nil || counts.conn == nil {
			return figures, errors.Join(err, counts.err)
		}
		before, after := read[0], read[1]
		tenures := float64(heldBetween(all, from, to))
		transactions := figure{name: "transactions for each tenure", unit: "", value: float64(after.transactions-before.transactions) / max(1, tenures)}
		if goals {
			transactions.goal = "6"
		}
		figures = append(figures, transactions, figure{name: "connections", unit: "", value: float64(after.connections)})
		endAll(members)
		limits, err := c.limits(ctx, at.place, z)
		return append(figures, limits...), errors.Join(err, counts.err)
	}
}

// letRun has processes begin, and calls count when what they do begins to count and when it no longer does.
func letRun(ctx context.Context, members []*memberProcess, warm, span time.Duration, count func()) (from, to time.Time, err error) {
	begin := time.Now().Add(100 * time.Millisecond)
	for _, m := range members {
		if _, err := fmt.Fprintln(m.in, begin.UnixNano(), begin.Add(warm+span+time.Second).UnixNano()); err != nil {
			return from, to, err
		}
	}
	pause(ctx, time.Until(begin.Add(warm)))
	from = time.Now()
	count()
	pause(ctx, time.Until(begin.Add(warm+span)))
	to = time.Now()
	count()
	return from, to, nil
}

// allTurns reads what the processes print at their end.
func allTurns(members []*memberProcess) (all []turn, err error) {
	for _, m := range members {
		turns, err := m.turns()
		if err != nil {
			return nil, err
		}
		all = append(all, turns...)
	}
	return all, nil
}

func endAll(members []*memberProcess) {
	for _, m := range members {
		m.end()
	}
}

// startCrowd starts the processes of a crowd.
func startCrowd(ctx context.Context, c crowd, store string) ([]*memberProcess, error) {
	return startMembers(ctx, c.processes, func(i int, cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, memberCommand, store, strconv.Itoa(i*c.waiters), strconv.Itoa(c.waiters))
	})
}

// startMembers starts processes, which arrange makes different, and returns when all have opened the store.
func startMembers(ctx context.Context, processes int, arrange func(i int, cmd *exec.Cmd)) (members []*memberProcess, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for i := range processes {
		m := &memberProcess{cmd: exec.CommandContext(ctx, program)}
		arrange(i, m.cmd)
		m.cmd.Stderr = os.Stderr
		m.cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
		if m.in, err = m.cmd.StdinPipe(); err != nil {
			return members, err
		}
		out, err := m.cmd.StdoutPipe()
		if err != nil {
			return members, err
		}
		m.out = bufio.NewReader(out)
		if err := m.cmd.Start(); err != nil {
			return members, err
		}
		members = append(members, m)
	}
	limit := time.AfterFunc(crowdStart, func() {
		for _, m := range members {
			_ = m.cmd.Process.Kill()
		}
	})
	defer limit.Stop()
	for _, m := range members {
		if line, err := m.out.ReadString('\n'); err != nil || line != "ready\n" {
			return members, fmt.Errorf("a process of the crowd did not begin: %q, %w", line, cmp.Or(err, errors.New("that is not what it says")))
		}
	}
	return members, nil
}

func (m *memberProcess) turns() (turns []turn, err error) {
	err = json.NewDecoder(m.out).Decode(&turns)
	return turns, err
}

// end ends the process, which may have ended by itself.
func (m *memberProcess) end() {
	_ = m.in.Close()
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}

// heldBetween counts the tenures that began in a span.
func heldBetween(all []turn, from, to time.Time) (n int) {
	for _, t := range all {
		if t.Held >= from.UnixNano() && t.Held < to.UnixNano() {
			n++
		}
	}
	return n
}

func crowdFigures(all []turn, waiters int, from, to time.Time, goals bool) ([]figure, error) {
	slices.SortFunc(all, func(a, b turn) int { return cmp.Compare(a.Token, b.Token) })
	each := make([]int, waiters)
	tenures := 0
	var took []time.Duration
	for i, t := range all {
		if i > 0 && t.Held < all[i-1].Released {
			return nil, errShared
		}
		if t.Held < from.UnixNano() || t.Held >= to.UnixNano() {
			continue
		}
		tenures++
		each[t.Waiter]++
		if i > 0 && t.Asked < all[i-1].Released {
			took = append(took, time.Duration(t.Held-all[i-1].Released))
		}
	}
	if tenures == 0 || len(took) == 0 {
		return nil, errors.New("the name was never handed over")
	}
	mean := float64(tenures) / float64(waiters)
	goal := func(value string) string {
		if goals {
			return value
		}
		return ""
	}
	return []figure{
		{name: "tenures", unit: "1/s", value: float64(tenures) / to.Sub(from).Seconds(), goal: goal("120")},
		{name: "tenures of the unluckiest, of the mean", unit: "", value: float64(slices.Min(each)) / mean, goal: goal("0.5")},
		{name: "p50, from release called to acquire returned", unit: "ms", value: milliseconds(percentile(took, 50)), goal: goal("5")},
		{name: "p99, from release called to acquire returned", unit: "ms", value: milliseconds(percentile(took, 99))},
	}, nil
}

// A databaseCounter reads what PostgreSQL counts of a database, from another database of the server.
type databaseCounter struct {
	conn     *pgx.Conn // nil if it is no PostgreSQL
	database string
	err      error
}

type databaseCount struct{ transactions, connections int64 }

func newDatabaseCounter(ctx context.Context, place string) *databaseCounter {
	if !strings.HasPrefix(place, "postgres:") {
		return &databaseCounter{}
	}
	config, err := pgx.ParseConfig(place)
	if err != nil {
		return &databaseCounter{err: err}
	}
	c := &databaseCounter{database: config.Database}
	config.Database = "postgres"
	c.conn, c.err = pgx.ConnectConfig(ctx, config)
	return c
}

func (c *databaseCounter) read(ctx context.Context) (n databaseCount) {
	if c.conn == nil || c.err != nil {
		return n
	}
	c.err = c.conn.QueryRow(ctx, `SELECT xact_commit + xact_rollback, (SELECT count(*) FROM pg_stat_activity WHERE datname = $1)
		FROM pg_stat_database WHERE datname = $1`, c.database).Scan(&n.transactions, &n.connections)
	return n
}

func (c *databaseCounter) close() {
	if c.conn != nil {
		_ = c.conn.Close(context.Background())
	}
}

// crowdMain is the program of a process of a crowd or of a relay. It reports whether this process is one.
func crowdMain(ctx context.Context) bool {
	if len(os.Args) < 2 {
		return false
	}
	run := map[string]func(context.Context, []string, io.Reader, io.Writer) error{memberCommand: runMember, relayCommand: runRelay}[os.Args[1]]
	if run == nil {
		return false
	}
	if err := run(ctx, os.Args[2:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	return true
}

// runMember is a process of a crowd. It says that it is ready, reads when to begin and to end, and prints its turns.
func runMember(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("a process of a crowd needs a store, its first waiter and how many it has")
	}
	first, err := strconv.Atoi(args[1])
	waiters, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	backend, err := backend.Open(ctx, args[0])
	if err != nil {
		return err
	}
	defer backend.Close(context.WithoutCancel(ctx))
	keepers := make([]*leasekeeper.Keeper, waiters)
	for i := range keepers {
		if keepers[i], err = leasekeeper.New(shared{backend}, leasekeeper.WithTTL(lockTTL)); err != nil {
			return err
		}
		defer keepers[i].Shutdown(context.WithoutCancel(ctx))
	}
	ctx, cancel, err := waitForStart(ctx, in, out)
	if err != nil {
		return err
	}
	defer cancel()
	all := make([][]turn, waiters)
	failed := make([]error, waiters)
	var group sync.WaitGroup
	for i := range waiters {
		group.Go(func() { all[i], failed[i] = takeTurns(ctx, keepers[i], first+i) })
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(slices.Concat(all...))
}

// waitForStart says that a process is ready, and returns when it is to begin. The context ends when the process is to end.
func waitForStart(ctx context.Context, in io.Reader, out io.Writer) (context.Context, context.CancelFunc, error) {
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return nil, nil, err
	}
	var begin, end int64
	if _, err := fmt.Fscan(in, &begin, &end); err != nil {
		return nil, nil, err
	}
	time.Sleep(time.Until(time.Unix(0, begin)))
	ctx, cancel := context.WithDeadline(ctx, time.Unix(0, end))
	return ctx, cancel, nil
}

// keepFor returns after d, which is more than a millisecond. A sleep alone may take up to a millisecond longer in a process
// that does nothing else, which is as long as much of what is measured here.
func keepFor(d time.Duration) {
	end := time.Now().Add(d)
	time.Sleep(d - time.Millisecond)
	for time.Now().Before(end) {
		runtime.Gosched()
	}
}

// shared is a backend of several keepers, none of which closes it.
type shared struct{ backend.Backend }

func (shared) Close(context.Context) error { return nil }

// takeTurns acquires the name, holds it and releases it until the context ends.
func takeTurns(ctx context.Context, k *leasekeeper.Keeper, waiter int) (all []turn, err error) {
	for {
		t := turn{Waiter: waiter, Asked: time.Now().UnixNano()}
		l, err := k.Acquire(ctx, contendedName)
		if ctx.Err() != nil {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		t.Held, t.Token = time.Now().UnixNano(), uint64(l.Token())
		keepFor(holdFor)
		if err := l.Check(); err != nil {
			return nil, err
		}
		t.Released = time.Now().UnixNano()
		if err := l.Release(ctx); err != nil && ctx.Err() == nil {
			return nil, err
		}
		all = append(all, t)
	}
}
