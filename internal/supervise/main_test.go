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

// TestMain lets the test binary run as the guard, as a program that calls Run, and as commands.
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
			runWrapper(args[0])
			os.Exit(0)
		case "beat":
			beat(args)
		case "failing guard":
			failAsGuard(args[0])
		}
	}
	// Under nohup SIGHUP is ignored. Catch it, because the started processes would inherit that.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// beat is a command that writes the time to a file, again and again, until a signal ends it. It may be stubborn (ignore
// SIGTERM), heedful (end by SIGINT even if SIGINT was ignored) or apart (in its own session).
func beat(args []string) {
	file, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	for _, how := range args[1:] {
		switch how {
		case "stubborn":
			signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		case "heedful": // a shell lets background commands ignore SIGINT
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

// spec has what a wrapper in its own process runs.
type spec struct {
	Dir      string
	Terms    Terms
	Args     [][]byte
	Terminal bool
	Early    *early   // what the wrapper does before Run; nil if Run starts the guard
	Guard    []string // the command line of the guard; nil for that of the guard itself
}

// path returns a file in the directory of the spec. The lease is renewed while the file store exists, and revoked when
// the file revoked does. The wrapper writes the deadline to deadline, its messages to warnings, and at the end the
// answer to outcome.
func (w spec) path(name string) string { return filepath.Join(w.Dir, name) }

// answer is what Run returned.
type answer struct {
	Outcome Outcome
	Failure string
	Guard   bool
	TooLate bool
	Start   *StartError
}

// runWrapper runs the spec in a file.
func runWrapper(file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	var w spec
	if err := json.Unmarshal(text, &w); err != nil {
		panic(err)
	}
	warnings, err := os.Create(w.path("warnings"))
	if err != nil {
		panic(err)
	}
	held := newFakeTenure(w)
	o := Options{
		Command: Command{
			Path: string(w.Args[0]), Args: asTexts(w.Args), Env: os.Environ(),
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Terminal: w.Terminal,
		},
		Terms: w.Terms, Tenure: held,
		GuardPath: self(), GuardArgs: guardArgs,
		Signals: make(chan os.Signal, 8),
		Report:  func(text string) { fmt.Fprintln(warnings, text) },
	}
	if w.Guard != nil {
		o.GuardArgs = w.Guard
	}
	if w.Early != nil {
		w.Early.prepare(w, &o)
	}
	var a answer
	a.Outcome, err = Run(o)
	if err != nil {
		a.Failure, a.Guard, a.TooLate = err.Error(), errors.Is(err, ErrGuard), errors.Is(err, ErrTooLate)
		errors.As(err, &a.Start)
	}
	out, _ := json.Marshal(a)
	os.WriteFile(w.path("outcome.new"), out, 0o600)
	os.Rename(w.path("outcome.new"), w.path("outcome"))
}

// guardArgs is the command line that makes the test binary run [Guard].
var guardArgs = []string{GuardName, "guard"}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// fakeTenure is a tenure that is renewed while the file store exists.
type fakeTenure struct {
	ctx  context.Context
	lose context.CancelCauseFunc
	mu   sync.Mutex
	end  clock.Instant
}

func (h *fakeTenure) Context() context.Context { return h.ctx }

func (h *fakeTenure) Deadline() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end
}

func newFakeTenure(w spec) *fakeTenure {
	h := new(fakeTenure)
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

// fixture is a wrapper in its own process.
type fixture struct {
	t    *testing.T
	spec spec
	cmd  *exec.Cmd
	out  strings.Builder
	done chan struct{}

	inherit []*os.File    // further files of the wrapper, from descriptor 3
	screen  func() string // the output of its terminal; nil if it has none
}

const (
	testTTL     = 3 * time.Second
	testTimeout = 20 * time.Second
)

var usual = Terms{TTL: testTTL, KillAfter: testTTL / 3}

// startWrapper starts a wrapper that runs the arguments. BEAT NAME stands for the command beat with that file.
func startWrapper(t *testing.T, terms Terms, args ...string) *fixture {
	t.Helper()
	s := newFixture(t, terms, args...)
	s.begin()
	return s
}

// newFixture prepares a wrapper without starting it.
func newFixture(t *testing.T, terms Terms, args ...string) *fixture {
	t.Helper()
	s := &fixture{t: t, done: make(chan struct{})}
	s.spec = spec{Dir: t.TempDir(), Terms: terms}
	for _, arg := range args {
		s.spec.Args = append(s.spec.Args, []byte(strings.ReplaceAll(arg, "BEAT ", self()+" beat "+s.spec.Dir+"/")))
	}
	s.touch("store")
	return s
}

// begin starts the wrapper.
func (s *fixture) begin() {
	s.t.Helper()
	s.writeSpec()
	s.cmd = exec.Command(self(), "wrapper", s.spec.path("spec"))
	s.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.spec.Dir, &s.out, &s.out
	s.cmd.ExtraFiles = s.inherit
	s.cmd.WaitDelay = testTimeout
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.reap()
}

func (s *fixture) writeSpec() {
	s.t.Helper()
	text, err := json.Marshal(s.spec)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.spec.path("spec"), text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// reap waits for the started program, and kills it at the end of the test.
func (s *fixture) reap() {
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

func (s *fixture) touch(name string) {
	if err := os.WriteFile(s.spec.path(name), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *fixture) signal(to syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(to); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for a condition, and fails the test if it does not come true in time.
func (s *fixture) until(what string, seen func() bool) {
	s.t.Helper()
	for limit := time.Now().Add(testTimeout); !seen(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			warnings, _ := os.ReadFile(s.spec.path("warnings"))
			if s.screen != nil {
				s.t.Logf("the terminal shows %q", s.screen())
			}
			s.t.Fatalf("did not happen: %s; the warnings were %q", what, warnings)
		}
	}
}

// answer waits for the wrapper to end and returns its answer.
func (s *fixture) answer() answer {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(testTimeout):
		s.t.Fatal("the wrapper does not end")
	}
	text, err := os.ReadFile(s.spec.path("outcome"))
	if err != nil {
		s.t.Fatalf("%v; the wrapper wrote %q", err, s.out.String())
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *fixture) warnings() string {
	text, _ := os.ReadFile(s.spec.path("warnings"))
	return string(text)
}

func (s *fixture) deadline() clock.Instant {
	s.t.Helper()
	var i clock.Instant
	text, err := os.ReadFile(s.spec.path("deadline"))
	if err == nil {
		_, err = fmt.Sscan(string(text), &i.Raw, &i.Boot)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

// lastBeat returns the process that wrote the last beat of the file, and its time.
func (s *fixture) lastBeat(name string) (pid int, at clock.Instant) {
	text, _ := os.ReadFile(s.spec.path(name))
	lines := strings.Split(string(text), "\n")
	if len(lines) < 2 {
		return 0, clock.Instant{}
	}
	fmt.Sscan(lines[len(lines)-2], &pid, &at.Raw, &at.Boot)
	return pid, at
}

// beats waits for a beat in the file, and returns the process that wrote it.
func (s *fixture) beats(name string) (pid int) {
	s.t.Helper()
	s.until(name+" beats", func() bool { pid, _ = s.lastBeat(name); return pid != 0 })
	return pid
}

// deadBefore waits for a command to end, and checks that it wrote no beat from the deadline on.
func (s *fixture) deadBefore(name string, deadline clock.Instant) {
	s.t.Helper()
	pid := s.beats(name)
	s.until(name+" is dead", func() bool { return !runs(pid) })
	if _, at := s.lastBeat(name); !at.Before(deadline) {
		s.t.Errorf("%s acted at %v, after the deadline %v", name, at, deadline)
	} else {
		s.t.Logf("%s acted last %v before the deadline", name, at.Remaining(deadline).Round(time.Millisecond))
	}
}

// guard returns the process of the guard, the wrapper's only child.
func (s *fixture) guard() int {
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
