//go:build linux || darwin

package main

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// completions returns what a shell offers for the last word of a command line.
func completions(t *testing.T, words ...string) []string {
	t.Helper()
	var out strings.Builder
	if code := run(append([]string{"__complete"}, words...), &out, io.Discard); code != command.ExitDone {
		t.Fatalf("%q exits with code %d", words, code)
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	last := len(lines) - 1 // :4, the directive for the shell
	if last < 0 || !strings.HasPrefix(lines[last], ":") {
		t.Fatalf("%q has no directive: %q", words, lines)
	}
	return lines[:last]
}

func TestNamesAreCompletedFromTheStore(t *testing.T) {
	file := settings.FileStore(filepath.Join(t.TempDir(), "leases.db"))
	server := "leasekeeper://" + launchAt(t, t.TempDir()).endpoint + "/"
	for _, store := range []string{file, server} {
		for _, name := range []string{"jobs/a", "jobs/b", "other"} {
			acquire(t, store, name, "me")
		}
		for _, line := range []string{"show", "ls", "run --nonblock", "token check", "revoke --reason x"} {
			words := append(strings.Fields(line), "--store", store, "jobs/")
			if got, want := completions(t, words...), []string{"jobs/a", "jobs/b"}; !slices.Equal(got, want) {
				t.Errorf("%q is completed by %q, want %q", words, got, want)
			}
		}
		if got := completions(t, "renew", "--store", store, "jobs/a", ""); len(got) > 0 {
			t.Errorf("a token is completed by %q", got)
		}
	}
}

func TestCompletionOfNamesIsBounded(t *testing.T) {
	store := "memory:" + t.Name()
	for i := range 203 {
		acquire(t, store, fmt.Sprintf("jobs/%03d", i), "me")
	}
	if got := completions(t, "show", "--store", store, "jobs/"); len(got) != 200 {
		t.Errorf("%d names are offered, want 200", len(got))
	}
	for _, store := range []string{"leasekeeper://127.0.0.1:1/", "nonsense:x", settings.FileStore(filepath.Join(t.TempDir(), "none.db"))} {
		if got := completions(t, "show", "--store", store, ""); len(got) > 0 {
			t.Errorf("a store that cannot be used offers %q", got)
		}
	}
}

func TestCompletionOffersNoTextThatATerminalWouldObey(t *testing.T) {
	database, _ := hostileDatabase(t)
	for _, store := range []string{database, "leasekeeper://" + hostileServer(t, codes.OK) + "/"} {
		checkPrinted(t, "a completion from "+store, strings.Join(completions(t, "show", "--store", store, ""), "\n"))
	}
}

// Completions ask the command itself, so a script is short. zsh reads a script of a directory for completions only if its first
// line is a #compdef. Where a shell is installed, it also reads its script.
func TestScriptOfEachShellAsksTheCommandForCompletions(t *testing.T) {
	for _, s := range []struct {
		shell, checks, first string
		has                  []string
	}{
		{"bash", "-n", "# bash completion V2 for leasekeeper", []string{"complete -o default -F __start_leasekeeper leasekeeper", "__complete "}},
		{"zsh", "-n", "#compdef leasekeeper", []string{"compdef _leasekeeper leasekeeper", "__complete "}},
		{"fish", "--no-execute", "# fish completion for leasekeeper", []string{"complete -c leasekeeper ", "__complete "}},
	} {
		script := succeeds(t, "completion", s.shell)
		if !strings.HasPrefix(script, s.first) {
			t.Errorf("the script of %s begins with %.60q", s.shell, script)
		}
		for _, text := range s.has {
			if !strings.Contains(script, text) {
				t.Errorf("the script of %s lacks %q", s.shell, text)
			}
		}
		shell, err := exec.LookPath(s.shell)
		if err != nil {
			t.Logf("%s is not installed, so it has not read its script", s.shell)
			continue
		}
		read := exec.Command(shell, s.checks)
		read.Stdin = strings.NewReader(script)
		if out, err := read.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s cannot read its script: %v: %s", s.shell, err, out)
		}
	}
}

func TestValuesOfFlagsAreCompleted(t *testing.T) {
	for line, want := range map[string]string{
		"ls --output ":           "table json",
		"status -o ":             "table json",
		"ls --color ":            "auto always never",
		"run --on-lost ":         "term kill warn",
		"serve --log-level ":     "debug info warn error",
		"help lea":               "lease",
		"lease sh":               "show",
		"status --store leaseke": "leasekeeper:// leasekeepers://",
		"move --from sq":         "sqlite:",
	} {
		words := strings.Split(line, " ")
		var got []string
		for _, offer := range completions(t, words...) {
			word, _, _ := strings.Cut(offer, "\t")
			got = append(got, word)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
}
