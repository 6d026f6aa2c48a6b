package clients

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

// attempts bounds how often a test runs that fails. Many of etcd's tests have time limits of a second, which a busy machine
// does not keep. A test that fails alone, too, has failed.
const attempts = 3

// Every test of the suites that the table does not exclude passes on Leasekeeper and on etcd.
func TestClientSuitesPass(t *testing.T) {
	tests := readTable(t)
	b := compiled(t, tests)
	tests.wantComplete(t, b)
	for _, kind := range cluster.Kinds {
		program := cluster.Program(t, kind)
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for _, name := range tests.suites() {
				t.Run(name, func(t *testing.T) {
					s := selection{b: b, kind: kind, program: program, suite: name, tests: tests.names(name, row.runs), rounds: 1}
					s.wantPass(t)
				})
			}
		})
	}
}

// Tests of locks, elections, sessions and leases pass while the leader is killed and members are replaced.
func TestClientSuitesPassWhileMembersFail(t *testing.T) {
	tests := readTable(t)
	b := compiled(t, tests)
	wanted := func(r row) bool { return r.faults && r.runs() }
	for _, c := range []struct {
		kind   cluster.Kind
		suite  string
		rounds int // all rounds share a cluster in suite concurrency, where a round takes a part of a second
	}{
		{cluster.Leasekeeper, "concurrency", 40},
		{cluster.Leasekeeper, "lease", 1}, // etcd needs up to a minute for a test of these, and some fail
		{cluster.Etcd, "concurrency", 3},
	} {
		if c.kind == cluster.Etcd && !all() {
			continue // it says nothing about Leasekeeper
		}
		program := cluster.Program(t, c.kind)
		t.Run(fmt.Sprintf("%s/%s", c.kind, c.suite), func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "faults")
			s := selection{b: b, kind: c.kind, program: program, suite: c.suite, tests: tests.names(c.suite, wanted), rounds: c.rounds, faults: log}
			for range attempts {
				s.wantPass(t)
				if killed, replaced := faultsIn(t, log); killed > 0 && replaced > 0 {
					t.Logf("%d leaders were killed and came back, and %d were replaced", killed, replaced)
					return
				}
			}
			t.Errorf("in %d attempts, not one leader was killed and one replaced", attempts)
		})
	}
}

// faultsIn returns the numbers of leaders that were killed and came back, and that were replaced.
func faultsIn(t *testing.T, log string) (killed, replaced int) {
	t.Helper()
	data, err := os.ReadFile(log)
	check(t, err)
	return strings.Count(string(data), "killed"), strings.Count(string(data), "replaced")
}

// selection is a number of tests of a suite that run on one kind of server.
type selection struct {
	b       binaries
	kind    cluster.Kind
	program string
	suite   string
	tests   []string
	rounds  int
	faults  string // the file in which faults are noted; "" for none
}

// wantPass runs the tests, and those that do not pass again. It fails for each that does not pass in any attempt.
func (s selection) wantPass(t *testing.T) {
	t.Helper()
	if len(s.tests) == 0 {
		t.Fatalf("no test of suite %s is wanted", s.suite)
	}
	began := time.Now()
	outcomes := s.run(t)
	for _, name := range s.tests {
		for attempt := 2; outcomes[name].Action != "pass" && attempt <= attempts; attempt++ {
			t.Logf("%s: %v, attempt %d follows\n%.2000s", name, outcomes[name], attempt, outcomes[name].Output)
			alone := s
			alone.tests = []string{name}
			outcomes[name] = alone.run(t)[name]
		}
		if o := outcomes[name]; o.Action != "pass" {
			t.Errorf("%s of suite %s: %v on %s\n%s", name, s.suite, o, s.kind, o.Output)
		}
	}
	t.Logf("%d tests in %v", len(s.tests), time.Since(began).Round(time.Second))
}

// run runs the tests once.
func (s selection) run(t *testing.T) map[string]suite.Outcome {
	t.Helper()
	cmd := s.b.command(s.suite, "-test.v=test2json", "-test.timeout=10m",
		fmt.Sprintf("-test.count=%d", s.rounds), "-test.run=^("+strings.Join(s.tests, "|")+")$")
	cmd.Env = append(os.Environ(), "SUITE_KIND="+string(s.kind), "SUITE_PROGRAM="+s.program, "SUITE_FAULTS="+s.faults)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	// A test binary that ends itself leaves its servers behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.Output()
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	convert := exec.Command("go", "tool", "test2json")
	convert.Stdin = bytes.NewReader(stdout)
	events, converted := suite.Output(convert)
	check(t, converted)
	outcomes := suite.Read([]byte(events))
	if err != nil {
		said := stderr.String()
		t.Logf("suite %s on %s: %v\n%s", s.suite, s.kind, err, said[max(0, len(said)-4<<10):])
	}
	return outcomes
}
