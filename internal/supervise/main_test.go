//go:build linux || darwin

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// TestMain makes the test binary stand in for the guard, for a program that calls Run, and for commands.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch role, args := os.Args[1], os.Args[2:]; role {
		case "guard":
			socket, _ := strconv.Atoi(args[0])
			if err := Guard(uintptr(socket), [3]*os.File{os.Stdin, os.Stdout, os.Stderr}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "wrapper":
			wrap(args[0])
			os.Exit(0)
		case "beat":
			beat(args)
		}
	}
	// Under nohup a hangup is ignored here, and in what is started from here unless it is caught.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// beat is a command: it writes down what time it is, again and again, until something ends it. It may be
// stubborn (ignore SIGTERM), heedful (end by SIGINT in any case) or apart (in a session of its own).
func beat(args []string) {
	file, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	for _, how := range args[1:] {
		switch how {
		case "stubborn":
			signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		case "heedful": // a shell has what it puts into the background ignore the keyboard
			interrupts := make(chan os.Signal, 1)
			signal.Notify(interrupts, syscall.SIGINT)
			go func() {
				<-interrupts
				os.Exit(0)
			}()
		case "apart":
			if _, err := syscall.Setsid(); err != nil {
				panic(err)
			}
		}
	}
	for {
		now := clock.Now()
		fmt.Fprintln(file, os.Getpid(), now.Raw, now.Boot)
		time.Sleep(2 * time.Millisecond)
	}
}

// wish is what a wrapper in a process of its own is to do.
type wish struct {
	Dir      string
	Terms    Terms
	Args     [][]byte
	Terminal bool
}

// In the folder of a wish are: store, while which is there the lease is renewed; deadline, until when it was
// relied on; told, what was told to people; outcome, in the end.
func (w wish) path(name string) string { return filepath.Join(w.Dir, name) }

type answer struct {
	Outcome Outcome
	Failure string
	Guard   bool
	TooLate bool
	Start   *StartError
}

func wrap(file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	var w wish
	if err := json.Unmarshal(text, &w); err != nil {
		panic(err)
	}
	told, err := os.Create(w.path("told"))
	if err != nil {
		panic(err)
	}
	held := hold(w)
	var a answer
	a.Outcome, err = Run(Options{
		Command: Command{
			Path: string(w.Args[0]), Args: asTexts(w.Args), Env: os.Environ(),
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Terminal: w.Terminal,
		},
		Terms: w.Terms, Tenure: held,
		GuardPath: self(), GuardArgs: []string{GuardName, "guard"},
		Signals: make(chan os.Signal, 8),
		Tell:    func(text string) { fmt.Fprintln(told, text) },
	})
	if err != nil {
		a.Failure, a.Guard, a.TooLate = err.Error(), errors.Is(err, ErrGuard), errors.Is(err, ErrTooLate)
		errors.As(err, &a.Start)
	}
	out, _ := json.Marshal(a)
	os.WriteFile(w.path("outcome.new"), out, 0o600)
	os.Rename(w.path("outcome.new"), w.path("outcome"))
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// byHand is a tenure that is renewed while there is a store.
type byHand struct {
	ctx  context.Context
	lose context.CancelCauseFunc
	mu   sync.Mutex
	end  clock.Instant
}

func (h *byHand) Context() context.Context { return h.ctx }

func (h *byHand) Deadline() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end
}

func hold(w wish) *byHand {
	h := new(byHand)
	h.ctx, h.lose = context.WithCancelCause(context.Background())
	renew := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.end = clock.Now().Add(w.Terms.TTL)
		os.WriteFile(w.path("deadline.new"), fmt.Appendf(nil, "%d %d", h.end.Raw, h.end.Boot), 0o600)
		os.Rename(w.path("deadline.new"), w.path("deadline"))
	}
	renew()
	go func() {
		for last := clock.Now(); ; time.Sleep(w.Terms.TTL / 50) {
			if _, err := os.Stat(w.path("revoked")); err == nil {
				h.lose(errors.New("revoked"))
				return
			}
			now := clock.Now()
			if !now.Before(h.Deadline()) {
				h.lose(errors.New("not renewed in time"))
				return
			}
			if _, err := os.Stat(w.path("store")); err == nil && now.Elapsed(last) >= w.Terms.TTL/3 {
				last = now
				renew()
			}
		}
	}()
	return h
}

// scene is a wrapper in a process of its own, and what can be seen of it.
type scene struct {
	t    *testing.T
	wish wish
	cmd  *exec.Cmd
	out  strings.Builder
	done chan struct{}

	inherit []*os.File
	screen  func() string // of a terminal; may be nil
}

const (
	testTTL = 3 * time.Second
	patient = 20 * time.Second
)

var usual = Terms{TTL: testTTL, KillAfter: testTTL / 3}

// play starts a wrapper that runs the arguments; BEAT NAME stands for the command that beats into that file.
func play(t *testing.T, terms Terms, args ...string) *scene {
	t.Helper()
	s := set(t, terms, args...)
	s.begin()
	return s
}

func set(t *testing.T, terms Terms, args ...string) *scene {
	t.Helper()
	s := &scene{t: t, done: make(chan struct{})}
	s.wish = wish{Dir: t.TempDir(), Terms: terms}
	for _, arg := range args {
		s.wish.Args = append(s.wish.Args, []byte(strings.ReplaceAll(arg, "BEAT ", self()+" beat "+s.wish.Dir+"/")))
	}
	s.touch("store")
	return s
}

func (s *scene) begin() {
	s.t.Helper()
	s.writeWish()
	s.cmd = exec.Command(self(), "wrapper", s.wish.path("wish"))
	s.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.wish.Dir, &s.out, &s.out
	s.cmd.ExtraFiles = s.inherit
	s.cmd.WaitDelay = patient
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.reap()
}

func (s *scene) writeWish() {
	s.t.Helper()
	text, err := json.Marshal(s.wish)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.wish.path("wish"), text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// reap waits for the program that was started, and ends it with the test.
func (s *scene) reap() {
	go func() {
		s.cmd.Wait()
		close(s.done)
	}()
	s.t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.done
	})
}

func script(text string) []string { return []string{"/bin/sh", "-c", text} }

func (s *scene) touch(name string) {
	if err := os.WriteFile(s.wish.path(name), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) signal(to syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(to); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for something to be seen.
func (s *scene) until(what string, seen func() bool) {
	s.t.Helper()
	for limit := time.Now().Add(patient); !seen(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			told, _ := os.ReadFile(s.wish.path("told"))
			if s.screen != nil {
				s.t.Logf("the terminal shows %q", s.screen())
			}
			s.t.Fatalf("not seen: %s; it was told %q", what, told)
		}
	}
}

// answer waits for the wrapper's end.
func (s *scene) answer() answer {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(patient):
		s.t.Fatal("the wrapper does not end")
	}
	text, err := os.ReadFile(s.wish.path("outcome"))
	if err != nil {
		s.t.Fatalf("%v; it wrote %q", err, s.out.String())
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *scene) told() string {
	text, _ := os.ReadFile(s.wish.path("told"))
	return string(text)
}

func (s *scene) deadline() clock.Instant {
	s.t.Helper()
	var i clock.Instant
	text, err := os.ReadFile(s.wish.path("deadline"))
	if err == nil {
		_, err = fmt.Sscan(string(text), &i.Raw, &i.Boot)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

// lastBeat returns who has beaten into the file and when for the last time.
func (s *scene) lastBeat(name string) (pid int, at clock.Instant) {
	text, _ := os.ReadFile(s.wish.path(name))
	lines := strings.Split(string(text), "\n")
	if len(lines) < 2 {
		return 0, clock.Instant{}
	}
	fmt.Sscan(lines[len(lines)-2], &pid, &at.Raw, &at.Boot)
	return pid, at
}

// beats waits until it beats, and returns who.
func (s *scene) beats(name string) (pid int) {
	s.t.Helper()
	s.until(name+" beats", func() bool { pid, _ = s.lastBeat(name); return pid != 0 })
	return pid
}

// deadBefore waits for a command's end and checks that it did nothing from the deadline on.
func (s *scene) deadBefore(name string, deadline clock.Instant) {
	s.t.Helper()
	pid := s.beats(name)
	s.until(name+" is dead", func() bool { return !runs(pid) })
	if _, at := s.lastBeat(name); !at.Before(deadline) {
		s.t.Errorf("%s acted at %v, after the deadline %v", name, at, deadline)
	} else {
		s.t.Logf("%s acted last %v before the deadline", name, at.Remaining(deadline).Round(time.Millisecond))
	}
}

// guard returns the number of the guard's process, which is the wrapper's only child.
func (s *scene) guard() int {
	s.t.Helper()
	return childOf(s.t, s.cmd.Process.Pid)
}

func childOf(t *testing.T, parent int) int {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "ppid=,pid=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var of, pid int
		if fmt.Sscan(line, &of, &pid); of == parent {
			return pid
		}
	}
	t.Fatalf("%d has no child", parent)
	return 0
}
