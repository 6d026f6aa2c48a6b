package script

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
)

// limit bounds one run of a script.
const limit = 4 * time.Minute

// lastLine is what every script prints at its end.
const lastLine = "done: all parts"

// Run runs a script in a folder until its end, and returns the lines that it prints.
func Run(t *testing.T, dir, program string, arguments ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || !strings.HasSuffix(string(out), lastLine+"\n") {
		t.Fatalf("%q: %v\n%s\n%s", cmd.Args, err, out, stderr.Bytes())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// Compare runs a script on a cluster of three of each kind, and fails if the lines differ that run returns.
func Compare(t *testing.T, run func(t *testing.T, c *cluster.Cluster) []string) {
	t.Helper()
	var mu sync.Mutex
	lines := make(map[cluster.Kind][]string)
	t.Cleanup(func() { equal(t, lines) }) // after the parallel tests
	for _, kind := range cluster.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			out := run(t, cluster.Start(t, kind, 3))
			mu.Lock()
			defer mu.Unlock()
			lines[kind] = out
		})
	}
}

// equal fails the test for each line in which the kinds differ. It does nothing if the lines of a kind are missing, because its
// test has failed or was not selected.
func equal(t *testing.T, lines map[cluster.Kind][]string) {
	if len(lines) < len(cluster.Kinds) {
		return
	}
	ours, theirs := lines[cluster.Leasekeeper], lines[cluster.Etcd]
	for i := range max(len(ours), len(theirs)) {
		a, b := at(ours, i), at(theirs, i)
		if a != b {
			t.Errorf("line %d\n   etcd: %s\n   ours: %s", i+1, b, a)
		}
	}
	if !t.Failed() {
		t.Logf("%d lines are equal", len(ours))
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(no line)"
}

// nothingLost is what a script of [Faults] prints at its end.
var nothingLost = []string{
	"acknowledged writes that are missing: []",
	"the counter counts each acknowledged step once: True",
	"the key of the lease is there: True",
	"events out of order: []",
	"the watcher saw each write in order: True",
	"the lock was taken: True",
	"the lock was taken: True",
	lastLine,
}

// Faults is a running script whose workers write, count by transactions, keep a lease alive, watch, and take a lock in turns.
// It takes orders on its standard input: "progress" prints a line once each worker has done more since, and "end" prints what
// was lost.
type Faults struct {
	t      *testing.T
	orders io.WriteCloser
	lines  chan string // what it prints; closed at its end
}

// StartFaults starts a script in a folder. It ends with the test.
func StartFaults(t *testing.T, dir, program string, arguments ...string) *Faults {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	orders, err1 := cmd.StdinPipe()
	output, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &Faults{t: t, orders: orders, lines: make(chan string, 100)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(s.lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			s.lines <- scanner.Text()
		}
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("standard error of the script:\n%s", stderr.Bytes())
		}
	})
	return s
}

// Outlive kills the cluster's leader several times, and replaces each member once, and waits for progress after each step.
// Then it ends the script, which must have lost nothing.
func (s *Faults) Outlive(c *cluster.Cluster, leaderKills int) {
	s.t.Helper()
	s.progress()
	for range leaderKills {
		killed := c.KillLeader()
		c.Leader()
		s.progress()
		c.Restart(killed)
		s.progress()
	}
	leader := c.Leader()
	c.ReplaceMember(leader)
	s.progress()
	for _, m := range c.Members() {
		if m != leader {
			c.ReplaceMember(m)
			s.progress()
		}
	}
	s.end()
}

// progress waits until each worker has done something more.
func (s *Faults) progress() {
	s.t.Helper()
	fmt.Fprintln(s.orders, "progress")
	line, ok := <-s.lines
	if !ok || !strings.HasPrefix(line, "progress: ") {
		s.t.Fatalf("the script prints: %s", line)
	}
	s.t.Log(line)
}

// end ends the script, which says what was lost.
func (s *Faults) end() {
	s.t.Helper()
	fmt.Fprintln(s.orders, "end")
	var got []string
	for line := range s.lines {
		got = append(got, line)
	}
	if !slices.Equal(got, nothingLost) {
		s.t.Errorf("the script prints:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(nothingLost, "\n"))
	}
}
