//go:build linux || darwin

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// bashCompletion is the file of bash-completion that an interactive bash on Debian reads.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// prompt is what the bash of a test prints before each line.
const prompt = "ready>"

// openBash opens a window with an interactive bash that has the completions of this program. The bash works in dir, where
// the file script.sh is, and its store holds the names.
func openBash(t *testing.T, names ...string) (w *window, dir string) {
	t.Helper()
	bash := required.Program(t, "bash-completion", "bash")
	required.File(t, "bash-completion", bashCompletion)
	dir = t.TempDir()
	store := settings.FileStore(filepath.Join(dir, "leases.db"))
	for _, name := range names {
		acquire(t, store, name, "me")
	}
	lines := []string{
		"cd '" + dir + "'",
		"touch script.sh",
		"unset HISTFILE",
		"PS1='" + prompt + " '",
		"bind 'set bell-style none'",
		"export LEASEKEEPER_STORE='" + store + "'",
		". " + bashCompletion,
		"leasekeeper completion bash >completion",
		". ./completion",
	}
	start := filepath.Join(dir, "bashrc")
	if err := os.WriteFile(start, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w = openWindow(t, bash+" --noprofile --rcfile '"+start+"' -i")
	w.await(prompt)
	return w, dir
}

// types types a text and then keys, as a person does.
func (w *window) types(text string, keys ...string) {
	w.t.Helper()
	w.do("send-keys", "-l", text)
	w.do(append([]string{"send-keys"}, keys...)...)
}

// completedLines are beginnings of command lines and what Tab makes of them. The X is typed after Tab: it shows whether the
// completion has added a space.
var completedLines = [][2]string{
	{"leasekeeper hist", "leasekeeper history X"},
	{"leasekeeper token ch", "leasekeeper token check X"},
	{"leasekeeper ls --outp", "leasekeeper ls --output X"},
	{"leasekeeper ls --output j", "leasekeeper ls --output json X"},
	{"leasekeeper ls --output=t", "leasekeeper ls --output=table X"},
	{"leasekeeper move --from sq", "leasekeeper move --from sqlite:X"},
	{"leasekeeper show jobs/n", "leasekeeper show jobs/nightly X"},
	{"leasekeeper show jobs:at", "leasekeeper show jobs:at:noon X"},
	{"leasekeeper show jobs/w", `leasekeeper show jobs/with\ space X`},
	{`leasekeeper show jobs/\'`, `leasekeeper show jobs/\'quoted X`},
	{"leasekeeper run jobs/n", "leasekeeper run jobs/nightly X"},
	{"leasekeeper run a -- ./scr", "leasekeeper run a -- ./script.sh X"},
}

func TestTabCompletesInBash(t *testing.T) {
	w, _ := openBash(t, "jobs/nightly", "jobs/with space", "jobs:at:noon", "jobs/'quoted")
	for _, line := range completedLines {
		w.types(line[0], "Tab", "X")
		w.await(prompt + " " + line[1])
		w.do("send-keys", "C-e", "C-u") // not C-c, with which the terminal drops what is typed before bash has seen it
	}
	w.types("leasekeeper ls jobs/", "Tab", "Tab")
	w.await("jobs/'quoted", "jobs/nightly", "jobs/with space")
}

// The name of another program's lease must not become a command when a person completes it.
func TestCompletedNameIsNoCommandInBash(t *testing.T) {
	const name = "jobs/$(touch started)"
	w, dir := openBash(t, name)
	w.types("leasekeeper show jobs/", "Tab", "Enter")
	w.await(`leasekeeper show jobs/\$\(touch\ started\)`, "token")
	if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
		t.Errorf("bash has run a part of the name %q", name)
	}
}
