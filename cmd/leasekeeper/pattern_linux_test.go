package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// found is one of those that a test started.
type found struct {
	pid           int
	comm, cmdline string
}

// below returns the descendants of a process and the process itself, found in /proc. Others are never looked at twice.
func below(t *testing.T, top int) []found {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	children := make(map[int][]int)
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
	}
	var all []found
	for next := []int{top}; len(next) > 0; next = next[1:] {
		folder := "/proc/" + strconv.Itoa(next[0])
		comm, _ := os.ReadFile(folder + "/comm")
		cmdline, _ := os.ReadFile(folder + "/cmdline")
		all = append(all, found{next[0], strings.TrimSpace(string(comm)), strings.TrimRight(strings.ReplaceAll(string(cmdline), "\x00", " "), " ")})
		next = append(next, children[next[0]]...)
	}
	return all
}

// stopped says whether a process that was sent SIGSTOP has not yet been continued. A signal is pending until a thread
// takes it, and that thread is stopped in the same step. The other threads stop when they next run, so none of them
// may be asked alone.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	folder := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(folder + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "\nShdPnd:")
	mask, err := strconv.ParseUint(strings.Fields(after)[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	if mask>>(syscall.SIGSTOP-1)&1 != 0 {
		return true
	}
	threads, err := filepath.Glob(folder + "/task/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " T") {
			return true
		}
	}
	return false
}

// killer is a tool that finds processes by a pattern.
type killer struct {
	as  string // what an operator types
	hit func(p found) bool
}

func pkill(pattern string) killer {
	return killer{"pkill " + pattern, func(p found) bool { return regexp.MustCompile(pattern).MatchString(p.comm) }}
}

func pkillFull(pattern string) killer {
	return killer{"pkill -f '" + pattern + "'", func(p found) bool { return regexp.MustCompile(pattern).MatchString(p.cmdline) }}
}

func killall(name string) killer {
	return killer{"killall " + name, func(p found) bool { return p.comm == name }}
}

// otherKillers are looked at without a signal.
var otherKillers = []killer{
	pkill("^leasekeeper$"), pkill("lease"), pkill("keeper"), pkill("exe"), pkill("deadline"), pkill("guard"), pkillFull("leasekeeper"),
	pkillFull("leasekeeper.*lock"), pkillFull("keeper"), pkillFull("lease"), pkillFull("run"), pkillFull("--store"), pkillFull("sleep"), killall("exe"),
}

// TestNoPatternHitsWrapperAndGuard signals what the tools of operators would find, among the processes that this test
// started. The command is dead before the next holder runs, whatever was stopped or killed.
func TestNoPatternHitsWrapperAndGuard(t *testing.T) {
	t.Parallel()
	// Of this test's name, not of a subtest's, which has the pattern in it.
	dir := t.TempDir()
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for i, k := range []killer{pkill("leasekeeper"), pkillFull("leasekeeper run"), pkillFull("lock"), pkillFull("guard"), killall("leasekeeper"), killall(supervise.GuardName)} {
			t.Run(strings.Replace(k.as, " ", " -"+s.String()+" ", 1), func(t *testing.T) {
				t.Parallel()
				store := settings.FileStore(filepath.Join(dir, strconv.Itoa(int(s))+"-"+strconv.Itoa(i)+".db"))
				first := occupy(t, store, stubborn)
				pid := first.pid()
				all := below(t, first.cmd.Process.Pid)
				if len(all) < 3 || all[0].comm != "leasekeeper" || !strings.HasPrefix(all[0].cmdline, "leasekeeper run ") || all[1].comm != supervise.GuardName {
					t.Fatalf("there should be a wrapper, a guard and a command: %+v", all)
				}
				for _, other := range otherKillers {
					if other.hit(all[0]) && other.hit(all[1]) {
						t.Errorf("%s hits %+v and %+v", other.as, all[0], all[1])
					}
				}
				t.Cleanup(func() { syscall.Kill(all[1].pid, syscall.SIGCONT) }) // it ends when the wrapper has
				wrapper, guard := k.hit(all[0]), k.hit(all[1])
				if wrapper && guard {
					t.Errorf("it hits %+v and %+v", all[0], all[1])
				}
				for _, p := range all {
					if p.pid != pid && k.hit(p) {
						if err := syscall.Kill(p.pid, s); err != nil && err != syscall.ESRCH {
							t.Fatal(err)
						}
					}
				}
				if !wrapper && !guard {
					first.signal(syscall.SIGKILL) // so that somebody else gets the name
				}
				if guard && !wrapper && s == syscall.SIGSTOP {
					// The wrapper continues it with the next renewal.
					eventually(t, "the guard is continued", func() bool { return !stopped(t, all[1].pid) })
					first.signal(syscall.SIGKILL)
				}
				if got := next(t, store, pid, "--wait", "30"); got != "alone" {
					t.Errorf("the next holder was %s", got)
				}
			})
		}
	}
}
