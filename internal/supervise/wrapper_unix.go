//go:build linux || darwin

package supervise

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Ends has signals delivered to the channel that usually end a process. What this process was started with
// ignored (nohup) stays so.
func Ends(to chan<- os.Signal) {
	catch(to, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
}

func catch(to chan<- os.Signal, signals ...os.Signal) {
	if signals = slices.DeleteFunc(signals, signal.Ignored); len(signals) > 0 {
		signal.Notify(to, signals...)
	}
}

// forwarded has all signals delivered to the channel that are passed on.
func forwarded(to chan<- os.Signal) {
	Ends(to)
	catch(to, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT)
}

// wrapper is the side that holds the lease.
type wrapper struct {
	Options
	link      *link
	guard     *exec.Cmd
	messages  <-chan toWrapper
	terminal  *terminal
	judge     *judge // knows of deadlines only, for a SIGKILL that the guard fails to send
	killed    bool   // it was sent
	told      clock.Instant
	lost      bool  // the guard was told
	earlier   []int // children that this process had before
	head      int   // 0 if not started
	continued int   // how often the command was continued from here
	ended     *ended
	outcome   Outcome
	failure   error
}

// Run runs the command under the lease, and returns when nothing of it runs any more. It is for one use at a
// time in a process: it changes how that deals with signals and with orphans.
func Run(o Options) (Outcome, error) {
	if err := o.Terms.Validate(); err != nil {
		return Outcome{}, err
	}
	deadline := o.Tenure.Deadline()
	w := &wrapper{Options: o, judge: newJudge(o.Terms, deadline), told: deadline, earlier: descendants(os.Getpid())}
	if err := resume(); err != nil {
		return Outcome{}, fmt.Errorf("%w: cannot become the parent of orphaned processes: %w", ErrGuard, err)
	}
	defer disown()
	w.terminal = openTerminal(o.Command.Terminal)
	defer w.terminal.close()
	if err := w.startGuard(); err != nil {
		return Outcome{}, fmt.Errorf("%w: %w", ErrGuard, err)
	}
	defer w.link.file.Close()
	forwarded(o.Signals)
	// A warning that nobody reads any more must not end this process, and with it the command.
	catch(make(chan os.Signal, 1), syscall.SIGPIPE)
	// Not before the guard was started: what is ignored would be ignored by the command too.
	signal.Ignore(syscall.SIGTTOU)
	stop := make(chan struct{})
	defer close(stop)
	messages := make(chan toWrapper, 1)
	w.messages = messages
	go receive(w.link, messages, stop)

	c := o.Command
	err := w.link.send(toGuard{Order: &order{
		Path: []byte(c.Path), Args: asBytes(c.Args), Env: asBytes(c.Env),
		Terminal: w.terminal.offer(), Terms: o.Terms, Deadline: deadline,
	}}, orderLimit)
	if err != nil {
		w.guard.Process.Kill()
	}
	w.watch()
	w.guard.Wait() // why it ended is known, or does not matter any more
	w.terminal.takeBack(w.outcome.Signal != 0)
	return w.outcome, w.failure
}

// startGuard starts the guard with one end of a socket, and keeps the other.
func (w *wrapper) startGuard() error {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	// The guard inherits its end under the number it has here. That is one which the command could not have
	// been meant to inherit, as what is passed in place of standard files would be.
	syscall.CloseOnExec(ends[0])
	if err := syscall.SetNonblock(ends[0], true); err != nil {
		return err
	}
	w.link = newLink(os.NewFile(uintptr(ends[0]), "guard"))
	defer syscall.Close(ends[1])

	w.guard = &exec.Cmd{Path: w.GuardPath, Args: append(slices.Clone(w.GuardArgs), strconv.Itoa(ends[1]))}
	if ownPath != "" {
		w.guard.Path = ownPath
	}
	w.guard.Stdin, w.guard.Stdout, w.guard.Stderr = w.Command.Stdin, w.Command.Stdout, w.Command.Stderr
	// A group of its own: what the keyboard says to the command or to the wrapper is not meant for it.
	w.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.guard.Start(); err != nil {
		w.link.file.Close()
		return err
	}
	return nil
}

// watch goes on until the guard has ended.
func (w *wrapper) watch() {
	alarm, err := newAlarm()
	if err != nil {
		alarm = newGoAlarm()
	}
	defer alarm.stop()
	done := w.Tenure.Context().Done()
	signals := w.Signals
	for {
		alarm.set(min(w.lookAfter(), w.pace()))
		select {
		case m, ok := <-w.messages:
			if !ok {
				w.guardIsGone()
				return
			}
			if w.hear(m) {
				return
			}
		case s := <-signals:
			w.forward(s)
		case <-done:
			done = nil
			w.lose()
		case <-alarm.rings():
			w.tellDeadline()
		}
	}
}

// pace is how often to look whether the deadline has moved. A renewal comes about every third of the TTL.
func (w *wrapper) pace() time.Duration {
	return min(max(w.Terms.TTL/32, 5*time.Millisecond), time.Second)
}

// lookAfter kills what the guard should have killed, if it is time, and returns when it would be.
func (w *wrapper) lookAfter() time.Duration {
	what, wait := w.judge.decide(clock.Now())
	if what == kill && w.head != 0 && w.ended == nil {
		w.killed = true
		syscall.Kill(-w.head, syscall.SIGKILL) // it was not reaped as far as we know; the guard tells of errors
	}
	return wait
}

// tellDeadline tells the guard of the deadline if it has moved, and has it go on in case somebody stopped it.
func (w *wrapper) tellDeadline() {
	w.guard.Process.Signal(syscall.SIGCONT)
	now := w.Tenure.Deadline()
	if now == w.told || w.lost {
		return
	}
	w.told = now
	w.judge.extend(now)
	w.tell(toGuard{Deadline: &now})
}

func (w *wrapper) tell(m toGuard) {
	if err := w.link.send(m, tellLimit); err != nil {
		w.guard.Process.Kill() // half a message may be under way; guardIsGone does the rest
	}
}

// lose ends the command because the lease is lost, or says so if it may run on.
func (w *wrapper) lose() {
	w.lost = true
	cause := context.Cause(w.Tenure.Context())
	if w.Terms.OnLost == Warn {
		w.Tell(fmt.Sprintf("the lease is lost (%v), and the command runs on: others may act too", cause))
		return
	}
	w.Tell(fmt.Sprintf("the lease is lost (%v): the command is ended", cause))
	w.tell(toGuard{Lost: true})
}

// hear returns true after the last message.
func (w *wrapper) hear(m toWrapper) (last bool) {
	switch {
	case m.Started != 0:
		w.head = m.Started
	case m.Failed != nil:
		w.failure = m.Failed
		return true
	case m.TooLate:
		w.failure = ErrTooLate
		return true
	case m.Stopped != nil && m.Stopped.After == w.continued:
		w.suspend(syscall.Signal(m.Stopped.By))
	case m.Ending == lost && !w.lost:
		w.Tell("the lease could not be renewed in time: the command is ended before it is lost")
	case m.Ending == leftovers:
		w.Tell("the command has left something running, which is ended now; --leftovers wait would wait for it")
	case m.Ended != nil:
		w.ended = m.Ended
		w.judge.headEnded = true
		w.outcome.Code, w.outcome.Signal = m.Ended.Code, m.Ended.Signal
		w.outcome.Interrupted = w.terminal.isGiven() && m.Ended.Signal == int(syscall.SIGINT)
		if w.Terms.Wait { // the keyboard is for those who wait, as with a shell
			w.terminal.takeBack(w.outcome.Signal != 0)
		}
	case m.Trouble != "":
		w.Tell(m.Trouble)
	case m.Gone:
		w.outcome.Stopped = m.Lost || w.killed
		return true
	}
	return false
}

// forward passes a signal on to the command's group, or to what the command has left running. A wrapper that was
// continued continues the command.
func (w *wrapper) forward(s os.Signal) {
	number, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	switch {
	case number == syscall.SIGCONT:
		w.resume()
		return
	case number == syscall.SIGTSTP && w.ended != nil:
		return // what the command left running would stop, and we would not
	}
	w.tell(toGuard{Signal: int(number)})
}

// stopSettles is how long to wait for a stop that was asked for, while this process runs.
const stopSettles = 200 * time.Millisecond

// awaitContinue waits until the process is continued, or seems not to be stopped after all. The stop itself takes no
// more than one of its parts, since the clock runs on meanwhile.
func awaitContinue(continued <-chan os.Signal) {
	const parts = 10
	for range parts {
		select {
		case <-continued:
			return
		case <-time.After(stopSettles / parts):
		}
	}
}

// suspend stops this process with its group, as the command was stopped by the keyboard or for want of the
// terminal, and goes on with both when it is continued. If nobody is there who could do that, the command
// goes on at once.
func (w *wrapper) suspend(by syscall.Signal) {
	if by == syscall.SIGSTOP || w.ended != nil {
		return
	}
	// It may have wanted the terminal just before the shell gave that to our group.
	late := by != syscall.SIGTSTP && w.terminal.isOurs()
	if !late && !isOrphaned() {
		w.terminal.takeBack(true)
		// What was caught once cannot be made to stop a Go program again, so this process needs a signal of
		// its own, and ignores the group's: were that only not caught, it could be under way to us until we are
		// continued, and would then be forwarded. And what continues us is heard here alone: if it waited among
		// the signals as well, it would later continue a command that was stopped once more.
		ignored := signal.Ignored(syscall.SIGTSTP)
		signal.Ignore(syscall.SIGTSTP)
		signal.Reset(syscall.SIGCONT)
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		syscall.Kill(0, syscall.SIGTSTP)
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		awaitContinue(continued)
		signal.Stop(continued) // what is on its way to it is not forwarded
		if !ignored {
			signal.Notify(w.Signals, syscall.SIGTSTP) // forwarded leaves out what is ignored
		}
		forwarded(w.Signals)
	}
	w.resume()
}

// isOrphaned says whether this process has no ancestor in another group of the session: a shell, that is,
// which could continue what was stopped. The system does not stop such groups by the keyboard.
func isOrphaned() bool {
	group := syscall.Getpgrp()
	session, err := unix.Getsid(0)
	if err != nil {
		return true
	}
	for pid := os.Getpid(); ; {
		parent, ok := parentOf(pid)
		if !ok || parent == 0 {
			return true
		}
		if its, err := unix.Getsid(parent); err != nil || its != session {
			return true
		}
		if its, err := syscall.Getpgid(parent); err != nil || its != group {
			return err != nil
		}
		pid = parent
	}
}

func (w *wrapper) resume() {
	if w.head == 0 || w.ended != nil {
		return
	}
	w.terminal.give(w.head)
	w.continued++
	w.tell(toGuard{Signal: int(syscall.SIGCONT)})
}

// restLimit bounds how long something may take to end that was sent SIGKILL.
const restLimit = 10 * time.Second

// guardIsGone ends what the guard cannot end any more.
func (w *wrapper) guardIsGone() {
	why := "it ended by itself"
	if err := w.guard.Wait(); err != nil {
		why = err.Error()
	}
	w.failure = fmt.Errorf("%w (%s), so the command was killed", ErrGuard, why)
	for limit := time.Now().Add(restLimit); !w.endRest(); time.Sleep(killAgain) {
		if time.Now().After(limit) {
			w.outcome.Remains = true
			w.failure = fmt.Errorf("%w (%s), and something that the command started cannot be killed", ErrGuard, why)
			return
		}
	}
}

// endRest kills what the command started, and returns whether nothing of it is left.
func (w *wrapper) endRest() bool {
	gone := true
	if w.head != 0 {
		gone = syscall.Kill(-w.head, syscall.SIGKILL) == syscall.ESRCH
	}
	for _, pid := range descendants(os.Getpid(), w.earlier...) {
		gone = false
		syscall.Kill(pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
	return gone
}
