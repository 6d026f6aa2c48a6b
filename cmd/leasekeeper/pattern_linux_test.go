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

// found is a process that a test started.
type found struct {
	pid           int
	comm, cmdline string
}

// below returns a process and its descendants, which it finds in /proc.
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
		procDir := "/proc/" + strconv.Itoa(next[0])
		comm, _ := os.ReadFile(procDir + "/comm")
		cmdline, _ := os.ReadFile(procDir + "/cmdline")
		all = append(all, found{next[0], strings.TrimSpace(string(comm)), strings.TrimRight(strings.ReplaceAll(string(cmdline), "\x00", " "), " ")})
		next = append(next, children[next[0]]...)
	}
	return all
}

// stopped reports whether a process has received SIGSTOP and is not continued yet. The signal is pending until one
// thread takes it, and that thread stops in the same step. The other threads stop when they next run, so stopped checks
// all of them.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	procDir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(procDir + "/status")
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
	threads, err := filepath.Glob(procDir + "/task/*/stat")
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

// killer is a tool that kills processes by a pattern.
type killer struct {
	as  string             // the command line of an operator
	hit func(p found) bool // whether the tool would signal p
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

// otherKillers are checked without sending a signal.
var otherKillers = []killer{
	pkill("^leasekeeper$"), pkill("lease"), pkill("keeper"), pkill("exe"), pkill("deadline"), pkill("guard"), pkillFull("leasekeeper"),
	pkillFull("leasekeeper.*lock"), pkillFull("keeper"), pkillFull("lease"), pkillFull("run"), pkillFull("--store"), pkillFull("sleep"), killall("exe"),
}

// The test sends a signal to those of its processes that the tools of operators would find. No tool finds both the
// wrapper and the guard. So the command is dead before the next holder runs, whatever was stopped or killed.
func TestNoKillPatternMatchesWrapperAndGuard(t *testing.T) {
	t.Parallel()
	// The path must not contain the name of a subtest, which contains the pattern.
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
					t.Fatalf("want a wrapper, a guard and a command: %+v", all)
				}
				for _, other := range otherKillers {
					if other.hit(all[0]) && other.hit(all[1]) {
						t.Errorf("%s hits %+v and %+v", other.as, all[0], all[1])
					}
				}
				t.Cleanup(func() { syscall.Kill(all[1].pid, syscall.SIGCONT) }) // the guard then ends, because the wrapper has ended
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
					first.signal(syscall.SIGKILL) // so that the next holder gets the name
				}
				if guard && !wrapper && s == syscall.SIGSTOP {
					// The wrapper continues the guard at the next renewal.
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
