//go:build linux || darwin

package main

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// habit is what flock(1) does, and what we do. An argument LOCK stands for its file, or for our name and --.
type habit struct {
	name  string
	args  string // split at spaces, but for what is in quotes
	held  bool   // somebody else holds the lock
	input string
	flock int // recorded from util-linux 2.38
	ours  int // 0 for the same
	out   string
}

const same = 0

var habits = []habit{
	{"a command", "LOCK true", false, "", 0, same, ""},
	{"its exit code", "LOCK sh -c 'exit 7'", false, "", 7, same, ""},
	{"the largest exit code", "LOCK sh -c 'exit 255'", false, "", 255, same, ""},
	{"killed", "LOCK sh -c 'kill -9 $$'", false, "", 137, same, ""},
	{"terminated", "LOCK sh -c 'kill $$'", false, "", 143, same, ""},
	{"input and output", "LOCK tr a-z A-Z", false, "text\n", 0, same, "TEXT\n"},
	{"arguments as they are", "LOCK printf '%s|' 'a  b' '*' '$HOME'", false, "", 0, same, "a  b|*|$HOME|"},
	{"a shell", "SHELL 'echo $((1 + 1)); exit 4'", false, "", 4, same, "2\n"},
	{"a shell, killed", "SHELL 'kill -9 $$'", false, "", 137, same, ""},
	{"busy", "-n LOCK echo no", true, "", 1, same, ""},
	{"busy, long", "--nonblock LOCK echo no", true, "", 1, same, ""},
	{"busy after a time", "-w 0.2 LOCK echo no", true, "", 1, same, ""},
	{"busy after a time, long", "--wait 0.2 LOCK echo no", true, "", 1, same, ""},
	{"busy after no time", "-w 0 LOCK echo no", true, "", 1, same, ""},
	{"busy with a code", "-n -E 9 LOCK echo no", true, "", 9, same, ""},
	{"busy after a time with a code", "-w 0.2 --conflict-exit-code 9 LOCK echo no", true, "", 9, same, ""},
	{"busy with the code of success", "-n -E 0 LOCK echo no", true, "", 0, same, ""},
	{"free after all", "-n LOCK echo yes", false, "", 0, same, "yes\n"},
	{"free in time", "-w 5 LOCK echo yes", false, "", 0, same, "yes\n"},
	// flock has the codes of sysexits.h for these; we have those of the shells and of env(1).
	{"no such command", "LOCK nonsense-of-leasekeeper", false, "", 69, 127, ""},
	{"not executable", "LOCK ./plain", false, "", 69, 126, ""},
	{"a folder", "LOCK ./folder", false, "", 69, 126, ""},
	// flock has a shell run what has no #!; we have a shell run only what is said to be for one.
	{"no #!", "LOCK ./text", false, "", 0, 126, ""},
	// Whatever is our own failure has one code.
	{"no such code", "-n -E 300 LOCK echo no", false, "", 64, 125, ""},
	{"no number", "-w soon LOCK echo no", false, "", 64, 125, ""},
	{"a negative time", "-w -1 LOCK echo no", false, "", 71, 125, ""},
	{"nothing", "", false, "", 64, 125, ""},
	{"a shell and more", "SHELL 'echo no' more", false, "", 64, 125, ""},
}

func TestRunHasTheHabitsOfFlock(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"plain": 0o600, "text": 0o700, "lock": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(":\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	store := storeAt(t, dir)
	us := locker{t, dir, []string{"leasekeeper", "run", "--store", store}, []string{"lock", "--"}, []string{"lock", "-c"}}
	flock := locker{t, dir, []string{"flock"}, []string{"lock"}, []string{"lock", "-c"}}
	_, err := exec.LookPath("flock")
	hasFlock := err == nil
	if !hasFlock {
		t.Log("there is no flock here: compared with what was recorded")
	}
	for _, held := range []bool{false, true} {
		if held {
			us.hold()
			if hasFlock {
				flock.hold()
			}
		}
		for _, h := range habits {
			if h.held != held {
				continue
			}
			t.Run(h.name, func(t *testing.T) {
				if h.ours == same {
					h.ours = h.flock
				}
				if code, out := us.run(h.args, h.input); code != h.ours || out != h.out {
					t.Errorf("code %d and %q, want %d and %q", code, out, h.ours, h.out)
				}
				if !hasFlock {
					return
				}
				code, out := flock.run(h.args, h.input)
				if code != h.flock || out != h.out {
					t.Errorf("flock: code %d and %q, recorded were %d and %q", code, out, h.flock, h.out)
				}
			})
		}
	}
}

// storeAt starts a server in the folder and returns its URL.
func storeAt(t *testing.T, dir string) string {
	t.Helper()
	r := launchAt(t, dir)
	return "leasekeeper://" + r.endpoint + "/"
}

// locker is flock, or we.
type locker struct {
	t       *testing.T
	dir     string
	command []string
	lock    []string
	shell   []string
}

// words splits like a shell with single quotes, and puts in what LOCK and SHELL stand for.
func (l locker) words(args string) []string {
	all := slices.Clone(l.command)
	for i, part := range strings.Split(args, "'") {
		if i%2 == 1 {
			all = append(all, part)
			continue
		}
		for _, word := range strings.Fields(part) {
			switch word {
			case "LOCK":
				all = append(all, l.lock...)
			case "SHELL":
				all = append(all, l.shell...)
			default:
				all = append(all, word)
			}
		}
	}
	return all
}

func (l locker) cmd(args string) *exec.Cmd {
	words := l.words(args)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = l.dir
	cmd.Env = append(os.Environ(), "SHELL=/bin/sh", "GORACE=atexit_sleep_ms=0")
	return cmd
}

func (l locker) run(args, input string) (code int, out string) {
	l.t.Helper()
	cmd := l.cmd(args)
	cmd.Stdin = strings.NewReader(input)
	told, err := cmd.Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		l.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(told)
}

// hold takes the lock until the end of the test.
func (l locker) hold() {
	l.t.Helper()
	cmd := l.cmd("LOCK sh -c 'echo held; read line'")
	in, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		l.t.Fatalf("it does not hold the lock: %q, %v", line, err)
	}
}

// A waiting run is interrupted like flock: it dies by the signal, and the command is not run.
func TestInterruptedWhileWaiting(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	store := storeAt(t, dir)
	lockers := []locker{{t, dir, []string{"leasekeeper", "run", "--store", store}, []string{"lock", "--"}, nil}}
	if _, err := exec.LookPath("flock"); err == nil {
		lockers = append(lockers, locker{t, dir, []string{"flock"}, []string{"lock"}, nil})
	}
	for i, l := range lockers {
		l.hold()
		for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			cmd := l.cmd("LOCK echo no")
			var out strings.Builder
			cmd.Stdout = &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if i == 0 { // it stands in line
				eventually(t, "it waits", func() bool {
					told, _ := exec.Command("leasekeeper", "show", "--store", store, "lock").Output()
					return strings.Contains(string(told), "waiting    1")
				})
			} else {
				time.Sleep(50 * time.Millisecond) // whether flock waits already makes no difference
			}
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !status.Signaled() || status.Signal() != s || out.String() != "" {
				t.Errorf("%v, %v: it ended with %v and wrote %q", l.command[0], s, cmd.ProcessState, out.String())
			}
		}
	}
	// Nothing of it is left in line.
	eventually(t, "nobody waits", func() bool {
		told, _ := exec.Command("leasekeeper", "show", "--store", store, "lock").Output()
		return strings.Contains(string(told), "waiting    0")
	})
}

// So does a run that waits for a store that does not answer.
func TestInterruptedWhileOpening(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, args := range [][]string{{"run", "lock", "--", "echo", "no"}, {"acquire", "lock"}} {
		args = append([]string{args[0], "--store", "postgres://u@" + l.Addr().String() + "/d"}, args[1:]...)
		cmd := exec.Command("leasekeeper", args...)
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		conn.Close()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
			t.Errorf("%s: it ended with %v", args[0], cmd.ProcessState)
		}
	}
}
