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

// measureRelay shows what a crowd could reach at most on this machine: the same number of processes hold the same name, for
// as long, and there is no lease logic at all. A tenure takes two commits of one row, and the process that has released
// the row wakes the next one through a pipe. So nobody looks for a free name, and nobody waits in a queue of the store.
func measureRelay(ctx context.Context, place string, processes int, z size) ([]figure, error) {
	if err := makeRelayTable(ctx, place); err != nil {
		return nil, err
	}
	members, err := startRelay(ctx, place, processes)
	defer endAll(members)
	if err != nil {
		return nil, err
	}
	warm, span := relaySpans(z)
	from, to, err := letRun(ctx, members, warm, span, func() {})
	if err != nil {
		return nil, err
	}
	all, err := allTurns(members)
	if err != nil {
		return nil, err
	}
	figures, err := crowdFigures(all, processes, from, to, false)
	if err != nil {
		return nil, err
	}
	const rate, p50 = 0, 2
	figures[rate].name, figures[p50].name = "limit: tenures with nothing but the two commits", "limit: p50 with nothing but the two commits"
	return []figure{figures[rate], figures[p50]}, nil
}

// relaySpans are shorter than those of a crowd: nobody has to have had a turn.
func relaySpans(z size) (warm, span time.Duration) {
	if z.span < time.Second {
		return time.Second, 2 * time.Second
	}
	return 2 * time.Second, 10 * time.Second
}

func makeRelayTable(ctx context.Context, place string) error {
	conn, err := pgx.Connect(ctx, place)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `CREATE TABLE relay (name text PRIMARY KEY, holder text NOT NULL, token bigint NOT NULL) WITH (fillfactor = 70);
		INSERT INTO relay VALUES ('`+contendedName+`', '', 0)`, pgx.QueryExecModeSimpleProtocol)
	return err
}

// startRelay starts the processes in a ring of pipes.
func startRelay(ctx context.Context, place string, processes int) (members []*memberProcess, err error) {
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
		cmd.Args = append(cmd.Args, relayCommand, place, strconv.Itoa(i))
		cmd.ExtraFiles = []*os.File{ins[i], outs[i]}
	})
}

// runRelay is a process of a relay. The first has the baton to begin with.
func runRelay(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("a process of a relay needs a database and its number")
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
	baton, next := receive(os.NewFile(batonIn, "baton in")), os.NewFile(batonOut, "baton out")
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
			err = t.take(ctx, conn, args[1])
		}
		if ctx.Err() != nil {
			return json.NewEncoder(out).Encode(all)
		}
		if err != nil {
			return err
		}
		all = append(all, t)
		if _, err := next.Write([]byte{'.'}); err != nil {
			return err
		}
	}
}

// take is one tenure of a relay: a commit, the time that the name is held for, and another commit.
func (t *turn) take(ctx context.Context, conn *pgx.Conn, holder string) error {
	const write = `UPDATE relay SET holder = $2, token = token + 1 WHERE name = $1 AND (holder = '') = ($2 <> '') RETURNING token`
	var token int64
	if err := conn.QueryRow(ctx, write, contendedName, holder).Scan(&token); err != nil {
		return err
	}
	t.Held, t.Token = time.Now().UnixNano(), uint64(token)
	keepFor(holdFor)
	t.Released = time.Now().UnixNano()
	return conn.QueryRow(ctx, write, contendedName, "").Scan(&token)
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

// limitOf returns what a crowd could reach at most in this database, where that is known.
func (c crowd) limitOf(ctx context.Context, place string, z size) ([]figure, error) {
	if !strings.HasPrefix(place, "postgres:") {
		return nil, nil
	}
	figures, err := measureRelay(ctx, place, c.processes, z)
	if err != nil {
		return nil, fmt.Errorf("the limit: %w", err)
	}
	return figures, nil
}
