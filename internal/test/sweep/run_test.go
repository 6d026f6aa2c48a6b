package sweep

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// result is what one suite made of one mutant. The file of results has one on each line.
type result struct {
	Key   string
	Code  string // the sum of the package's code: what found a mutant of it once still would
	Suite string // the suite's folder
	Sum   string // the suite's sum: a mutant that survived it once still does
	By    string // the test that failed, or "" if the mutant survived
}

// sweeping is the sweep of one package.
type sweeping struct {
	folder   string // of the package, from the root of the repository
	code     string
	mutants  []mutant
	binaries []*binary
	results  map[string][]result // by key
	file     *os.File            // receives each result at once
}

// begin compiles the suites of a package with its mutants and traces them. Everything lies in a folder.
func begin(t *testing.T, folder string, suites []suite, into string) *sweeping {
	t.Helper()
	mutants, texts, err := mutate(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	s := &sweeping{folder: folder, mutants: mutants, results: make(map[string][]result)}
	into = filepath.Join(into, strings.ReplaceAll(folder, "/", "-"))
	if err := os.MkdirAll(into, 0o700); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for path := range texts {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	var code []byte
	for _, path := range paths {
		code = append(code, texts[path]...)
	}
	s.code = fmt.Sprintf("%x", sha256.Sum256(code))
	overlay := writeOverlay(t, into, texts)
	for _, one := range suites {
		b := compile(t, one, overlay, into)
		b.trace(t, into)
		s.binaries = append(s.binaries, b)
	}
	s.resume(t, filepath.Join(into, "results"))
	return s
}

// resume reads the results of earlier sweeps and opens their file for more.
func (s *sweeping) resume(t *testing.T, path string) {
	t.Helper()
	var err error
	if s.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.file.Close() })
	lines := bufio.NewScanner(s.file)
	for lines.Scan() {
		var r result
		if json.Unmarshal(lines.Bytes(), &r) == nil { // an interrupted sweep may leave half a line
			s.results[r.Key] = append(s.results[r.Key], r)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// known returns an earlier result of a mutant that still holds.
func (s *sweeping) known(m mutant, b *binary) (result, bool) {
	for _, r := range s.results[m.key()] {
		if r.Code == s.code && r.Suite == b.folder && (r.By != "" || r.Sum == b.sum) {
			return r, true
		}
	}
	return result{}, false
}

// hunt returns which test notices a mutant, or "". The tests are those of some of the binaries.
func (s *sweeping) hunt(t *testing.T, m mutant, binaries []*binary) string {
	t.Helper()
	for _, b := range s.binaries {
		if r, ok := s.known(m, b); ok && r.By != "" {
			return r.By
		}
	}
	for _, b := range binaries {
		if _, ok := s.known(m, b); ok {
			continue
		}
		r := result{m.key(), s.code, b.folder, b.sum, b.hunt(t, m)}
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.file.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
		if r.By != "" {
			return r.By
		}
	}
	return ""
}

// upTo returns the binary without its tests that take longer than a limit.
func (b *binary) upTo(limit time.Duration) *binary {
	fast := *b
	fast.sum += " up to " + limit.String()
	fast.tests = slices.DeleteFunc(slices.Clone(b.tests), func(one test) bool { return one.Took > limit })
	return &fast
}

// rounds are how long the tests of one process may take together, without a mutant. Most mutants are found by the fastest
// tests, so a sweep tries those first.
var rounds = []time.Duration{300 * time.Millisecond, 2 * time.Second, 8 * time.Second}

// hunt returns which test of a suite notices a mutant, or "".
func (b *binary) hunt(t *testing.T, m mutant) string {
	t.Helper()
	var names []string
	var together time.Duration
	round := 0
	try := func() string {
		if len(names) == 0 {
			return ""
		}
		by := b.try(t, m, names, together)
		names, together = nil, 0
		round = min(round+1, len(rounds)-1)
		return by
	}
	for _, one := range b.tests {
		if _, differs := slices.BinarySearch(one.Differs, m.number); !differs {
			continue
		}
		if together+one.Took > rounds[round] {
			if by := try(); by != "" {
				return by
			}
		}
		names, together = append(names, one.Name), together+one.Took
	}
	return try()
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// try runs tests with a mutant, which take some time together without it, and returns which of them fails.
func (b *binary) try(t *testing.T, m mutant, names []string, together time.Duration) string {
	t.Helper()
	limit := b.patience + 5*together // a busy machine slows the tests down, too
	out, err := b.run(t.Context(), limit, []string{mutantVariable + "=" + strconv.Itoa(m.number)}, exactly(names...), "-test.failfast")
	if t.Context().Err() != nil {
		t.Fatal(t.Context().Err())
	}
	switch found := failed.FindStringSubmatch(out); {
	case err == nil:
		return ""
	case found != nil:
		return found[1]
	case strings.Contains(out, "panic: test timed out"):
		return "a test that does not end"
	case strings.Contains(out, "panic:"), strings.Contains(out, "fatal error:"):
		return "a panic"
	default:
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return fmt.Sprintf("a failure (%v): %s", err, lines[len(lines)-1])
	}
}
