package sweep

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// suite is the tests of one package, in a test binary that contains the mutants of another or of its own.
type suite struct {
	folder string   // from the root of the repository
	only   string   // the tests to use, as go test's -run reads it; "" means all
	not    string   // the tests not to use, in the same form; "" means none
	flags  []string // the flags of these tests
}

// binary is a compiled suite.
type binary struct {
	suite
	path  string // of the test binary
	sum   string // of its content: results hold for one sum only
	temp  string // where its tests may write
	tests []test // the fastest first

	patience time.Duration // how long a test may stand still before a mutant counts as noticed
}

// test is one test that has passed without a mutant.
type test struct {
	Name    string
	Took    time.Duration // alone in a process, with the start of that
	Differs []int         // the mutants whose condition differs from the true one, in ascending order
}

// module is the path of the repository's module.
const module = "github.com/leasekeeper/leasekeeper/"

// root is where the repository lies, seen from this package.
const root = "../../.."

// compile builds a suite with an overlay.
func compile(t *testing.T, s suite, overlay, folder string) *binary {
	t.Helper()
	b := &binary{suite: s, patience: 4 * time.Second, path: filepath.Join(folder, strings.ReplaceAll(s.folder, "/", "-")+".test"), temp: filepath.Join(folder, "tmp")}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.path, module+s.folder)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s does not compile with its mutants: %v\n%s", s.folder, err, out)
	}
	content, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	b.sum = fmt.Sprintf("%x %q %q %q", sha256.Sum256(content), s.only, s.not, s.flags)
	return b
}

// memoryLimit is how much address space a test may use, in KiB: a mutant may allocate without end.
const memoryLimit = 12 << 20

// run runs tests of a binary with some variables set, and returns what they print. It ends them after a limit.
func (b *binary) run(ctx context.Context, limit time.Duration, variables []string, flags ...string) (string, error) {
	// The second of the two limits is for a process that no longer reacts to the first.
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	if err := errors.Join(os.RemoveAll(b.temp), os.Mkdir(b.temp, 0o700)); err != nil {
		return "", err
	}
	arguments := []string{"-c", fmt.Sprintf(`ulimit -v %d 2>/dev/null; exec "$0" "$@"`, memoryLimit), b.path, "-test.timeout=" + limit.String()}
	command := exec.CommandContext(ctx, "sh", slices.Concat(arguments, flags, b.flags)...)
	command.Dir = filepath.Join(root, b.folder)
	// Package rapid would write what fails into the package's folder, and later runs would begin with that.
	command.Env = append(os.Environ(), append(variables, "TMPDIR="+b.temp, "RAPID_NOFAILFILE=1")...)
	command.WaitDelay = time.Second
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	return out.String(), err
}

// exactly returns the flag that runs tests by their names.
func exactly(names ...string) string { return "-test.run=^(" + strings.Join(names, "|") + ")$" }

// soundLimit is how long a test may take without a mutant.
const soundLimit = 5 * time.Minute

// trace runs each test of a binary alone, to learn how long it takes and for which mutants it differs. A trace is kept in
// a file of the folder.
func (b *binary) trace(t *testing.T, folder string) {
	t.Helper()
	kept := filepath.Join(folder, strings.ReplaceAll(b.folder, "/", "-")+".trace")
	var trace struct {
		Sum   string
		Tests []test
	}
	if text, err := os.ReadFile(kept); err == nil && json.Unmarshal(text, &trace) == nil && trace.Sum == b.sum {
		b.tests = trace.Tests
		return
	}
	listed, err := b.run(t.Context(), soundLimit, nil, "-test.list=^(Test|Example|Fuzz)")
	if err != nil {
		t.Fatalf("%s: %v\n%s", b.folder, err, listed)
	}
	only, not := regexp.MustCompile(b.only), regexp.MustCompile(b.not)
	for _, name := range strings.Fields(listed) {
		if !only.MatchString(name) || b.not != "" && not.MatchString(name) {
			continue
		}
		numbers := filepath.Join(folder, "numbers")
		if err := os.RemoveAll(numbers); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		out, err := b.run(t.Context(), soundLimit, []string{traceVariable + "=" + numbers}, exactly(name))
		if err != nil {
			t.Fatalf("%s of %s fails without a mutant: %v\n%s", name, b.folder, err, out)
		}
		one := test{Name: name, Took: time.Since(began)}
		text, err := os.ReadFile(numbers)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(string(text)) {
			number, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			one.Differs = append(one.Differs, number)
		}
		slices.Sort(one.Differs)
		b.tests = append(b.tests, one)
	}
	slices.SortStableFunc(b.tests, func(a, b test) int { return int(a.Took - b.Took) })
	trace.Sum, trace.Tests = b.sum, b.tests
	text, err := json.Marshal(trace)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
