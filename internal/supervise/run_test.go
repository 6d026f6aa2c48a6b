//go:build linux || darwin

package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runs reports whether a process exists that is no zombie.
func runs(pid int) bool {
	if runtime.GOOS == "linux" {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !strings.Contains(string(stat), ") Z ")
	}
	return syscall.Kill(pid, 0) == nil
}

func TestExitCodeIsThatOfTheCommand(t *testing.T) {
	for _, c := range []struct {
		script string
		want   int
	}{
		{"exit 0", 0}, {"exit 7", 7}, {"exit 255", 255}, {"kill -9 $$", 137}, {"kill $$", 143},
	} {
		t.Run(c.script, func(t *testing.T) {
			s := startWrapper(t, usual, script(c.script)...)
			if a := s.answer(); a.Outcome.ExitCode() != c.want || a.Failure != "" || a.Outcome.Stopped {
				t.Errorf("got %+v, want code %d; the warnings were %q", a, c.want, s.warnings())
			}
		})
	}
}

func TestCommandThatCannotStartIsReported(t *testing.T) {
	dir := t.TempDir()
	plain, text := filepath.Join(dir, "plain"), filepath.Join(dir, "text")
	for name, mode := range map[string]os.FileMode{plain: 0o600, text: 0o700} {
		if err := os.WriteFile(name, []byte("not a program\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{filepath.Join(dir, "none"): 127, plain: 126, text: 126, dir: 126} {
		a := startWrapper(t, usual, path).answer()
		if a.Start == nil || a.Start.Code != want || a.Start.Path != path {
			t.Errorf("%s: got %+v, want code %d", path, a, want)
		}
	}
}

func TestLongCommandLineReachesTheCommand(t *testing.T) {
	args := append(script(`test ${#1} = 100000 && test $# = 12 && test "$2" = "$(printf '\377')"`), "sh")
	args = append(args, strings.Repeat("x", 100_000), "\xff")
	for range 10 {
		args = append(args, strings.Repeat("y", 20_000))
	}
	if a := startWrapper(t, usual, args...).answer(); a.Outcome.ExitCode() != 0 || a.Failure != "" {
		t.Errorf("got %+v", a)
	}
}

func TestLostLeaseEndsTheCommandBeforeItsDeadline(t *testing.T) {
	for _, how := range []string{"", " stubborn"} {
		t.Run("command"+how, func(t *testing.T) {
			t.Parallel()
			s := startWrapper(t, usual, script("BEAT one"+how)...)
			s.beats("one")
			os.Remove(s.spec.path("store"))
			a := s.answer()
			s.deadBefore("one", s.deadline())
			if !a.Outcome.Stopped {
				t.Errorf("the command was not stopped because of the lease: %+v", a)
			}
			if want := "could not be renewed in time"; !strings.Contains(s.warnings(), want) {
				t.Errorf("the warnings were %q, want %q", s.warnings(), want)
			}
		})
	}
}

func TestRenewedLeaseLetsTheCommandRun(t *testing.T) {
	t.Parallel()
	s := startWrapper(t, usual, script("sleep 4.5; exit 3")...) // longer than the lease lasts without a renewal
	if a := s.answer(); a.Outcome.ExitCode() != 3 || a.Outcome.Stopped {
		t.Errorf("got %+v; the warnings were %q", a, s.warnings())
	}
}

// The wrapper is stopped, so its lease expires.
func TestCommandOfAStoppedWrapperIsKilled(t *testing.T) {
	t.Parallel()
	s := startWrapper(t, usual, script("BEAT one stubborn & BEAT two apart stubborn & BEAT three stubborn")...)
	for _, name := range []string{"one", "two", "three"} {
		s.beats(name)
	}
	s.signal(syscall.SIGSTOP)
	// A stopped wrapper does not move the deadline.
	deadline := s.deadline()
	for _, name := range []string{"one", "three"} {
		s.deadBefore(name, deadline)
	}
	if runtime.GOOS == "linux" {
		s.deadBefore("two", deadline)
	}
	s.signal(syscall.SIGCONT)
	if a := s.answer(); !a.Outcome.Stopped {
		t.Errorf("got %+v", a)
	}
}

func TestCommandOfAKilledWrapperIsKilled(t *testing.T) {
	t.Parallel()
	s := startWrapper(t, Terms{TTL: 60 * time.Second, KillAfter: 400 * time.Millisecond, OnLost: Warn},
		script("BEAT one stubborn & BEAT two apart stubborn & BEAT three stubborn")...)
	pids := []int{s.beats("one"), s.beats("three")}
	if pid := s.beats("two"); runtime.GOOS == "linux" {
		pids = append(pids, pid)
	}
	guard := s.guard()
	s.signal(syscall.SIGKILL)
	for _, pid := range append(pids, guard) {
		s.until(fmt.Sprintf("%d is dead", pid), func() bool { return !runs(pid) })
	}
}

func TestCommandOfAKilledGuardIsKilled(t *testing.T) {
	t.Parallel()
	s := startWrapper(t, usual, script("BEAT one stubborn & BEAT two apart stubborn & BEAT three stubborn")...)
	pids := []int{s.beats("one"), s.beats("three")}
	if pid := s.beats("two"); runtime.GOOS == "linux" {
		pids = append(pids, pid)
	}
	if err := syscall.Kill(s.guard(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a := s.answer()
	for _, pid := range pids {
		if runs(pid) {
			t.Errorf("%d runs", pid)
		}
	}
	if !a.Guard || a.Outcome.Remains || !strings.Contains(a.Failure, "killed") {
		t.Errorf("got %+v", a)
	}
}

// The wrapper continues a guard that a signal stopped.
func TestStoppedGuardIsContinued(t *testing.T) {
	t.Parallel()
	s := startWrapper(t, usual, script("BEAT one stubborn")...)
	s.beats("one")
	if err := syscall.Kill(s.guard(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	os.Remove(s.spec.path("store"))
	if a := s.answer(); !a.Outcome.Stopped {
		t.Errorf("got %+v", a)
	}
	s.deadBefore("one", s.deadline())
}

func TestRevokedLeaseEndsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	s := startWrapper(t, Terms{TTL: 60 * time.Second, KillAfter: 300 * time.Millisecond, OnLost: Warn}, script("BEAT one")...)
	s.beats("one")
	s.touch("revoked")
	s.until("a warning", func() bool {
		return strings.Contains(s.warnings(), "revoked") && strings.Contains(s.warnings(), "runs on")
	})
	s.signal(syscall.SIGTERM)
	if a := s.answer(); a.Outcome.ExitCode() != 143 || a.Outcome.Stopped {
		t.Errorf("got %+v", a)
	}

	for _, policy := range []Policy{Term, Kill} {
		s = startWrapper(t, Terms{TTL: 60 * time.Second, KillAfter: 5 * time.Second, OnLost: policy}, script("trap 'exit 9' TERM; touch ready; while :; do sleep 0.01; done")...)
		s.until("ready", func() bool { return exists(s.spec.path("ready")) })
		s.touch("revoked")
		a := s.answer()
		if !a.Outcome.Stopped || !strings.Contains(s.warnings(), "revoked") {
			t.Errorf("%v: got %+v, the warnings were %q", policy, a, s.warnings())
		}
		if policy == Kill && a.Outcome.ExitCode() != 137 {
			t.Errorf("got %+v", a)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestLeftoversAreEndedOrWaitedFor(t *testing.T) {
	t.Parallel()
	const leaves = " & until test -s daemon; do sleep 0.01; done; exit 5"
	how := "BEAT daemon"
	if runtime.GOOS == "linux" {
		how += " apart"
	}
	// Run ends the processes that the command leaves running before it returns.
	s := startWrapper(t, Terms{TTL: testTTL, KillAfter: 300 * time.Millisecond}, script(how+" stubborn"+leaves)...)
	a := s.answer()
	if pid := s.beats("daemon"); runs(pid) {
		t.Errorf("%d runs", pid)
	}
	if a.Outcome.ExitCode() != 5 || a.Outcome.Stopped || !strings.Contains(s.warnings(), "left processes running") {
		t.Errorf("got %+v, the warnings were %q", a, s.warnings())
	}

	// With Wait, Run waits for them. If the lease is lost, it ends them like the command itself.
	s = startWrapper(t, Terms{TTL: testTTL, KillAfter: testTTL / 3, Wait: true}, script(how+leaves)...)
	pid := s.beats("daemon")
	if !runs(pid) {
		t.Error("the daemon was not waited for")
	}
	os.Remove(s.spec.path("store"))
	s.deadBefore("daemon", s.deadline())
	if a := s.answer(); a.Outcome.ExitCode() != 5 || !a.Outcome.Stopped {
		t.Errorf("got %+v", a)
	}
}

func TestLeftoversMayOutliveTheCommand(t *testing.T) {
	t.Parallel()
	s := startWrapper(t, Terms{TTL: testTTL, KillAfter: testTTL / 3, Wait: true}, script("(sleep 0.5; touch late) & exit 5")...)
	if a := s.answer(); a.Outcome.ExitCode() != 5 || a.Outcome.Stopped || !exists(s.spec.path("late")) {
		t.Errorf("got %+v", a)
	}
}

// After the command has ended, the processes that it left running receive the signals, whatever their group.
func TestSignalsReachLeftovers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("what leaves the group is not found")
	}
	s := startWrapper(t, Terms{TTL: 60 * time.Second, KillAfter: testTTL, Wait: true},
		script("echo $$ >pid; BEAT daemon apart & until test -s daemon; do sleep 0.01; done; exit 5")...)
	daemon := s.beats("daemon")
	s.until("the command has ended", func() bool { return !runs(s.number("pid")) })
	s.signal(syscall.SIGTERM)
	if a := s.answer(); a.Outcome.ExitCode() != 5 || a.Outcome.Stopped || runs(daemon) {
		t.Errorf("got %+v; the daemon runs: %v", a, runs(daemon))
	}
}

// After a command has ended, its ID may be that of an unrelated group, which must receive no signal.
func TestReusedGroupIDGetsNoSignal(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there it cannot be known")
	}
	out, err := exec.Command("/bin/sh", "-c", "setsid sleep 100 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	var unrelated int
	fmt.Sscan(string(out), &unrelated)
	defer syscall.Kill(unrelated, syscall.SIGKILL)
	for limit := time.Now().Add(testTimeout); !inGroup(unrelated, unrelated); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the unrelated process has no group of its own")
		}
	}
	g := &guardState{head: unrelated, reaped: true}
	if err := g.forward(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	time.Sleep(50 * time.Millisecond) // a killed process ends sooner
	if !runs(unrelated) {
		t.Error("an unrelated process was killed")
	}
}

func TestSignalsAreForwardedOnce(t *testing.T) {
	t.Parallel()
	for _, sent := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2} {
		number := int(sent)
		s := startWrapper(t, usual, script(fmt.Sprintf("trap 'echo once; exit 9' %d; touch ready; while :; do sleep 0.01; done", number))...)
		s.until("ready", func() bool { return exists(s.spec.path("ready")) })
		s.signal(sent)
		if a := s.answer(); a.Outcome.ExitCode() != 9 || strings.Count(s.out.String(), "once") != 1 {
			t.Errorf("%v: got %+v, the command wrote %q", sent, a, s.out.String())
		}
	}
}

// A stopped command is continued so that it handles SIGTERM.
func TestStoppedCommandIsContinuedToEnd(t *testing.T) {
	t.Parallel()
	s := startWrapper(t, usual, script("trap 'echo terminated; exit 9' TERM; echo $$ >pid; touch ready; while :; do sleep 0.01; done")...)
	s.until("ready", func() bool { return exists(s.spec.path("ready")) })
	var pid int
	text, _ := os.ReadFile(s.spec.path("pid"))
	fmt.Sscan(string(text), &pid)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	os.Remove(s.spec.path("store"))
	if a := s.answer(); !a.Outcome.Stopped || a.Outcome.Code != 9 {
		t.Errorf("got %+v", a)
	}
}

// The command inherits the files, limits and signal actions that it would inherit without the wrapper and the guard.
func TestCommandInheritsWhatItWouldWithoutLeasekeeper(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /proc")
	}
	// exec, because some shells block all signals while they start a child.
	look := script("ls /proc/$$/fd; ulimit -n; umask; pwd; exec grep -E 'Sig(Ign|Cgt|Blk)|NoNewPrivs' /proc/self/status")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	inherit := []*os.File{null, nil, null} // 3 and 5

	s := newFixture(t, usual, look...)
	s.inherit = inherit
	s.begin()
	s.answer()
	direct := exec.Command(look[0], look[1:]...)
	direct.Dir, direct.ExtraFiles = s.spec.Dir, inherit
	want, err := direct.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.out.String(); got != string(want) {
		t.Errorf("the command inherited\n%s\nwithout the wrapper it would have inherited\n%s", got, want)
	}
}

// A command that ends when its lease expires is reported either as stopped or as ended by itself.
func TestCommandThatEndsDuringTheLossHasOneOutcome(t *testing.T) {
	t.Parallel()
	terms := Terms{TTL: 900 * time.Millisecond, KillAfter: 300 * time.Millisecond}
	stopped := 0
	for i := range 12 {
		s := newFixture(t, terms, script(fmt.Sprintf("sleep 0.5%d; exit 4", 60+3*i))...)
		os.Remove(s.spec.path("store"))
		s.begin()
		a := s.answer()
		switch {
		case a.TooLate:
			t.Log("the command took too long to start")
		case a.Outcome.Stopped && (a.Outcome.ExitCode() == 143 || a.Outcome.ExitCode() == 137): // the latter if the guard was late
			stopped++
		case !a.Outcome.Stopped && a.Outcome.ExitCode() == 4:
		case a.Outcome.Stopped && a.Outcome.ExitCode() == 4: // it ended by itself while SIGTERM was under way
			stopped++
		default:
			t.Errorf("got %+v", a)
		}
	}
	t.Logf("%d were stopped", stopped)
}

func TestGuardUsesLittleMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /proc")
	}
	s := startWrapper(t, usual, script("BEAT one")...)
	s.beats("one")
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.guard()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kilobytes); n == 1 {
			t.Logf("%d kB", kilobytes)
			if kilobytes > 32<<10 { // with the race detector; without, a tenth of it
				t.Errorf("the guard has %d kB of its own", kilobytes)
			}
		}
	}
}
