//go:build linux || darwin

package supervise

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// early is what a wrapper in its own process does before it calls Run.
type early struct {
	Limited   bool // the early guard ends at its limit; otherwise it waits for Run, however slow the machine is
	KillGuard bool // kill the early guard, and wait until it has ended
	Children  bool // start the child "before" before the early guard, and the child "between" after it
}

// prepare starts the early guard, and writes its process ID to the file spare. It returns when the file go exists.
func (e *early) prepare(w spec, o *Options) {
	if e.Children {
		startChild(w, "before")
	}
	o.Spare = StartGuard(*o)
	guard := o.Spare.guard
	if !e.Limited {
		o.Spare.limit.Stop()
	}
	if e.KillGuard {
		guard.process.Kill()
		io.Copy(io.Discard, guard.link.file) // until the kernel has closed the guard's end
	}
	if e.Children {
		startChild(w, "between")
	}
	os.WriteFile(w.path("spare.new"), fmt.Appendln(nil, guard.process.Pid), 0o600)
	os.Rename(w.path("spare.new"), w.path("spare"))
	for !exists(w.path("go")) {
		time.Sleep(time.Millisecond)
	}
}

// startChild starts a child of the wrapper that beats to the file.
func startChild(w spec, name string) {
	if err := exec.Command(self(), "beat", w.path(name)).Start(); err != nil {
		panic(err)
	}
}

// failAsGuard is a guard that counts itself in a file and ends at once.
func failAsGuard(file string) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, os.Getpid())
	os.Exit(3)
}

// startEarly starts a wrapper that starts the guard early, and returns the guard's process ID. The wrapper calls Run when
// the file go exists.
func startEarly(t *testing.T, terms Terms, e early, args ...string) (s *fixture, guard int) {
	t.Helper()
	s = newFixture(t, terms, args...)
	s.spec.Early = &e
	s.begin()
	s.until("the guard was started early", func() bool { return exists(s.spec.path("spare")) })
	return s, s.number("spare")
}

// startSpare starts the guard early, as a child of this process, and returns its process ID.
func startSpare(t *testing.T) (spare *SpareGuard, guard int) {
	t.Helper()
	spare = StartGuard(Options{
		Command:   Command{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr},
		GuardPath: self(), GuardArgs: guardArgs,
	})
	t.Cleanup(spare.Close)
	spare.mu.Lock()
	defer spare.mu.Unlock()
	if spare.guard == nil {
		t.Fatal("there is no guard")
	}
	return spare, spare.guard.process.Pid
}

// awaitGone waits until a process has ended and was reaped.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for limit := time.Now().Add(testTimeout); syscall.Kill(pid, 0) != syscall.ESRCH; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

func TestEarlyGuardRunsTheCommand(t *testing.T) {
	t.Parallel()
	s, guard := startEarly(t, usual, early{}, script("BEAT one stubborn")...)
	s.touch("go")
	s.beats("one")
	if now := s.guard(); now != guard {
		t.Errorf("process %d is the guard, want the early one, %d", now, guard)
	}
	s.touch("revoked")
	if a := s.answer(); !a.Outcome.Stopped || a.Failure != "" {
		t.Errorf("got %+v", a)
	}
}

func TestEarlyGuardThatRunDoesNotTakeEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	began := time.Now()
	spare, guard := startSpare(t)
	awaitGone(t, guard)
	if took := time.Since(began); took < spareLimit {
		t.Errorf("the guard ended after %v, before its limit of %v", took, spareLimit)
	}
	if guard := spare.take(); guard != nil {
		t.Errorf("Run would get the guard %d, which has ended", guard.process.Pid)
	}
}

func TestRunAfterTheLimitOfTheEarlyGuardStartsAnother(t *testing.T) {
	t.Parallel()
	s, guard := startEarly(t, usual, early{Limited: true}, script("exit 7")...)
	awaitGone(t, guard)
	s.touch("go")
	if a := s.answer(); a.Outcome.ExitCode() != 7 || a.Failure != "" {
		t.Errorf("got %+v", a)
	}
}

func TestClosedEarlyGuardHasEnded(t *testing.T) {
	t.Parallel()
	spare, guard := startSpare(t)
	spare.Close()
	if err := syscall.Kill(guard, 0); err != syscall.ESRCH {
		t.Errorf("process %d is still there: %v", guard, err)
	}
	spare.Close() // does nothing
}

// A guard that was killed before it received an order has started nothing, so Run replaces it.
func TestKilledEarlyGuardIsReplaced(t *testing.T) {
	t.Parallel()
	terms := Terms{TTL: 2 * testTTL, KillAfter: testTTL / 2} // SIGKILL comes early enough on a machine that is busy
	s, guard := startEarly(t, terms, early{KillGuard: true}, script("BEAT one stubborn")...)
	s.touch("go")
	s.beats("one")
	if now := s.guard(); now == guard {
		t.Errorf("the killed process %d is the guard", guard)
	}
	s.signal(syscall.SIGSTOP) // the new guard alone ends the command
	s.deadBefore("one", s.deadline())
	s.signal(syscall.SIGCONT)
	if a := s.answer(); !a.Outcome.Stopped || a.Failure != "" {
		t.Errorf("got %+v", a)
	}
}

func TestKilledEarlyGuardIsReplacedOnce(t *testing.T) {
	t.Parallel()
	s := newFixture(t, usual, script("touch started")...)
	s.spec.Early = &early{KillGuard: true}
	s.spec.Guard = []string{GuardName, "failing guard", s.spec.path("guards")}
	s.begin()
	s.until("the guard was started early", func() bool { return exists(s.spec.path("spare")) })
	os.Remove(s.spec.path("guards")) // the early guard may have been killed before it counted itself
	s.touch("go")
	a := s.answer()
	if !a.Guard || a.Outcome.Remains || exists(s.spec.path("started")) {
		t.Errorf("got %+v; the command was started: %v", a, exists(s.spec.path("started")))
	}
	text, _ := os.ReadFile(s.spec.path("guards"))
	if n := strings.Count(string(text), "\n"); n != 1 {
		t.Errorf("Run started %d guards in place of the early one, want 1", n)
	}
}

func TestEarlyGuardEndsWithItsWrapper(t *testing.T) {
	t.Parallel()
	s, guard := startEarly(t, usual, early{}, script("exit 0")...)
	s.signal(syscall.SIGKILL)
	s.until("the guard has ended", func() bool { return !runs(guard) })
}

// The children that the wrapper has when it calls Run are not the command's.
func TestEarlierChildrenOutliveTheCommand(t *testing.T) {
	for name, end := range map[string]func(s *fixture){
		"lost lease":   func(s *fixture) { os.Remove(s.spec.path("store")) },
		"killed guard": func(s *fixture) { syscall.Kill(s.number("spare"), syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := startEarly(t, usual, early{Children: true}, script("BEAT one stubborn & BEAT two stubborn")...)
			children := []int{s.beats("before"), s.beats("between")}
			t.Cleanup(func() {
				for _, pid := range children {
					syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			s.touch("go")
			commands := []int{s.beats("one"), s.beats("two")}
			end(s)
			s.answer()
			for _, pid := range commands {
				if runs(pid) {
					t.Errorf("process %d of the command runs", pid)
				}
			}
			for i, pid := range children {
				if !runs(pid) {
					t.Errorf("child %d, process %d, was ended with the command", i, pid)
				}
			}
		})
	}
}
