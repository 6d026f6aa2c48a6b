//go:build linux || darwin

package main

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// holder is a process `leasekeeper run` with its command.
type holder struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	stderr bytes.Buffer
	began  time.Time
}

const holderTTL = 3 * time.Second

// occupy runs a script under the name "lock". The shell first writes its process id to the file "pid".
func occupy(t *testing.T, store, script string, flags ...string) *holder {
	t.Helper()
	r := &holder{t: t, dir: t.TempDir()}
	args := append([]string{"run", "--store", store, "--ttl", holderTTL.String()}, flags...)
	args = append(args, "lock", "--", "/bin/sh", "-c", "echo $$ >pid.new; mv pid.new pid; "+script)
	r.cmd = exec.Command("leasekeeper", args...)
	r.cmd.Dir, r.cmd.Stderr = r.dir, &r.stderr
	r.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	r.began = time.Now()
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.cmd.Process.Signal(syscall.SIGCONT)
		r.cmd.Process.Kill()
		r.cmd.Wait()
	})
	return r
}

// pid waits until the command runs, and returns its process id.
func (r *holder) pid() (pid int) {
	r.t.Helper()
	eventually(r.t, "the command runs", func() bool {
		text, _ := os.ReadFile(filepath.Join(r.dir, "pid"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid != 0
	})
	return pid
}

func (r *holder) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// ends waits for run to end, and checks its exit code and a part of its standard error.
func (r *holder) ends(code int, want string) {
	r.t.Helper()
	r.cmd.Wait()
	if got := r.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(r.stderr.String(), want) {
		r.t.Errorf("run ended with %v, want code %d; it wrote %q, want %q", r.cmd.ProcessState, code, r.stderr.String(), want)
	}
}

// next runs a command under the same name as soon as the name is free. It returns "together" if the process pid still
// runs then, and "alone" if not.
func next(t *testing.T, store string, pid int, flags ...string) string {
	t.Helper()
	look := "if kill -0 " + strconv.Itoa(pid) + " 2>/dev/null; then echo together; else echo alone; fi"
	args := append([]string{"run", "--store", store}, flags...)
	out, err := exec.Command("leasekeeper", append(args, "lock", "--", "/bin/sh", "-c", look)...).CombinedOutput()
	if err != nil {
		t.Errorf("the next one: %v, %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// stubborn is a script that ignores signals.
const stubborn = "trap '' TERM HUP INT; while :; do sleep 0.01; done"

// SIGSTOP stops the holder until after its deadline. The next holder finds no process of the first command. When the
// first holder continues, it reports the loss.
func TestCommandOfAStoppedHolderIsDeadBeforeTheNextHolder(t *testing.T) {
	t.Parallel()
	store := storeAt(t, t.TempDir())
	first := occupy(t, store, stubborn)
	pid := first.pid()
	first.signal(syscall.SIGSTOP)
	if got := next(t, store, pid, "--wait", "30"); got != "alone" {
		t.Errorf("the next holder was %s", got)
	}
	first.signal(syscall.SIGCONT)
	first.ends(command.ExitLost, "")
}

func TestCommandOfAKilledHolderIsDeadBeforeTheNextHolder(t *testing.T) {
	t.Parallel()
	store := storeAt(t, t.TempDir())
	first := occupy(t, store, stubborn)
	pid := first.pid()
	first.signal(syscall.SIGKILL)
	if got := next(t, store, pid, "--wait", "30"); got != "alone" {
		t.Errorf("the next holder was %s", got)
	}
}

func TestKilledGuardEndsTheCommand(t *testing.T) {
	t.Parallel()
	store := storeAt(t, t.TempDir())
	first := occupy(t, store, stubborn)
	pid := first.pid()
	guard, err := exec.Command("ps", "-o", "ppid=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	number, _ := strconv.Atoi(strings.TrimSpace(string(guard)))
	if err := syscall.Kill(number, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	first.ends(command.ExitOwn, "the guard has failed")
	if got := next(t, store, pid, "--nonblock"); got != "alone" {
		t.Errorf("the next holder was %s", got)
	}
}

func TestRunEndsItsCommandWhenTheStoreIsGone(t *testing.T) {
	t.Parallel()
	server := launchAt(t, t.TempDir())
	first := occupy(t, "etcd://"+server.endpoint+"/", "trap 'exit 9' TERM; while :; do sleep 0.01; done")
	first.pid()
	server.kill()
	gone := time.Now()
	first.ends(command.ExitLost, "the lease could not be renewed in time: ending the command before the lease expires")
	// The last renewal was before the end of the server. The rest of the limit is for ending the command on a busy machine.
	if took := time.Since(gone); took > holderTTL+8*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestOnLostPolicyAppliesToARevokedLease(t *testing.T) {
	t.Parallel()
	store := storeAt(t, t.TempDir())
	for policy, want := range map[string]int{"term": command.ExitLost, "kill": command.ExitLost, "warn": 3} {
		first := occupy(t, store, "trap 'touch term' TERM; until test -e end -o -e term; do sleep 0.01; done; exit 3", "--on-lost", policy)
		first.pid()
		if out, err := exec.Command("leasekeeper", "revoke", "lock", "--store", store, "--now", "--reason", "a test").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if policy == "warn" {
			eventually(t, "a warning", func() bool {
				out, err := exec.Command("leasekeeper", "run", "--store", store, "-n", "lock", "--", "true").CombinedOutput()
				return err == nil && len(out) == 0
			})
			time.AfterFunc(holderTTL, func() { os.WriteFile(filepath.Join(first.dir, "end"), nil, 0o600) })
		}
		first.ends(want, "the lease has ended")
		_, err := os.Stat(filepath.Join(first.dir, "term"))
		if received := err == nil; received != (policy == "term") {
			t.Errorf("%s: the command received SIGTERM: %v", policy, received)
		}
	}
}

// A process that the command leaves running is dead before the next holder gets the name.
func TestDaemonOfACommandIsEndedWithIt(t *testing.T) {
	t.Parallel()
	store := storeAt(t, t.TempDir())
	const daemon = "(sh -c 'echo $$ >daemon.new; mv daemon.new daemon; exec sleep 100' >/dev/null 2>&1 &) ; until test -s daemon; do sleep 0.01; done; exit 5"
	first := occupy(t, store, daemon, "--kill-after", "500ms")
	first.ends(5, "the command left processes running: ending them; to wait for them instead, use --leftovers wait")
	text, err := os.ReadFile(filepath.Join(first.dir, "daemon"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if got := next(t, store, pid, "--nonblock"); got != "alone" {
		t.Errorf("the next holder was %s", got)
	}
}

// onTerminal runs a shell script as the leader of a session with a terminal. types writes to the terminal, and shown
// returns its content.
func onTerminal(t *testing.T, dir, script string) (types func(string), shown func() string, ended <-chan struct{}) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	master, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	var text lockedText
	read := make(chan struct{})
	go func() {
		defer close(read)
		for piece := make([]byte, 1000); ; {
			n, err := master.Read(piece)
			text.Write(piece[:n])
			if err != nil {
				return
			}
		}
	}()
	done := make(chan struct{})
	go func() {
		cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-done
		master.Close()
	})
	return func(keys string) {
		if _, err := master.WriteString(keys); err != nil {
			t.Error(err)
		}
	}, text.String, done
}

// Ctrl-C ends a script that waits for run, as it does with flock, although only the command has the terminal. It also
// ends the script while run waits for the name.
func TestCtrlCEndsTheScriptAroundRun(t *testing.T) {
	dir := t.TempDir()
	store := storeAt(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ours := locker{t, dir, []string{"leasekeeper", "run", "--store", store}, []string{"lock", "--"}, nil}
	programs := map[string]locker{"leasekeeper run --store " + store + " lock --": ours}
	if _, err := exec.LookPath("flock"); err == nil {
		programs["flock lock"] = locker{t, dir, []string{"flock"}, []string{"lock"}, nil}
	}
	for program, l := range programs {
		typed, shown, ended := onTerminal(t, dir, program+" sh -c 'echo ready; exec sleep 100'; echo next")
		eventually(t, "it is ready", func() bool { return strings.Contains(shown(), "ready") })
		typed("\x03")
		waitFor(t, ended)
		if strings.Contains(shown(), "next") {
			t.Errorf("%s: the script went on: %q", program, shown())
		}
		l.hold()
		typed, shown, ended = onTerminal(t, dir, "echo begun; "+program+" echo held; echo next")
		eventually(t, "the program waits", func() bool {
			printed, _ := exec.Command("leasekeeper", "show", "--store", store, "lock").Output()
			return strings.Contains(shown(), "begun") && (program == "flock lock" || strings.Contains(string(printed), "waiting    1"))
		})
		if program == "flock lock" {
			time.Sleep(100 * time.Millisecond) // flock may begin to wait only now; Ctrl-C ends it in both cases
		}
		typed("\x03")
		waitFor(t, ended)
		if strings.Contains(shown(), "next") || strings.Contains(shown(), "held") {
			t.Errorf("%s: the script went on: %q", program, shown())
		}
	}
}

// A command that handles Ctrl-C receives it once, and the script continues with the exit code of the command. (flock
// dies at once, and leaves the command running.)
func TestCommandMayHandleCtrlC(t *testing.T) {
	dir := t.TempDir()
	store := storeAt(t, dir)
	typed, shown, ended := onTerminal(t, dir, "trap : INT; leasekeeper run --store "+store+
		` lock -- sh -c 'trap "echo interrupted; exit 6" INT; echo ready; while :; do sleep 0.01; done'; echo code$?`)
	eventually(t, "it is ready", func() bool { return strings.Contains(shown(), "ready") })
	typed("\x03")
	waitFor(t, ended)
	eventually(t, "the exit code is shown", func() bool { return strings.Contains(shown(), "code6") })
	if strings.Count(shown(), "interrupted") != 1 {
		t.Errorf("%q", shown())
	}
}

func waitFor(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(startLimit):
		t.Fatal("the process does not end")
	}
}

// A password in the URL of the store reaches the command only with --with-password.
func TestCommandReceivesNoPassword(t *testing.T) {
	const password = "a-word"
	onDatabases(t, func(t *testing.T, fresh func() string) {
		u, err := url.Parse(fresh())
		if err != nil {
			t.Fatal(err)
		}
		if u.Scheme == "sqlite" {
			return // the URL of a file has no password
		}
		u.User = url.UserPassword(u.User.Username(), password)
		for _, flags := range [][]string{nil, {"--with-password"}} {
			args := append([]string{"run", "--store", u.String()}, flags...)
			out, err := exec.Command("leasekeeper", append(args, "lock", "--", "/usr/bin/env")...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if !strings.Contains(string(out), settings.StoreVariable+"="+u.Scheme+"://"+u.User.Username()) || strings.Contains(string(out), password) != (flags != nil) {
				t.Errorf("with %q the environment of the command is\n%s", flags, out)
			}
		}
	})
}
