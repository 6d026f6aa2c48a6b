package python

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
)

const (
	// interpreter is Debian's: only that one finds Debian's packages.
	interpreter = "/usr/bin/python3"
	packages    = "/usr/lib/python3/dist-packages/"

	// scriptLimit bounds one run of a script.
	scriptLimit = 4 * time.Minute
)

var leaderKills = flag.Int("leaderkills", 2, "how often the cluster's leader is killed while a script works")

// libraries are the packages, by the names that Debian and LEASEKEEPER_TEST_REQUIRE have for them.
var libraries = map[string]string{"python3-etcd3": "etcd3", "python3-etcd3gw": "etcd3gw"}

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// Each answer that a library gets from Leasekeeper is the one that it gets from etcd.
func TestPythonClientsGetEtcdsAnswers(t *testing.T) {
	for need, library := range libraries {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			cluster.Need(t, need, interpreter, packages+library+"/client.py")
			var mu sync.Mutex
			lines := make(map[cluster.Kind][]string)
			t.Cleanup(func() { compare(t, lines) }) // after the parallel tests
			for _, kind := range cluster.Kinds {
				t.Run(string(kind), func(t *testing.T) {
					t.Parallel()
					c := cluster.Start(t, kind, 3)
					out := run(t, library+"_features.py", c.Leader().Endpoint(), t.TempDir())
					mu.Lock()
					defer mu.Unlock()
					lines[kind] = strings.Split(strings.TrimSpace(out), "\n")
				})
			}
		})
	}
}

// run runs a script and returns its output.
func run(t *testing.T, script string, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scriptLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, append([]string{"-I", filepath.Join("testdata", script)}, arguments...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || !strings.HasSuffix(string(out), "done: all parts\n") {
		t.Fatalf("%s: %v\n%s\n%s", script, err, out, stderr.Bytes())
	}
	return string(out)
}

// compare compares the lines of the two servers one by one.
func compare(t *testing.T, lines map[cluster.Kind][]string) {
	if len(lines) < 2 {
		return // a run has failed, or was not selected
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

// Programs with these libraries lose nothing while the leader is killed, several times, and each member is replaced.
func TestPythonClientsOutliveTheMembers(t *testing.T) {
	for need, library := range libraries {
		for _, kind := range cluster.Kinds {
			t.Run(library+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				cluster.Need(t, need, interpreter, packages+library+"/client.py")
				c := cluster.Start(t, kind, 3)
				s := startFaults(t, library, c.Endpoints())
				s.progress()
				for range *leaderKills {
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
			})
		}
	}
}

// nothingLost is what faults.py prints at its end.
var nothingLost = []string{
	"acknowledged writes that are missing: []",
	"the counter counts each acknowledged step once: True",
	"the key of the lease is there: True",
	"events out of order: []",
	"the watcher saw each write in order: True",
	"the lock was taken: True",
	"the lock was taken: True",
	"done: all parts",
}

// faults is a running faults.py.
type faults struct {
	t      *testing.T
	orders io.WriteCloser
	lines  chan string // what it prints; closed at its end
}

func startFaults(t *testing.T, library string, endpoints []string) *faults {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), scriptLimit)
	cmd := exec.CommandContext(ctx, interpreter, "faults.py", library, strings.Join(endpoints, ","))
	cmd.Dir = "testdata"
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
	s := &faults{t: t, orders: orders, lines: make(chan string, 100)}
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

// progress waits until each worker has done something more.
func (s *faults) progress() {
	s.t.Helper()
	fmt.Fprintln(s.orders, "progress")
	line, ok := <-s.lines
	if !ok || !strings.HasPrefix(line, "progress: ") {
		s.t.Fatalf("the script prints: %s", line)
	}
	s.t.Log(line)
}

// end ends the script, which says what was lost.
func (s *faults) end() {
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
