//go:build linux || darwin

package supervise

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// keyboard is the master end of a terminal.
type keyboard struct {
	t      *testing.T
	master *os.File
	mu     sync.Mutex
	shown  []byte
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// startOnTerminal starts a program on its own terminal, as the leader of the session.
func startOnTerminal(t *testing.T, cmd *exec.Cmd) *keyboard {
	t.Helper()
	master, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	// A nonblocking file uses the runtime's poller, so that closing it ends a read.
	fd, err := unix.Dup(int(master.Fd()))
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	master.Close()
	master = os.NewFile(uintptr(fd), "terminal")
	k := &keyboard{t: t, master: master}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for piece := make([]byte, 1000); ; {
			n, err := master.Read(piece)
			k.mu.Lock()
			k.shown = append(k.shown, piece[:n]...)
			k.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		master.Close()
		<-read
	})
	return k
}

func (k *keyboard) screen() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return string(k.shown)
}

func (k *keyboard) types(text string) {
	k.t.Helper()
	if _, err := k.master.WriteString(text); err != nil {
		k.t.Fatal(err)
	}
}

// foreground returns the terminal's foreground group.
func (k *keyboard) foreground() int {
	k.t.Helper()
	group := 0
	k.control(func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	return group
}

// control calls do with the terminal's descriptor. (Method Fd would take the file from the poller.)
func (k *keyboard) control(do func(fd int) error) {
	k.t.Helper()
	raw, err := k.master.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { err = do(int(fd)) })
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// beginOnTerminal starts the wrapper on a terminal, without a shell.
func (s *fixture) beginOnTerminal() *keyboard {
	s.t.Helper()
	s.writeSpec()
	s.cmd = exec.Command(self(), "wrapper", s.spec.path("spec"))
	s.cmd.Dir, s.cmd.Env = s.spec.Dir, append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	k := startOnTerminal(s.t, s.cmd)
	s.screen = k.screen
	s.reap()
	return k
}

func (s *fixture) shows(k *keyboard, text string) {
	s.t.Helper()
	s.until("the terminal shows "+text, func() bool { return strings.Contains(k.screen(), text) })
}

const listens = `trap 'echo interrupted' INT; echo ready; while :; do read -r line; test "$line" = q && exit 4; done`

func TestKeyboardReachesTheCommandOnce(t *testing.T) {
	for _, foreground := range []bool{true, false} {
		s := newFixture(t, usual, script(listens)...)
		s.spec.Terminal = foreground
		if !foreground { // a background command may not read from the terminal
			s.spec.Args = asBytes(script(`trap 'echo interrupted' INT; echo ready; until test -e q; do sleep 0.01; done; exit 4`))
		}
		k := s.beginOnTerminal()
		s.shows(k, "ready")
		if owns := k.foreground() == s.cmd.Process.Pid; owns == foreground {
			t.Errorf("foreground %v: the wrapper's group is in the foreground: %v", foreground, owns)
		}
		k.types(ctrlC)
		s.shows(k, "interrupted")
		if foreground {
			k.types("q\n")
		} else {
			s.touch("q")
		}
		a := s.answer()
		if got := strings.Count(k.screen(), "interrupted"); a.Outcome.ExitCode() != 4 || got != 1 {
			t.Errorf("foreground %v: got %+v, interrupted %d times: %q", foreground, a, got, k.screen())
		}
	}
}

func TestInterruptKeyIsReportedAsInterrupt(t *testing.T) {
	s := newFixture(t, usual, script("echo ready; exec sleep 60")...)
	s.spec.Terminal = true
	k := s.beginOnTerminal()
	s.shows(k, "ready")
	k.types(ctrlC)
	if a := s.answer(); a.Outcome.Signal != int(syscall.SIGINT) || !a.Outcome.Interrupted {
		t.Errorf("got %+v", a)
	}
}

func TestHangupEndsTheCommand(t *testing.T) {
	s := newFixture(t, usual, script("BEAT one stubborn & BEAT two")...)
	s.spec.Terminal = true
	k := s.beginOnTerminal()
	stubborn, other := s.beats("one"), s.beats("two")
	k.master.Close()
	a := s.answer()
	if a.Outcome.ExitCode() != 129 || runs(stubborn) || runs(other) {
		t.Errorf("got %+v", a)
	}
}

// When Run waits for processes that the command left running, the keyboard's signals reach them.
func TestKeyboardReachesLeftovers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what leaves the group is not found")
	}
	s := newFixture(t, Terms{TTL: 60 * testTTL, KillAfter: testTTL, Wait: true},
		script("BEAT one heedful apart & BEAT two heedful & until test -s one -a -s two; do sleep 0.01; done; exit 5")...)
	s.spec.Terminal = true
	k := s.beginOnTerminal()
	left, inGroup := s.beats("one"), s.beats("two")
	s.until("the wrapper has the terminal", func() bool { return k.foreground() == s.cmd.Process.Pid })
	k.types(ctrlZ)
	time.Sleep(100 * time.Millisecond) // long enough to be forwarded, if Ctrl-Z were
	k.types(ctrlC)
	if a := s.answer(); a.Outcome.ExitCode() != 5 || runs(left) || runs(inGroup) {
		t.Errorf("got %+v", a)
	}
}

// shell starts an interactive shell with job control, and the wrapper in it.
func (s *fixture) shell() *keyboard {
	s.t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		s.t.Fatal(err)
	}
	s.spec.Terminal = true
	s.writeSpec()
	s.cmd = exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i")
	s.cmd.Dir = s.spec.Dir
	s.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "PS1=prompt$ ", "HISTFILE=", "WRAPPER="+self())
	k := startOnTerminal(s.t, s.cmd)
	s.screen = k.screen
	s.reap()
	s.shows(k, "prompt$ ")
	k.types("$WRAPPER wrapper spec; echo over$?\n")
	return k
}

func (s *fixture) seesOutcome() answer {
	s.t.Helper()
	var a answer
	s.until("an outcome", func() bool {
		text, err := os.ReadFile(s.spec.path("outcome"))
		return err == nil && json.Unmarshal(text, &a) == nil
	})
	return a
}

func TestShellStopsAndContinuesTheCommand(t *testing.T) {
	s := newFixture(t, Terms{TTL: 60 * testTTL, KillAfter: testTTL}, script("echo $$ >pid; "+listens)...)
	k := s.shell()
	s.shows(k, "ready")
	shell := s.cmd.Process.Pid
	// The keyboard stops the command twice, and the shell continues it in the foreground.
	for round := 1; round <= 2; round++ {
		k.types(ctrlZ)
		s.until("the shell has the terminal", func() bool { return k.foreground() == shell })
		s.until("it is stopped", func() bool { return strings.Count(k.screen(), "Stopped") == round })
		k.types("fg\n")
		s.until("the command has the terminal", func() bool { return k.foreground() != shell && k.foreground() == s.number("pid") })
		// Wait until the command reads again: its shell would handle an earlier signal and then go on reading.
		s.until("the command reads", func() bool { return stateOf(s.number("pid")) == 'S' })
		k.types(ctrlC)
		s.until("it is interrupted", func() bool { return strings.Count(k.screen(), "interrupted") == round })
	}
	// In the background the command cannot read from the terminal, so it is stopped again.
	k.types(ctrlZ)
	s.until("the shell has the terminal", func() bool { return k.foreground() == shell })
	k.types("bg\n")
	k.types("echo still$((1+1))here\n")
	s.shows(k, "still2here")
	wrapper := childOf(t, shell)
	s.until("the wrapper is stopped", func() bool { return stateOf(wrapper) == 'T' })
	// The shell continues the wrapper only after it has seen that it is stopped.
	s.until("the shell knows", func() bool {
		k.types("\n")
		return strings.Count(k.screen(), "Stopped") == 4
	})
	k.types("fg\n")
	s.until("the command has the terminal", func() bool { return k.foreground() == s.number("pid") })
	// A signal to the wrapper stops the command as well.
	s.until("the command reads", func() bool { return stateOf(s.number("pid")) == 'S' })
	if err := syscall.Kill(wrapper, syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	s.until("the shell has the terminal", func() bool { return k.foreground() == shell })
	s.until("it is stopped", func() bool { return strings.Count(k.screen(), "Stopped") == 5 })
	k.types("fg\n")
	s.until("the command has the terminal", func() bool { return k.foreground() == s.number("pid") })
	k.types("q\n")
	if a := s.seesOutcome(); a.Outcome.ExitCode() != 4 || a.Outcome.Stopped {
		t.Errorf("got %+v", a)
	}
	s.until("the shell has the terminal", func() bool { return k.foreground() == shell })
}

// stateOf returns the state of a process: S if it waits, T if it is stopped.
func stateOf(pid int) byte {
	state, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return (strings.TrimSpace(string(state)) + " ")[0]
}

// number reads a number from a file; 0 if the file has none.
func (s *fixture) number(name string) int {
	var n int
	text, _ := os.ReadFile(s.spec.path(name))
	if json.Unmarshal(text, &n) != nil {
		return 0
	}
	return n
}

// While the keyboard has stopped the command and the wrapper, no process renews the lease. The guard kills the command.
func TestCommandStoppedPastItsDeadlineIsKilled(t *testing.T) {
	s := newFixture(t, usual, script("BEAT one stubborn")...)
	k := s.shell()
	s.beats("one")
	k.types(ctrlZ)
	s.shows(k, "Stopped")
	s.deadBefore("one", s.deadline())
	k.types("fg\n")
	if a := s.seesOutcome(); !a.Outcome.Stopped {
		t.Errorf("got %+v", a)
	}
	s.until("the shell has the terminal", func() bool { return k.foreground() == s.cmd.Process.Pid })
}

// Without a shell that could continue it, a command that the keyboard stops goes on, as it would without the wrapper.
func TestCommandStoppedWithoutAShellGoesOn(t *testing.T) {
	s := newFixture(t, usual, script(listens)...)
	s.spec.Terminal = true
	k := s.beginOnTerminal()
	s.shows(k, "ready")
	k.types(ctrlZ)
	k.types("q\n")
	if a := s.answer(); a.Outcome.ExitCode() != 4 {
		t.Errorf("got %+v", a)
	}
}

// After a command is killed that changed the terminal's modes, the wrapper restores them.
func TestTerminalModesAreRestored(t *testing.T) {
	s := newFixture(t, usual, script("stty raw -echo; echo ready; kill -9 $$")...)
	s.spec.Terminal = true
	k := s.beginOnTerminal()
	if a := s.answer(); a.Outcome.Signal != int(syscall.SIGKILL) {
		t.Errorf("got %+v: %q", a, k.screen())
	}
	var modes *unix.Termios
	k.control(func(fd int) (err error) {
		modes, err = unix.IoctlGetTermios(fd, readModes)
		return err
	})
	if modes.Lflag&unix.ECHO == 0 || modes.Lflag&unix.ICANON == 0 {
		t.Errorf("the terminal is left with %+v", modes)
	}
}
