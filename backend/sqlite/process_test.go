package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// countsIn is the environment variable that names the file in which a child of the test counts.
const countsIn = "LEASEKEEPER_TEST_COUNTS_IN"

// children are the tasks of children of a test, by the variable of their environment that names the file.
var children = map[string]func(path string) error{countsIn: count}

func TestMain(m *testing.M) {
	for variable, does := range children { // order: only one is set
		if path := os.Getenv(variable); path != "" {
			if err := does(path); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(m.Run())
}

// count adds one to the token of a record, again and again, and prints each success, until it is killed or its
// standard input is closed.
func count(path string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s, err := Open(ctx, path, Config{})
	if ctx.Err() != nil { // the input was closed before it began
		return nil
	}
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		f, err := s.Get(ctx, "x")
		if err != nil {
			continue
		}
		done, err := s.Swap(ctx, claim.Swap{Old: f.Record.Op, Record: record("x", f.Record.Token+1), Owner: true})
		if err == nil && done {
			fmt.Println(f.Record.Token + 1)
		}
	}
	return nil
}

// tally is what was acknowledged to all children.
type tally struct {
	mu     sync.Mutex
	tokens map[backend.Token]int
}

// read calls begun after the first line.
func (a *tally) read(from io.Reader, begun func()) {
	for lines, first := bufio.NewScanner(from), true; lines.Scan(); first = false {
		if first {
			begun()
		}
		var token backend.Token
		if _, err := fmt.Sscan(lines.Text(), &token); err == nil {
			a.mu.Lock()
			a.tokens[token]++
			a.mu.Unlock()
		}
	}
}

// Several processes write to one record while others of them are killed: no write is acknowledged twice, and no
// acknowledged write is lost.
func TestKilledProcessesLoseNoAcknowledgedWrite(t *testing.T) {
	path := newPath(t)
	s := opened(t, path, Config{})
	acknowledged := &tally{tokens: make(map[backend.Token]int)}
	var all sync.WaitGroup
	const kills, processes = 5, 3
	for i := range processes {
		all.Go(func() {
			for n := range kills + 1 {
				child := exec.Command(os.Args[0])
				child.Env = append(os.Environ(), countsIn+"="+path)
				child.Stderr = os.Stderr
				stdin, err := child.StdinPipe()
				if err != nil {
					t.Error(err)
					return
				}
				stdout, err := child.StdoutPipe()
				if err == nil {
					err = child.Start()
				}
				if err != nil {
					t.Error(err)
					return
				}
				last := n == kills
				var timer *time.Timer
				acknowledged.read(stdout, func() { // a busy machine takes long to start a child
					timer = time.AfterFunc(rand.N(150*time.Millisecond), func() {
						if last {
							_ = stdin.Close()
						} else {
							_ = child.Process.Kill()
						}
					})
				})
				if timer != nil {
					timer.Stop()
				}
				if err := child.Wait(); last && err != nil {
					t.Errorf("process %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	f, err := s.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	for token, times := range acknowledged.tokens { // order: each is checked by itself
		if times > 1 || token > f.Record.Token {
			t.Errorf("token %d was acknowledged %d times, and the last is %d", token, times, f.Record.Token)
		}
	}
	// A child that is killed between a write and its report reports nothing.
	silent := int(f.Record.Token) - len(acknowledged.tokens)
	if silent < 0 || silent > processes*(kills+1) || len(acknowledged.tokens) < 20 {
		t.Errorf("%d writes were acknowledged, and %d were done", len(acknowledged.tokens), f.Record.Token)
	}
	var healthy string
	if err := s.file.db.QueryRow("PRAGMA integrity_check").Scan(&healthy); err != nil || healthy != "ok" {
		t.Error(healthy, err)
	}
}

// hints listens in a store of its own, until the test ends.
func hints(t *testing.T, path string) <-chan string {
	t.Helper()
	s := opened(t, path, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	names := make(chan string, 100)
	var all sync.WaitGroup
	all.Go(func() {
		_ = s.Listen(ctx, func(name string) { names <- name })
	})
	t.Cleanup(func() { cancel(); all.Wait() })
	<-names // it listens
	return names
}

// A listener usually learns of a change of owner within 50 ms, and nothing of renewals.
func TestListenHearsOwnersChange(t *testing.T) {
	path := newPath(t)
	names := hints(t, path)
	s := opened(t, path, Config{})
	last := mustSwap(t, s, claim.Op{}, record("x", 1))
	<-names
	late := 0
	const rounds = 20
	for i := range rounds {
		last = mustSwap(t, s, last.Op, record("x", backend.Token(i+2)))
		began := time.Now()
		select {
		case <-names:
		case <-time.After(10 * time.Second):
			t.Fatal("nothing was heard")
		}
		if time.Since(began) > 50*time.Millisecond {
			late++
		}
	}
	if late == rounds { // as it would be with a longer poll, however idle the machine is
		t.Errorf("each of %d was heard after more than 50 ms", rounds)
	}
	for range 10 {
		renewed := last
		renewed.Op = claim.NewOp()
		if done, err := s.Swap(t.Context(), claim.Swap{Old: last.Op, Record: renewed}); !done || err != nil {
			t.Fatal(done, err)
		}
		last = renewed
		time.Sleep(DefaultPoll)
	}
	select {
	case name := <-names:
		t.Errorf("a renewal was reported as a change of owner of %q", name)
	case <-time.After(4 * DefaultPoll):
	}
}
