package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// relayCommand is the first argument of a process of a relay.
const relayCommand = "crowd-relay"

// The descriptors of the pipes of a process of a relay: the baton comes in on one, and goes out on the other.
const (
	batonIn = 3 + iota
	batonOut
)

// A relayKind is how the next process of a relay finds out that the name is free.
type relayKind string

const (
	// woken is by the process that has released it, through a pipe.
	woken relayKind = "woken"
	// looked is by a statement that looks every millisecond within the server, as the head of a queue does.
	looked relayKind = "looked"
	// taken is by the same statement, which also takes the name.
	taken relayKind = "taken"
)

// relayKinds are those that are measured, with the names of their rows.
var relayKinds = []struct {
	by   relayKind
	name string
}{
	{woken, "limit: the two commits alone"},
	{looked, "limit: the server looks"},
	{taken, "limit: the server looks and takes"},
}

// measureRelay shows what a crowd could reach at most on this machine: the same number of processes hold a name for as
// long, in a ring, and there is no lease logic at all. A tenure takes two commits of one row.
func measureRelay(ctx context.Context, place string, processes int, by relayKind, z size) (rate, p50 figure, err error) {
	if err := makeRelayTable(ctx, place, by); err != nil {
		return rate, p50, err
	}
	members, err := startRelay(ctx, place, processes, by)
	defer endAll(members)
	if err != nil {
		return rate, p50, err
	}
	warm, span := relaySpans(z)
	from, to, err := letRun(ctx, members, warm, span, func() {})
	if err != nil {
		return rate, p50, err
	}
	all, err := allTurns(members)
	if err != nil {
		return rate, p50, err
	}
	figures, err := crowdFigures(all, processes, from, to, false)
	if err != nil {
		return rate, p50, err
	}
	return figures[0], figures[2], nil
}

// relaySpans are shorter than those of a crowd: nobody has to have had a turn.
func relaySpans(z size) (warm, span time.Duration) {
	if z.span < time.Second {
		return time.Second, 2 * time.Second
	}
	return 2 * time.Second, 10 * time.Second
}

func makeRelayTable(ctx context.Context, place string, by relayKind) error {
	conn, err := pgx.Connect(ctx, place)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	table := "relay_" + string(by)
	_, err = conn.Exec(ctx, `CREATE TABLE `+table+` (name text PRIMARY KEY, holder text NOT NULL, token bigint NOT NULL) WITH (fillfactor = 70);
		INSERT INTO `+table+` VALUES ('`+contendedName+`', '', 0)`, pgx.QueryExecModeSimpleProtocol)
	return err
}

// startRelay starts the processes in a ring of pipes.
func startRelay(ctx context.Context, place string, processes int, by relayKind) (members []*memberProcess, err error) {
	var ends []*os.File // of the pipes, which the processes have then
	defer func() {
		for _, f := range ends {
			_ = f.Close()
		}
	}()
	ins, outs := make([]*os.File, processes), make([]*os.File, processes)
	for i := range processes {
		in, out, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		ins[i], outs[(i+processes-1)%processes] = in, out
		ends = append(ends, in, out)
	}
	return startMembers(ctx, processes, func(i int, cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, relayCommand, place, strconv.Itoa(i), string(by))
		cmd.ExtraFiles = []*os.File{ins[i], outs[i]}
	})
}

// runRelay is a process of a relay. The first has the baton to begin with.
func runRelay(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("a process of a relay needs a database, its number, and how it is handed the name")
	}
	number, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, args[0])
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ctx, cancel, err := waitForStart(ctx, in, out)
	if err != nil {
		return err
	}
	defer cancel()
	r := runner{conn: conn, holder: args[1], by: relayKind(args[2]), next: os.NewFile(batonOut, "baton out")}
	baton := receive(os.NewFile(batonIn, "baton in"))
	all := []turn{}
	for has := number == 0; ; has = false {
		t := turn{Waiter: number, Asked: time.Now().UnixNano()}
		if !has {
			select {
			case <-baton:
			case <-ctx.Done():
			}
		}
		if ctx.Err() == nil {
			err = r.take(ctx, &t)
		}
		if ctx.Err() != nil || errors.Is(err, syscall.EPIPE) { // the next process has seen the end a little earlier
			return json.NewEncoder(out).Encode(all)
		}
		if err != nil {
			return err
		}
		all = append(all, t)
	}
}

// A runner is a process of a relay.
type runner struct {
	conn   *pgx.Conn
	holder string
	by     relayKind
	next   io.Writer // to the next process
}

// relayLooks bounds how often a statement looks, which goes on for a while when its process has ended.
const relayLooks = 5000

// The statements of a relay. %[1]s is the kind, which each has a table for, and %[2]s the holder.
const (
	relayTake    = `UPDATE relay_%[1]s SET holder = '%[2]s', token = token + 1 WHERE name = $1 AND holder = '' RETURNING token`
	relayRelease = `UPDATE relay_%[1]s SET holder = '', token = token + 1 WHERE name = $1 AND holder = '%[2]s' RETURNING token`
	relayToken   = `SELECT token FROM relay_%[1]s WHERE name = $1 AND holder = '%[2]s'`
	relayLook    = `DO $$ BEGIN
		FOR i IN 1 .. %[3]d LOOP
			EXIT WHEN EXISTS (SELECT FROM relay_%[1]s WHERE name = '%[4]s' AND holder = '');
			PERFORM pg_sleep(0.0005);
		END LOOP;
	END $$`
	relayLookAndTake = `DO $$ BEGIN
		FOR i IN 1 .. %[3]d LOOP
			UPDATE relay_%[1]s SET holder = '%[2]s', token = token + 1 WHERE name = '%[4]s' AND holder = '';
			EXIT WHEN FOUND;
			PERFORM pg_sleep(0.0005);
		END LOOP;
	END $$`
)

// fill makes a statement of the runner.
func (r *runner) fill(statement string) string {
	return strings.NewReplacer("%[1]s", string(r.by), "%[2]s", r.holder, "%[3]d", strconv.Itoa(relayLooks), "%[4]s", contendedName).Replace(statement)
}

// take is one tenure of a relay: a commit, the time that the name is held for, and another commit. Where nobody is woken
// by the release, the next process begins to look when the tenure begins, as the next head of a queue does.
func (r *runner) take(ctx context.Context, t *turn) (err error) {
	var token int64
	switch r.by {
	case looked:
		if _, err = r.conn.Exec(ctx, r.fill(relayLook)); err == nil {
			err = r.conn.QueryRow(ctx, r.fill(relayTake), contendedName).Scan(&token)
		}
	case taken:
		var batch pgx.Batch
		batch.Queue(r.fill(relayLookAndTake))
		batch.Queue(r.fill(relayToken), contendedName).QueryRow(func(row pgx.Row) error { return row.Scan(&token) })
		err = r.conn.SendBatch(ctx, &batch).Close()
	default:
		err = r.conn.QueryRow(ctx, r.fill(relayTake), contendedName).Scan(&token)
	}
	if err != nil {
		return err
	}
	t.Held, t.Token = time.Now().UnixNano(), uint64(token)
	if r.by != woken {
		if _, err := r.next.Write([]byte{'.'}); err != nil {
			return err
		}
	}
	keepFor(holdFor)
	t.Released = time.Now().UnixNano()
	if err := r.conn.QueryRow(ctx, r.fill(relayRelease), contendedName).Scan(&token); err != nil || r.by != woken {
		return err
	}
	_, err = r.next.Write([]byte{'.'})
	return err
}

// receive returns a channel of the batons that come in through a pipe, until that is closed.
func receive(pipe io.Reader) <-chan struct{} {
	batons := make(chan struct{})
	go func() {
		var b [1]byte
		for {
			if _, err := pipe.Read(b[:]); err != nil {
				return
			}
			batons <- struct{}{}
		}
	}()
	return batons
}

// limits are what a crowd could reach at most in this database, where that is known.
func (c crowd) limits(ctx context.Context, place string, z size) (all []figure, err error) {
	if !strings.HasPrefix(place, "postgres:") {
		return nil, nil
	}
	for _, h := range relayKinds {
		rate, p50, err := measureRelay(ctx, place, c.processes, h.by, z)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.name, err)
		}
		rate.name, p50.name = h.name+", rate", h.name+", p50"
		all = append(all, rate, p50)
	}
	return all, nil
}
