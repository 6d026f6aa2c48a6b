//go:build linux || darwin

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// window is a window of a terminal, which tmux shows.
type window struct {
	t      *testing.T
	tmux   string
	socket string
}

// openWindow runs a line of the shell in a window of 100 columns and 12 lines. The window stays open after the line.
func openWindow(t *testing.T, line string) *window {
	t.Helper()
	tmux := required.Program(t, "tmux", "tmux")
	dir, err := os.MkdirTemp("", "lk") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	w := &window{t: t, tmux: tmux, socket: filepath.Join(dir, "s")}
	t.Cleanup(func() {
		_ = w.command("kill-server").Run() // the server may have ended
		os.RemoveAll(dir)
	})
	w.do("new-session", "-d", "-x", "100", "-y", "12", "echo before; "+line+"; echo after $?; exec sleep 1000")
	return w
}

func (w *window) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.tmux, append([]string{"-u", "-S", w.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm")
	return cmd
}

// do runs a command of tmux and returns its output.
func (w *window) do(args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// await waits until the window shows all texts, and returns its lines.
func (w *window) await(texts ...string) []string {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		shown := w.do("capture-pane", "-p")
		missing := ""
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				missing = text
			}
		}
		if missing == "" {
			return strings.Split(strings.TrimRight(shown, "\n"), "\n")
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the window never showed %q:\n%s", missing, shown)
		}
	}
}

// acquire acquires a name in a store for ten minutes.
func acquire(t *testing.T, store, name, holder string) {
	t.Helper()
	succeeds(t, "acquire", name, "--ttl", "10m", "--holder", holder, "--store", store)
}

// succeeds runs a command, which must succeed, and returns its output.
func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	if code := run(args, &stdout, &stderr); code != command.ExitDone {
		t.Fatalf("%q exits with code %d: %s", args, code, &stderr)
	}
	return strings.TrimSpace(stdout.String())
}

func TestLiveViewOfNamesFollowsChangesAndTheWindow(t *testing.T) {
	store := settings.FileStore(filepath.Join(t.TempDir(), "leases.db"))
	acquire(t, store, "jobs/a", "first-"+strings.Repeat("h", 100))
	w := openWindow(t, "leasekeeper ls --watch --store '"+store+"'")
	lines := w.await("leasekeeper ls --watch", "q ends", "NAME", "jobs/a", "first-h")
	for _, line := range lines {
		if strings.HasPrefix(line, "jobs/a") && !strings.Contains(line, "…") {
			t.Errorf("the holder is not shortened: %q", line)
		}
	}
	if strings.Contains(strings.Join(lines, "\n"), "before") {
		t.Errorf("the view is not on a screen of its own: %q", lines)
	}
	acquire(t, store, "jobs/b", "second")
	w.await("jobs/a", "jobs/b", "second")
	for _, name := range []string{"c", "d", "e", "f", "g", "h"} {
		acquire(t, store, "jobs/"+name, "other")
	}
	w.await("jobs/h")
	w.do("resize-window", "-x", "70", "-y", "6")
	if lines := w.await("… and more names"); len(lines) > 6 {
		t.Errorf("a window of 6 lines shows %q", lines)
	}
	w.do("send-keys", "q")
	if lines := w.await("before", "after 0"); strings.Contains(strings.Join(lines, "\n"), "NAME") {
		t.Errorf("the view is left behind: %q", lines)
	}
	if alternate := w.do("display-message", "-p", "#{alternate_on} #{cursor_flag}"); alternate != "0 1\n" {
		t.Errorf("the terminal is not as before: alternate screen and cursor are %q", alternate)
	}
}

// The tables of a cluster are checked here too, because to start a cluster takes a while.
func TestLiveViewOfAClusterShowsThatAMemberIsDown(t *testing.T) {
	members := launchCluster(t, "leasekeeper-0", "leasekeeper-1", "leasekeeper-2")
	endpoint := members[0].endpoint
	for _, line := range []string{"status", "member list"} {
		checkFits(t, line+" --endpoint "+endpoint, "leasekeeper-2")
	}
	w := openWindow(t, "leasekeeper status --watch --endpoint "+endpoint)
	w.do("resize-window", "-x", "100", "-y", "40")
	lines := w.await("leasekeeper status --watch", "healthy", "MASTER LEASE", "how the leader leasekeeper-", "log version")
	if text := strings.Join(lines, "\n"); strings.Contains(text, "…") || strings.Contains(text, "is down") {
		t.Errorf("the view of three members that serve is\n%s", text)
	}
	members[2].kill()
	w.await("leasekeeper-2 is down: ", "how the leader leasekeeper-")
	w.do("send-keys", "q")
	w.await("before", "after 0")
}

func TestLiveViewOfAStatusEndsWithCtrlC(t *testing.T) {
	store := settings.FileStore(filepath.Join(t.TempDir(), "leases.db"))
	acquire(t, store, "jobs/a", "me")
	w := openWindow(t, "leasekeeper status --watch --store '"+store+"'; stty -a | grep -o ' icanon'")
	w.await("leasekeeper status --watch", "health", "healthy")
	if lines := w.await("held"); !strings.Contains(strings.Join(lines, "\n"), "held           1") {
		t.Errorf("the status is %q", lines)
	}
	w.do("send-keys", "C-c")
	w.await("before", " icanon", "after 0")
}
