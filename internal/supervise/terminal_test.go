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

// keyboard is the other end of a terminal.
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

// sit starts a program on a terminal of its own, as the leader of the session.
func sit(t *testing.T, cmd *exec.Cmd) *keyboard {
	t.Helper()
	master, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	// Through a poller, so that closing it ends a read.
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

// control does something to the terminal. (Fd would take it from the poller.)
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

// sitDown starts the wrapper on a terminal, without a shell.
func (s *scene) sitDown() *keyboard {
	s.t.Helper()
	s.writeWish()
	s.cmd = exec.Command(self(), "wrapper", s.wish.path("wish"))
	s.cmd.Dir, s.cmd.Env = s.wish.Dir, append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	k := sit(s.t, s.cmd)
	s.screen = k.screen
	s.reap()
	return k
}

func (s *scene) shows(k *keyboard, text string) {
	s.t.Helper()
	s.until("the terminal shows "+text, func() bool { return strings.Contains(k.screen(), text) })
}

const listens = `trap 'echo interrupted' INT; echo ready; while :; do read -r line; test "$line" = q && exit 4; done`

func TestKeyboardReachesTheCommandOnce(t *testing.T) {
	for _, foreground := range []bool{true, false} {
		s := set(t, usual, script(listens)...)
		s.wish.Terminal = foreground
		if !foreground { // it may not read then
			s.wish.Args = asBytes(script(`trap 'echo interrupted' INT; echo ready; until test -e q; do sleep 0.01; done; exit 4`))
		}
		k := s.sitDown()
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

func TestInterruptOfTheTerminal(t *testing.T) {
	s := set(t, usual, script("echo ready; exec sleep 60")...)
	s.wish.Terminal = true
	k := s.sitDown()
	s.shows(k, "ready")
	k.types(ctrlC)
	if a := s.answer(); a.Outcome.Signal != int(syscall.SIGINT) || !a.Outcome.Interrupted {
		t.Errorf("got %+v", a)
	}
}

func TestHangup(t *testing.T) {
	s := set(t, usual, script("BEAT one stubborn & BEAT two")...)
	s.wish.Terminal = true
	k := s.sitDown()
	stubborn, other := s.beats("one"), s.beats("two")
	k.master.Close()
	a := s.answer()
	if a.Outcome.ExitCode() != 129 || runs(stubborn) || runs(other) {
		t.Errorf("got %+v", a)
	}
}

// When the command has ended and what it left running is waited for, the keyboard reaches that.
func TestInterruptOfLeftovers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what leaves the group is not found")
	}
	s := set(t, Terms{TTL: 60 * testTTL, KillAfter: testTTL, Wait: true},
		script("BEAT one heedful apart & BEAT two heedful & until test -s one -a -s two; do sleep 0.01; done; exit 5")...)
	s.wish.Terminal = true
	k := s.sitDown()
	left, inGroup := s.beats("one"), s.beats("two")
	s.until("the wrapper has the terminal", func() bool { return k.foreground() == s.cmd.Process.Pid })
	k.types(ctrlZ)
	time.Sleep(100 * time.Millisecond) // long enough to be passed on, if it were
	k.types(ctrlC)
	if a := s.answer(); a.Outcome.ExitCode() != 5 || runs(left) || runs(inGroup) {
		t.Errorf("got %+v", a)
	}
}

// shell starts an interactive shell with job control, and in it the wrapper.
func (s *scene) shell() *keyboard {
	s.t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		s.t.Fatal(err)
	}
	s.wish.Terminal = true
	s.writeWish()
	s.cmd = exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i")
	s.cmd.Dir = s.wish.Dir
	s.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "PS1=prompt$ ", "HISTFILE=", "WRAPPER="+self())
	k := sit(s.t, s.cmd)
	s.screen = k.screen
	s.reap()
	s.shows(k, "prompt$ ")
	k.types("$WRAPPER wrapper wish; echo over$?\n")
	return k
}

func (s *scene) seesOutcome() answer {
	s.t.Helper()
	var a answer
	s.until("an outcome", func() bool {
		text, err := os.ReadFile(s.wish.path("outcome"))
		return err == nil && json.Unmarshal(text, &a) == nil
	})
	return a
}

func TestJobControl(t *testing.T) {
	s := set(t, Terms{TTL: 60 * testTTL, KillAfter: testTTL}, script("echo $$ >pid; "+listens)...)
	k := s.shell()
	s.shows(k, "ready")
	shell := s.cmd.Process.Pid
	// It is stopped by the keyboard, twice, and goes on in the foreground.
	for round := 1; round <= 2; round++ {
		k.types(ctrlZ)
		s.until("the shell has the terminal", func() bool { return k.foreground() == shell })
		s.until("it is stopped", func() bool { return strings.Count(k.screen(), "Stopped") == round })
		k.types("fg\n")
		s.until("the command has the terminal", func() bool { return k.foreground() != shell && k.foreground() == s.number("pid") })
		// A signal that comes between being continued and reading again is handled, and then the shell reads on.
		s.until("the command reads", func() bool { return stateOf(s.number("pid")) == 'S' })
		k.types(ctrlC)
		s.until("it is interrupted", func() bool { return strings.Count(k.screen(), "interrupted") == round })
	}
	// And in the background, where it cannot read from the terminal, so that it is stopped again.
	k.types(ctrlZ)
	s.until("the shell has the terminal", func() bool { return k.foreground() == shell })
	k.types("bg\n")
	k.types("echo still$((1+1))here\n")
	s.shows(k, "still2here")
	wrapper := childOf(t, shell)
	s.until("the wrapper is stopped", func() bool { return stateOf(wrapper) == 'T' })
	// A shell that has not seen this yet would not continue it.
	s.until("the shell knows", func() bool {
		k.types("\n")
		return strings.Count(k.screen(), "Stopped") == 4
	})
	k.types("fg\n")
	s.until("the command has the terminal", func() bool { return k.foreground() == s.number("pid") })
	// It is stopped by a signal to the wrapper, as ever.
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

// stateOf says what a process does: S, it waits, T, it is stopped.
func stateOf(pid int) byte {
	state, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return (strings.TrimSpace(string(state)) + " ")[0]
}

// number reads one from a file.
func (s *scene) number(name string) int {
	var n int
	text, _ := os.ReadFile(s.wish.path(name))
	if json.Unmarshal(text, &n) != nil {
		return 0
	}
	return n
}

// While everything is stopped by the keyboard nobody renews; the guard does what must be done.
func TestStoppedByTheKeyboardForTooLong(t *testing.T) {
	s := set(t, usual, script("BEAT one stubborn")...)
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

// Without a shell that could continue it, what is stopped by the keyboard goes on, as it does without us.
func TestStoppedWithoutAShell(t *testing.T) {
	s := set(t, usual, script(listens)...)
	s.wish.Terminal = true
	k := s.sitDown()
	s.shows(k, "ready")
	k.types(ctrlZ)
	k.types("q\n")
	if a := s.answer(); a.Outcome.ExitCode() != 4 {
		t.Errorf("got %+v", a)
	}
}

// A command that is killed in the middle of drawing leaves a terminal that can be used.
func TestModesAreRestored(t *testing.T) {
	s := set(t, usual, script("stty raw -echo; echo ready; kill -9 $$")...)
	s.wish.Terminal = true
	k := s.sitDown()
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
