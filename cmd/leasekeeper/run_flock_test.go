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

// flockCase is a command line with the behaviour of flock(1) and of `run`. LOCK stands for the lock file of flock, or
// for the name and -- of `run`. SHELL stands for the same with -c.
type flockCase struct {
	name  string
	args  string // split at spaces outside single quotes
	held  bool   // whether another process holds the lock
	input string
	flock int // the exit code of flock, recorded from util-linux 2.38
	ours  int // the exit code of run; same if it is that of flock
	out   string
}

// same is the value of ours if run has the exit code of flock.
const same = 0

var flockCases = []flockCase{
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
	// flock uses the codes of sysexits.h for these; run uses those of shells and of env(1).
	{"no such command", "LOCK nonsense-of-leasekeeper", false, "", 69, 127, ""},
	{"not executable", "LOCK ./plain", false, "", 69, 126, ""},
	{"a directory", "LOCK ./directory", false, "", 69, 126, ""},
	// flock runs a file without #! in a shell; run uses a shell only with -c.
	{"no #!", "LOCK ./text", false, "", 0, 126, ""},
	// Every failure of run itself has one code.
	{"no such code", "-n -E 300 LOCK echo no", false, "", 64, 125, ""},
	{"no number", "-w soon LOCK echo no", false, "", 64, 125, ""},
	{"a negative time", "-w -1 LOCK echo no", false, "", 71, 125, ""},
	{"nothing", "", false, "", 64, 125, ""},
	{"a shell and more", "SHELL 'echo no' more", false, "", 64, 125, ""},
}

func TestRunBehavesLikeFlock(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"plain": 0o600, "text": 0o700, "lock": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(":\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	store := storeAt(t, dir)
	ours := locker{t, dir, []string{"leasekeeper", "run", "--store", store}, []string{"lock", "--"}, []string{"lock", "-c"}}
	flock := locker{t, dir, []string{"flock"}, []string{"lock"}, []string{"lock", "-c"}}
	_, err := exec.LookPath("flock")
	hasFlock := err == nil
	if !hasFlock {
		t.Log("this machine has no flock: compared with recorded results")
	}
	for _, held := range []bool{false, true} {
		if held {
			ours.hold()
			if hasFlock {
				flock.hold()
			}
		}
		for _, h := range flockCases {
			if h.held != held {
				continue
			}
			t.Run(h.name, func(t *testing.T) {
				if h.ours == same {
					h.ours = h.flock
				}
				if code, out := ours.run(h.args, h.input); code != h.ours || out != h.out {
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

// storeAt starts a server in the directory and returns its URL.
func storeAt(t *testing.T, dir string) string {
	t.Helper()
	r := launchAt(t, dir)
	return "leasekeeper://" + r.endpoint + "/"
}

// locker runs command lines of flock or of leasekeeper run.
type locker struct {
	t       *testing.T
	dir     string
	command []string
	lock    []string
	shell   []string
}

// words splits like a shell with single quotes, and replaces LOCK and SHELL.
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
	printed, err := cmd.Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		l.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(printed)
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
		l.t.Fatalf("the command does not hold the lock: %q, %v", line, err)
	}
}

// A signal ends a waiting run as it ends flock: run dies by the signal, and does not run the command.
func TestSignalEndsARunThatWaitsForItsName(t *testing.T) {
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
			if i == 0 { // run waits in the queue
				eventually(t, "run waits", func() bool {
					printed, _ := exec.Command("leasekeeper", "show", "--store", store, "lock").Output()
					return strings.Contains(string(printed), "waiting    1")
				})
			} else {
				time.Sleep(50 * time.Millisecond) // it does not matter whether flock waits already
			}
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !status.Signaled() || status.Signal() != s || out.String() != "" {
				t.Errorf("%v, %v: the process ended with %v and wrote %q", l.command[0], s, cmd.ProcessState, out.String())
			}
		}
	}
	// The waiter has left the queue.
	eventually(t, "no waiter", func() bool {
		printed, _ := exec.Command("leasekeeper", "show", "--store", store, "lock").Output()
		return strings.Contains(string(printed), "waiting    0")
	})
}

// A signal also ends run and acquire while they open a store that does not answer.
func TestSignalEndsARunThatOpensItsStore(t *testing.T) {
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
