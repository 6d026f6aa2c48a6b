package suite

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
)

// Suite is a compiled test binary.
type Suite struct {
	Binary string // its path
	Dir    string // the directory in which it runs
	Flags  []string

	// Environment returns variables that name the program with etcd's flags.
	Environment func(program string) []string

	// Etcd is the path of the etcd with which Leasekeeper is compared; "" means that of the module conformance.
	Etcd string

	// Excluded are the tests that may end differently, with the reason.
	Excluded map[string]string
}

// Outcome is how a test of a suite ended.
type Outcome struct {
	Action string // pass, fail or skip; empty if the test did not run
	Output string
}

func (o Outcome) String() string {
	if o.Action == "" {
		return "absent"
	}
	return o.Action
}

// Compare runs the suite on etcd and on Leasekeeper. It fails the test for each test of the suite that ends differently,
// or that fails on both.
func Compare(t *testing.T, s Suite) {
	t.Helper()
	outcomes := make(map[cluster.Kind]map[string]Outcome)
	for _, kind := range cluster.Kinds {
		t.Run(string(kind), func(t *testing.T) { outcomes[kind] = s.run(t, kind) })
	}
	etcd, ours := outcomes[cluster.Etcd], outcomes[cluster.Leasekeeper]
	all := maps.Clone(etcd)
	maps.Copy(all, ours)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a, b := etcd[name], ours[name]
		if a.Action == b.Action && a.Action != "fail" {
			continue
		}
		if reason := s.Excluded[name]; reason != "" {
			t.Logf("%s: %s on etcd, %s on Leasekeeper; excluded: %s", name, a, b, reason)
			continue
		}
		t.Errorf("%s: %s on etcd, %s on Leasekeeper\n%s", name, a, b, b.Output)
	}
}

// run runs the tests of the suite on one kind of server.
func (s Suite) run(t *testing.T, kind cluster.Kind) map[string]Outcome {
	t.Helper()
	env, program := os.Environ(), s.Etcd
	switch {
	case kind == cluster.Leasekeeper:
		env = append(env, "SUITE_MEMBER="+cluster.Program(t, kind))
		program = cluster.Build(t, ".", "./etcd")
	case program == "":
		program = cluster.Program(t, kind)
	}
	cmd := exec.Command("go", append([]string{"tool", "test2json", s.Binary, "-test.v=test2json", "-test.timeout=25m"}, s.Flags...)...)
	cmd.Dir, cmd.Env = s.Dir, append(env, s.Environment(program)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	// A test binary that panics leaves its servers behind, on the ports that the next run needs.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	stdout, err := cmd.Output()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	outcomes := Read(stdout)
	if len(outcomes) == 0 {
		t.Fatalf("no test ran: %v\n%s%s", err, stdout, stderr.String())
	}
	count := make(map[string]int)
	for _, o := range outcomes {
		count[o.Action]++
	}
	t.Logf("%d tests passed, %d failed, %d were skipped, in %v", count["pass"], count["fail"], count["skip"], time.Since(began).Round(time.Second))
	return outcomes
}

// Read returns the outcomes of tests by name, from the events of test2json. A test that ran several times has failed if it
// failed once.
func Read(events []byte) map[string]Outcome {
	outcomes := make(map[string]Outcome)
	outputs := make(map[string]*strings.Builder)
	lines := bufio.NewScanner(bytes.NewReader(events))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.Test == "" {
			continue
		}
		if outputs[event.Test] == nil {
			outputs[event.Test] = &strings.Builder{}
		}
		switch event.Action {
		case "output":
			outputs[event.Test].WriteString(event.Output)
		case "pass", "fail", "skip":
			if outcomes[event.Test].Action != "fail" {
				outcomes[event.Test] = Outcome{event.Action, outputs[event.Test].String()}
			}
		}
	}
	return outcomes
}

// Output runs a command and returns what it prints, without the newline at the end. The error has what the command said.
func Output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// Need skips a test whose modules take minutes to compile, unless the environment variable LEASEKEEPER_TEST_REQUIRE lists
// its name.
func Need(t testing.TB, name string) {
	t.Helper()
	if !Listed(name) {
		t.Skipf("LEASEKEEPER_TEST_REQUIRE does not list %s, whose modules take minutes to compile", name)
	}
}

// Listed says whether the environment variable LEASEKEEPER_TEST_REQUIRE lists a name.
func Listed(name string) bool {
	return slices.Contains(strings.Split(os.Getenv("LEASEKEEPER_TEST_REQUIRE"), ","), name)
}
