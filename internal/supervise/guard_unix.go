//go:build linux || darwin

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// guardState is the state of the guard, the process that starts the command and ends it.
type guardState struct {
	link  *link
	judge *judge
	// head is the ID of the command's first process and of its group; 0 before the start. The guard alone reaps the
	// process, so no other process has this ID until then.
	head        int
	reaped      bool // head was reaped
	continued   int  // how often the wrapper has continued the command
	endingSent  bool // the wrapper was sent why the command is being ended
	troubleSent bool // the wrapper was sent that some process cannot be ended
}

// Guard runs the guard. The wrapper is at the other end of the socket, a file descriptor. The command inherits stdio as
// its first three files. Guard returns when the command and all its processes have ended; the caller should then exit.
// The calling goroutine must not end earlier.
func Guard(socket uintptr, stdio [3]*os.File) error {
	// The kernel kills the command when the thread that started it ends.
	runtime.LockOSThread()
	catchSignals()
	setProcessName(GuardName)
	if err := becomeSubreaper(); err != nil {
		return fmt.Errorf("%w: cannot become the parent of orphaned processes: %w", ErrGuard, err)
	}
	syscall.CloseOnExec(int(socket))
	if err := syscall.SetNonblock(int(socket), true); err != nil {
		return fmt.Errorf("%w: only `leasekeeper run` may start it: %w", ErrGuard, err)
	}
	g := &guardState{link: newLink(os.NewFile(socket, "wrapper"))}
	stop := make(chan struct{})
	defer close(stop)
	messages := make(chan toGuard, 1)
	go receive(g.link, messages, stop)
	first, ok := <-messages
	if !ok || first.Order == nil {
		return nil // the wrapper ended before it sent an order
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	if err := g.start(first.Order, stdio); err != nil {
		return err
	}
	release(stdio)
	return g.watch(messages, children)
}

// ownSignals are the signals that must not end or stop the guard. The guard catches them instead of ignoring them,
// because the command would inherit ignored signals.
var ownSignals = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
}

// catchSignals catches the signals that are meant for other processes, and drops them. Signals that were ignored before
// (nohup) stay ignored.
func catchSignals() {
	dropped := make(chan os.Signal, 1) // no goroutine reads it
	signal.Notify(dropped, slices.DeleteFunc(slices.Clone(ownSignals), signal.Ignored)...)
}

// start starts the command and sends the wrapper the result. If the command cannot be started, g.head stays 0.
func (g *guardState) start(o *order, stdio [3]*os.File) error {
	g.judge = newJudge(o.Terms, o.Deadline)
	if what, _ := g.judge.decide(clock.Now()); what != actNothing {
		return g.link.send(toWrapper{TooLate: true}, sendLimit)
	}
	attributes := &syscall.SysProcAttr{Setpgid: true}
	killWithParent(attributes)
	if o.Terminal {
		if tty, err := os.OpenFile(terminalPath, os.O_RDWR|syscall.O_NOCTTY, 0); err == nil {
			defer tty.Close()
			attributes.Foreground, attributes.Ctty = true, int(tty.Fd())
		}
	}
	// Package os would first start and end another process, to learn whether the kernel has process descriptors. The
	// guard needs none, because it reaps the command itself.
	head, err := syscall.ForkExec(string(o.Path), asTexts(o.Args), &syscall.ProcAttr{
		Env: asTexts(o.Env), Files: []uintptr{stdio[0].Fd(), stdio[1].Fd(), stdio[2].Fd()}, Sys: attributes,
	})
	if err != nil {
		return g.link.send(toWrapper{Failed: newStartError(string(o.Path), err)}, sendLimit)
	}
	g.head = head
	g.link.send(toWrapper{Started: g.head}, sendLimit)
	return nil
}

// newStartError describes why the program at path could not be started.
func newStartError(path string, err error) *StartError {
	failed := &StartError{Path: path, Reason: err.Error(), Code: codeCannotRun}
	var number syscall.Errno
	if errors.As(err, &number) {
		failed.Reason = number.Error()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		failed.Code = codeNotFound
	case number == syscall.ENOEXEC:
		failed.Reason = "it is neither a program nor a script that begins with #!"
	}
	return failed
}

// release replaces the guard's copies of the command's files by /dev/null, and leaves the working directory. So a process
// that waits for the other end of a file to close does not wait for the guard, and the directory can be unmounted.
func release(stdio [3]*os.File) {
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		for _, f := range stdio {
			dup(int(null.Fd()), int(f.Fd()))
		}
		null.Close()
	}
	os.Chdir("/") // the guard also works elsewhere, so an error is harmless
}

// watch ends the command when the judge decides so, and returns when all its processes have ended.
func (g *guardState) watch(messages <-chan toGuard, children <-chan os.Signal) error {
	if g.head == 0 {
		return nil
	}
	alarm, err := newAlarm()
	if err != nil {
		alarm = newGoAlarm() // also wakes early enough
	}
	defer alarm.stop()
	for !g.reap() {
		alarm.set(g.enforce())
		select {
		case m, ok := <-messages:
			if !ok {
				messages = nil
				g.judge.wrapperEnded = true
				continue
			}
			g.handle(m)
		case <-children:
		case <-alarm.wakes():
		}
	}
	g.link.send(toWrapper{Gone: true, Lost: g.judge.why == lost}, sendLimit)
	return nil
}

// handle handles a message of the wrapper.
func (g *guardState) handle(m toGuard) {
	switch {
	case m.Deadline != nil:
		g.judge.extend(*m.Deadline)
	case m.Lost:
		g.judge.leaseEnded = true
	case m.Signal != 0:
		g.reap() // if the first process has ended meanwhile, the signal goes to the rest
		if m.Signal == int(syscall.SIGCONT) {
			g.continued++ // after reap, because this undoes a stop that was just reaped
		}
		if err := g.forward(syscall.Signal(m.Signal)); err != nil {
			g.reportTrouble(fmt.Sprintf("cannot forward the signal %v: %v", syscall.Signal(m.Signal), err))
		}
	}
}

// forward sends a signal to the command's group or, if the command has ended, to all processes that it left running.
func (g *guardState) forward(s syscall.Signal) error {
	if g.reaped {
		return g.signalAll(s)
	}
	return ignoreGone(syscall.Kill(-g.head, s))
}

// ignoreGone returns the error of sending a signal, but nil if the target has ended.
func ignoreGone(err error) error {
	if err == syscall.ESRCH {
		return nil
	}
	return err
}

// enforce carries out the judge's decision, and returns how long to wait before the next call.
func (g *guardState) enforce() time.Duration {
	what, wait := g.judge.decide(clock.Now())
	if what != actNothing && !g.endingSent {
		g.endingSent = true
		g.link.send(toWrapper{Ending: g.judge.why}, sendLimit)
	}
	switch what {
	case actTerminate:
		g.sendEnding(syscall.SIGTERM)
		g.sendEnding(syscall.SIGCONT) // a stopped process handles SIGTERM only when it is continued
	case actKill:
		g.sendEnding(syscall.SIGKILL)
	}
	return min(wait, pollInterval(g.reaped))
}

// sendEnding sends a signal to all processes in order to end them. The first failure is reported.
func (g *guardState) sendEnding(s syscall.Signal) {
	if err := g.signalAll(s); err != nil && !g.troubleSent {
		g.troubleSent = true
		g.reportTrouble(fmt.Sprintf("cannot end every process of the command: %v; if it runs as another user, run leasekeeper as that user", err))
	}
}

// signalAll sends a signal to the command's group, and to the descendants outside of it that the system lets the guard
// find.
func (g *guardState) signalAll(s syscall.Signal) error {
	var err error
	if !g.reaped {
		err = ignoreGone(syscall.Kill(-g.head, s))
	}
	all := descendants(os.Getpid())
	// After the first process is reaped, its ID stays that of the group while the group has members. Then another
	// process may get the ID.
	if g.reaped && ownsGroup(g.head, all) {
		err = ignoreGone(syscall.Kill(-g.head, s))
	}
	for _, pid := range all {
		if inGroup(g.head, pid) {
			continue
		}
		if e := ignoreGone(syscall.Kill(pid, s)); e != nil {
			err = e
		}
	}
	return err
}

// inGroup reports whether a process is in a group.
func inGroup(group, pid int) bool {
	its, err := syscall.Getpgid(pid)
	return err == nil && its == group
}

// reportTrouble sends the wrapper a text for people.
func (g *guardState) reportTrouble(text string) { g.link.send(toWrapper{Trouble: text}, sendLimit) }

// reap reaps the processes that have ended, reports the first process's end or stop to the wrapper, and returns whether
// all processes have ended.
func (g *guardState) reap() bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.ECHILD:
			return allGone(g.head)
		case err != nil || pid == 0:
			return false
		case pid != g.head:
		case status.Stopped():
			g.link.send(toWrapper{Stopped: &stopped{By: int(status.StopSignal()), After: g.continued}}, sendLimit)
		default:
			g.reaped, g.judge.headEnded = true, true
			e := &ended{}
			if status.Signaled() {
				e.Signal = int(status.Signal())
			} else {
				e.Code = status.ExitStatus()
			}
			g.link.send(toWrapper{Ended: e}, sendLimit)
		}
	}
}
