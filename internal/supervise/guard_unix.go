//go:build linux || darwin

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// guard is the process that starts the command and ends it.
type guard struct {
	link  *link
	judge *judge
	// head is the number of the command's first process and of its group. Nobody else waits for it, so the
	// number means nothing else while it is not reaped.
	head      int
	reaped    bool // head
	continued int  // how often the wrapper has continued it
	told      bool // why it is being ended
	stuck     bool // something could not be sent a signal, and that was told
}

// Guard runs the guard, for the wrapper at the other end of the socket, which is the file of that number.
// The command gets the first three files. It returns when nothing of the command runs any more; the process
// has nothing left to do then. The calling goroutine must be one that never ends before.
func Guard(socket uintptr, stdio [3]*os.File) error {
	// The kernel kills the command when the thread ends that started it.
	runtime.LockOSThread()
	debug.SetGCPercent(20) // it should be small, and has little to do
	standAside()
	callOneself(GuardName)
	if err := resume(); err != nil {
		return fmt.Errorf("%w: cannot become the parent of orphaned processes: %w", ErrGuard, err)
	}
	syscall.CloseOnExec(int(socket))
	if err := syscall.SetNonblock(int(socket), true); err != nil {
		return fmt.Errorf("%w: it is started by `leasekeeper run`, and by nobody else: %w", ErrGuard, err)
	}
	g := &guard{link: newLink(os.NewFile(socket, "wrapper"))}
	stop := make(chan struct{})
	defer close(stop)
	messages := make(chan toGuard, 1)
	go receive(g.link, messages, stop)
	first, ok := <-messages
	if !ok || first.Order == nil {
		return nil // the wrapper went away again
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	if err := g.start(first.Order, stdio); err != nil {
		return err
	}
	release(stdio)
	return g.watch(messages, children)
}

// ownSignals are those that must not end or stop the guard. They are caught, not ignored: what is ignored
// would be ignored by the command too.
var ownSignals = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
}

// standAside makes the guard deaf to what is meant for others. What was ignored before (nohup) stays so.
func standAside() {
	deaf := make(chan os.Signal, 1) // never read: what does not fit in is dropped
	signal.Notify(deaf, slices.DeleteFunc(slices.Clone(ownSignals), signal.Ignored)...)
}

// start starts the command and tells the wrapper. If it cannot be started, the wrapper knows all there is.
func (g *guard) start(o *order, stdio [3]*os.File) error {
	g.judge = newJudge(o.Terms, o.Deadline)
	if what, _ := g.judge.decide(clock.Now()); what != nothing {
		return g.link.send(toWrapper{TooLate: true}, tellLimit)
	}
	attributes := &syscall.SysProcAttr{Setpgid: true}
	tether(attributes)
	if o.Terminal {
		if tty, err := os.OpenFile(terminalPath, os.O_RDWR|syscall.O_NOCTTY, 0); err == nil {
			defer tty.Close()
			attributes.Foreground, attributes.Ctty = true, int(tty.Fd())
		}
	}
	process, err := os.StartProcess(string(o.Path), asTexts(o.Args), &os.ProcAttr{
		Env: asTexts(o.Env), Files: stdio[:], Sys: attributes,
	})
	if err != nil {
		return g.link.send(toWrapper{Failed: startError(string(o.Path), err)}, tellLimit)
	}
	g.head = process.Pid
	process.Release() // reap waits for it
	g.link.send(toWrapper{Started: g.head}, tellLimit)
	return nil
}

func startError(path string, err error) *StartError {
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

// release gives up the files that are the command's now: a process that waits for their other ends to be closed must
// not wait for the guard, nor must one that unmounts the folder.
func release(stdio [3]*os.File) {
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		for _, f := range stdio {
			dup(int(null.Fd()), int(f.Fd()))
		}
		null.Close()
	}
	os.Chdir("/") // to stay is no harm
}

// watch ends the command when it is time, and returns when nothing runs any more.
func (g *guard) watch(messages <-chan toGuard, children <-chan os.Signal) error {
	if g.head == 0 {
		return nil
	}
	alarm, err := newAlarm()
	if err != nil {
		alarm = newGoAlarm() // it is early anyway
	}
	defer alarm.stop()
	for !g.reap() {
		alarm.set(g.act())
		select {
		case m, ok := <-messages:
			if !ok {
				messages = nil
				g.judge.wrapperEnded = true
				continue
			}
			g.hear(m)
		case <-children:
		case <-alarm.rings():
		}
	}
	g.link.send(toWrapper{Gone: true, Lost: g.judge.why == lost}, tellLimit)
	return nil
}

func (g *guard) hear(m toGuard) {
	switch {
	case m.Deadline != nil:
		g.judge.extend(*m.Deadline)
	case m.Lost:
		g.judge.leaseEnded = true
	case m.Signal != 0:
		g.reap() // a process that has ended meanwhile hears nothing any more, and the rest shall
		if m.Signal == int(syscall.SIGCONT) {
			g.continued++ // now, as this undoes a stop that was just reaped
		}
		if err := g.pass(syscall.Signal(m.Signal)); err != nil {
			g.trouble(fmt.Sprintf("could not pass the signal on: %v", err))
		}
	}
}

// pass passes a signal on: to the command's group, and when the command has ended to all that it left running.
func (g *guard) pass(s syscall.Signal) error {
	if g.reaped {
		return g.signalAll(s)
	}
	return sent(syscall.Kill(-g.head, s))
}

// sent is the error of a signal: that nobody is there any more is none.
func sent(err error) error {
	if err == syscall.ESRCH {
		return nil
	}
	return err
}

// act does what is to be done now, and returns after how long to look again.
func (g *guard) act() time.Duration {
	what, wait := g.judge.decide(clock.Now())
	if what != nothing && !g.told {
		g.told = true
		g.link.send(toWrapper{Ending: g.judge.why}, tellLimit)
	}
	switch what {
	case terminate:
		g.end(syscall.SIGTERM)
		g.end(syscall.SIGCONT) // who is stopped hears nothing but this
	case kill:
		g.end(syscall.SIGKILL)
	}
	return min(wait, lookAgain(g.reaped))
}

// end sends everything a signal that belongs to its end, and tells once if that cannot be done.
func (g *guard) end(s syscall.Signal) {
	if err := g.signalAll(s); err != nil && !g.stuck {
		g.stuck = true
		g.trouble(fmt.Sprintf("cannot end all of the command: %v; it may run as another user: run leasekeeper as that user", err))
	}
}

// signalAll reaches the command's group, and what has left it as far as the system lets us find that.
func (g *guard) signalAll(s syscall.Signal) error {
	var err error
	if !g.reaped {
		err = sent(syscall.Kill(-g.head, s))
	}
	all := descendants(os.Getpid())
	// When the first process is reaped its number is the group's as long as that has members, and then may become
	// a stranger's.
	if g.reaped && isOurs(g.head, all) {
		err = sent(syscall.Kill(-g.head, s))
	}
	for _, pid := range all {
		if isIn(g.head, pid) {
			continue
		}
		if e := sent(syscall.Kill(pid, s)); e != nil {
			err = e
		}
	}
	return err
}

// isIn says whether a process is in a group.
func isIn(group, pid int) bool {
	its, err := syscall.Getpgid(pid)
	return err == nil && its == group
}

func (g *guard) trouble(text string) { g.link.send(toWrapper{Trouble: text}, tellLimit) }

// reap takes note of what has ended or stopped, and returns whether nothing runs any more.
func (g *guard) reap() bool {
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
			g.link.send(toWrapper{Stopped: &stopped{By: int(status.StopSignal()), After: g.continued}}, tellLimit)
		default:
			g.reaped, g.judge.headEnded = true, true
			e := &ended{}
			if status.Signaled() {
				e.Signal = int(status.Signal())
			} else {
				e.Code = status.ExitStatus()
			}
			g.link.send(toWrapper{Ended: e}, tellLimit)
		}
	}
}
