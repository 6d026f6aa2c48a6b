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

// runs says whether a process is there that could still do something.
func runs(pid int) bool {
	if runtime.GOOS == "linux" {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !strings.Contains(string(stat), ") Z ")
	}
	return syscall.Kill(pid, 0) == nil
}

func TestExitCodeOfTheCommand(t *testing.T) {
	for _, c := range []struct {
		script string
		want   int
	}{
		{"exit 0", 0}, {"exit 7", 7}, {"exit 255", 255}, {"kill -9 $$", 137}, {"kill $$", 143},
	} {
		t.Run(c.script, func(t *testing.T) {
			s := play(t, usual, script(c.script)...)
			if a := s.answer(); a.Outcome.ExitCode() != c.want || a.Failure != "" || a.Outcome.Stopped {
				t.Errorf("got %+v, want code %d; told %q", a, c.want, s.told())
			}
		})
	}
}

func TestCommandThatCanNotRun(t *testing.T) {
	dir := t.TempDir()
	plain, text := filepath.Join(dir, "plain"), filepath.Join(dir, "text")
	for name, mode := range map[string]os.FileMode{plain: 0o600, text: 0o700} {
		if err := os.WriteFile(name, []byte("not a program\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{filepath.Join(dir, "none"): 127, plain: 126, text: 126, dir: 126} {
		a := play(t, usual, path).answer()
		if a.Start == nil || a.Start.Code != want || a.Start.Path != path {
			t.Errorf("%s: got %+v, want code %d", path, a, want)
		}
	}
}

func TestHugeCommandLine(t *testing.T) {
	args := append(script(`test ${#1} = 100000 && test $# = 12 && test "$2" = "$(printf '\377')"`), "sh")
	args = append(args, strings.Repeat("x", 100_000), "\xff")
	for range 10 {
		args = append(args, strings.Repeat("y", 20_000))
	}
	if a := play(t, usual, args...).answer(); a.Outcome.ExitCode() != 0 || a.Failure != "" {
		t.Errorf("got %+v", a)
	}
}

func TestLostLeaseEndsTheCommandBeforeItsDeadline(t *testing.T) {
	for _, how := range []string{"", " stubborn"} {
		t.Run("command"+how, func(t *testing.T) {
			t.Parallel()
			s := play(t, usual, script("BEAT one"+how)...)
			s.beats("one")
			os.Remove(s.wish.path("store"))
			a := s.answer()
			s.deadBefore("one", s.deadline())
			if !a.Outcome.Stopped {
				t.Errorf("it was not stopped: %+v", a)
			}
			if want := "could not be renewed in time"; !strings.Contains(s.told(), want) {
				t.Errorf("told %q, want %q", s.told(), want)
			}
		})
	}
}

func TestRenewedLeaseLetsTheCommandRun(t *testing.T) {
	t.Parallel()
	s := play(t, Terms{TTL: time.Second, KillAfter: time.Second / 3}, script("sleep 2.5; exit 3")...)
	if a := s.answer(); a.Outcome.ExitCode() != 3 || a.Outcome.Stopped {
		t.Errorf("got %+v; told %q", a, s.told())
	}
}

// The accident: the wrapper is stopped, and its lease runs out.
func TestStoppedWrapper(t *testing.T) {
	t.Parallel()
	s := play(t, usual, script("BEAT one stubborn & BEAT two apart stubborn & BEAT three stubborn")...)
	for _, name := range []string{"one", "two", "three"} {
		s.beats(name)
	}
	s.signal(syscall.SIGSTOP)
	// From here on the deadline does not move.
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

func TestKilledWrapper(t *testing.T) {
	t.Parallel()
	s := play(t, Terms{TTL: 60 * time.Second, KillAfter: 400 * time.Millisecond, OnLost: Warn},
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

func TestKilledGuard(t *testing.T) {
	t.Parallel()
	s := play(t, usual, script("BEAT one stubborn & BEAT two apart stubborn & BEAT three stubborn")...)
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

// A guard that somebody stopped goes on.
func TestStoppedGuard(t *testing.T) {
	t.Parallel()
	s := play(t, usual, script("BEAT one stubborn")...)
	s.beats("one")
	if err := syscall.Kill(s.guard(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	os.Remove(s.wish.path("store"))
	if a := s.answer(); !a.Outcome.Stopped {
		t.Errorf("got %+v", a)
	}
	s.deadBefore("one", s.deadline())
}

func TestRevokedLeaseEndsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	s := play(t, Terms{TTL: 60 * time.Second, KillAfter: 300 * time.Millisecond, OnLost: Warn}, script("BEAT one")...)
	s.beats("one")
	s.touch("revoked")
	s.until("a warning", func() bool { return strings.Contains(s.told(), "revoked") && strings.Contains(s.told(), "runs on") })
	s.signal(syscall.SIGTERM)
	if a := s.answer(); a.Outcome.ExitCode() != 143 || a.Outcome.Stopped {
		t.Errorf("got %+v", a)
	}

	for _, policy := range []Policy{Term, Kill} {
		s = play(t, Terms{TTL: 60 * time.Second, KillAfter: 5 * time.Second, OnLost: policy}, script("trap 'exit 9' TERM; touch ready; while :; do sleep 0.01; done")...)
		s.until("ready", func() bool { return exists(s.wish.path("ready")) })
		s.touch("revoked")
		a := s.answer()
		if !a.Outcome.Stopped || !strings.Contains(s.told(), "revoked") {
			t.Errorf("%v: got %+v, told %q", policy, a, s.told())
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

func TestLeftovers(t *testing.T) {
	t.Parallel()
	const leaves = " & until test -s daemon; do sleep 0.01; done; exit 5"
	how := "BEAT daemon"
	if runtime.GOOS == "linux" {
		how += " apart"
	}
	// What a command leaves running is ended before it is said to be over.
	s := play(t, Terms{TTL: testTTL, KillAfter: 300 * time.Millisecond}, script(how+" stubborn"+leaves)...)
	a := s.answer()
	if pid := s.beats("daemon"); runs(pid) {
		t.Errorf("%d runs", pid)
	}
	if a.Outcome.ExitCode() != 5 || a.Outcome.Stopped || !strings.Contains(s.told(), "left something running") {
		t.Errorf("got %+v, told %q", a, s.told())
	}

	// Or waited for; it is ended like the command itself if the lease is lost.
	s = play(t, Terms{TTL: testTTL, KillAfter: testTTL / 3, Wait: true}, script(how+leaves)...)
	pid := s.beats("daemon")
	if !runs(pid) {
		t.Error("the daemon was not waited for")
	}
	os.Remove(s.wish.path("store"))
	s.deadBefore("daemon", s.deadline())
	if a := s.answer(); a.Outcome.ExitCode() != 5 || !a.Outcome.Stopped {
		t.Errorf("got %+v", a)
	}
}

func TestWaitForLeftovers(t *testing.T) {
	t.Parallel()
	s := play(t, Terms{TTL: testTTL, KillAfter: testTTL / 3, Wait: true}, script("(sleep 0.5; touch late) & exit 5")...)
	if a := s.answer(); a.Outcome.ExitCode() != 5 || a.Outcome.Stopped || !exists(s.wish.path("late")) {
		t.Errorf("got %+v", a)
	}
}

// What is waited for hears the signals once the command itself has ended, wherever it runs.
func TestSignalsReachLeftovers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("what leaves the group is not found")
	}
	s := play(t, Terms{TTL: 60 * time.Second, KillAfter: testTTL, Wait: true},
		script("echo $$ >pid; BEAT daemon apart & until test -s daemon; do sleep 0.01; done; exit 5")...)
	daemon := s.beats("daemon")
	s.until("the command has ended", func() bool { return !runs(s.number("pid")) })
	s.signal(syscall.SIGTERM)
	if a := s.answer(); a.Outcome.ExitCode() != 5 || a.Outcome.Stopped || runs(daemon) {
		t.Errorf("got %+v; the daemon runs: %v", a, runs(daemon))
	}
}

// The number of a command that has ended may be that of a stranger's group by now.
func TestStrangersHearNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there it cannot be known")
	}
	out, err := exec.Command("/bin/sh", "-c", "setsid sleep 100 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	var stranger int
	fmt.Sscan(string(out), &stranger)
	defer syscall.Kill(stranger, syscall.SIGKILL)
	for limit := time.Now().Add(patient); !isIn(stranger, stranger); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it has no group of its own")
		}
	}
	g := &guard{head: stranger, reaped: true}
	if err := g.pass(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	time.Sleep(50 * time.Millisecond) // to die takes less
	if !runs(stranger) {
		t.Error("a stranger was killed")
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	for _, sent := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2} {
		number := int(sent)
		s := play(t, usual, script(fmt.Sprintf("trap 'echo once; exit 9' %d; touch ready; while :; do sleep 0.01; done", number))...)
		s.until("ready", func() bool { return exists(s.wish.path("ready")) })
		s.signal(sent)
		if a := s.answer(); a.Outcome.ExitCode() != 9 || strings.Count(s.out.String(), "once") != 1 {
			t.Errorf("%v: got %+v, it wrote %q", sent, a, s.out.String())
		}
	}
}

// A command that is stopped is continued by what ends it.
func TestStoppedCommand(t *testing.T) {
	t.Parallel()
	s := play(t, usual, script("trap 'echo told; exit 9' TERM; echo $$ >pid; touch ready; while :; do sleep 0.01; done")...)
	s.until("ready", func() bool { return exists(s.wish.path("ready")) })
	var pid int
	text, _ := os.ReadFile(s.wish.path("pid"))
	fmt.Sscan(string(text), &pid)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	os.Remove(s.wish.path("store"))
	if a := s.answer(); !a.Outcome.Stopped || a.Outcome.Code != 9 {
		t.Errorf("got %+v", a)
	}
}

// What the command inherits is what it would without us.
func TestCommandInheritsOnlyWhatItShould(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /proc")
	}
	// By the shell's own process: while a child begins, some shells have all signals blocked.
	look := script("ls /proc/$$/fd; ulimit -n; umask; pwd; exec grep -E 'Sig(Ign|Cgt|Blk)|NoNewPrivs' /proc/self/status")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	inherit := []*os.File{null, nil, null} // 3 and 5

	s := set(t, usual, look...)
	s.inherit = inherit
	s.begin()
	s.answer()
	direct := exec.Command(look[0], look[1:]...)
	direct.Dir, direct.ExtraFiles = s.wish.Dir, inherit
	want, err := direct.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.out.String(); got != string(want) {
		t.Errorf("it inherited\n%s\nwithout us it would have been\n%s", got, want)
	}
}

// A command that ends when its lease does is either stopped or not: never both, never neither.
func TestEndAtTheMomentOfLoss(t *testing.T) {
	t.Parallel()
	terms := Terms{TTL: 900 * time.Millisecond, KillAfter: 300 * time.Millisecond}
	stopped := 0
	for i := range 12 {
		s := set(t, terms, script(fmt.Sprintf("sleep 0.5%d; exit 4", 60+3*i))...)
		os.Remove(s.wish.path("store"))
		s.begin()
		a := s.answer()
		switch {
		case a.TooLate:
			t.Log("it took too long to start")
		case a.Outcome.Stopped && (a.Outcome.ExitCode() == 143 || a.Outcome.ExitCode() == 137): // the latter if the guard was late
			stopped++
		case !a.Outcome.Stopped && a.Outcome.ExitCode() == 4:
		case a.Outcome.Stopped && a.Outcome.ExitCode() == 4: // it ended while it was being told to
			stopped++
		default:
			t.Errorf("got %+v", a)
		}
	}
	t.Logf("%d were stopped", stopped)
}

func TestGuardIsSmall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /proc")
	}
	s := play(t, usual, script("BEAT one")...)
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
