//go:build linux || darwin

package supervise

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/clock"
)

// NotifyTermination delivers the signals that usually end a process to the channel. Signals that were ignored when this
// process started (nohup) stay ignored.
func NotifyTermination(to chan<- os.Signal) {
	catch(to, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
}

// catch delivers the signals to the channel, except those that are ignored.
func catch(to chan<- os.Signal, signals ...os.Signal) {
	if signals = slices.DeleteFunc(signals, signal.Ignored); len(signals) > 0 {
		signal.Notify(to, signals...)
	}
}

// catchForwarded delivers all signals that are forwarded to the command to the channel.
func catchForwarded(to chan<- os.Signal) {
	NotifyTermination(to)
	catch(to, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT)
}

// wrapper is the state of the wrapper, the process that holds the lease.
type wrapper struct {
	Options
	*guardProcess
	earlierChildren []int // the descendants of this process before the order, except the guard
	messages        <-chan toWrapper
	terminal        *terminal
	judge           *judge        // decides about the SIGKILL that the guard fails to send
	killed          bool          // the wrapper sent that SIGKILL
	sentDeadline    clock.Instant // the last deadline that the guard was sent
	lossHandled     bool          // the loss was reported, and sent to the guard unless the policy is Warn
	head            int           // the ID of the command's first process and of its group; 0 before the start
	continued       int           // how often the wrapper has continued the command
	ended           *ended        // nil while the command's first process runs
	outcome         Outcome
	failure         error
}

// Run runs the command under the lease, and returns when all its processes have ended. Only one call may run at a time in
// a process, because Run changes how the process handles signals and orphans.
func Run(o Options) (Outcome, error) {
	if err := o.Terms.Validate(); err != nil {
		return Outcome{}, err
	}
	deadline := o.Tenure.Deadline()
	w := &wrapper{Options: o, judge: newJudge(o.Terms, deadline), sentDeadline: deadline}
	if err := becomeSubreaper(); err != nil {
		return Outcome{}, fmt.Errorf("%w: cannot become the parent of orphaned processes: %w", ErrGuard, err)
	}
	defer stopSubreaping()
	w.terminal = openTerminal(o.Command.Terminal)
	defer w.terminal.close()
	catchForwarded(o.Signals)
	// A warning that is written to a closed pipe must not end this process, and with it the command.
	catch(make(chan os.Signal, 1), syscall.SIGPIPE)
	if err := w.begin(); err != nil {
		return Outcome{}, fmt.Errorf("%w: %w", ErrGuard, err)
	}
	defer w.link.file.Close()
	// After the start of the guard, because the command would inherit ignored signals.
	signal.Ignore(syscall.SIGTTOU)
	stop := make(chan struct{})
	defer close(stop)
	messages := make(chan toWrapper, 1)
	w.messages = messages
	go receive(w.link, messages, stop)
	w.watch()
	w.process.Wait() // watch has handled the cause
	w.terminal.takeBack(w.outcome.Signal != 0)
	return w.outcome, w.failure
}

// begin sends the order to the spare guard or, without one, to a new guard. A spare that has ended before it received any
// part of the order has started nothing, so begin replaces it by a new guard. A new guard is not replaced.
func (w *wrapper) begin() error {
	c := w.Command
	o := &order{
		Path: []byte(c.Path), Args: asBytes(c.Args), Env: asBytes(c.Env),
		Terminal: w.terminal.offer(), Terms: w.Terms, Deadline: w.sentDeadline,
	}
	if w.guardProcess = w.Spare.take(); w.guardProcess != nil {
		w.sendOrder(o)
		if w.link.used {
			return nil
		}
		w.guardProcess.end()
	}
	var err error
	if w.guardProcess, err = launchGuard(w.Options); err == nil {
		w.sendOrder(o)
	}
	return err
}

// sendOrder sends the guard the order. If it cannot, it kills the guard, and watch handles the guard's end.
func (w *wrapper) sendOrder(o *order) {
	w.earlierChildren = otherDescendants(w.process.Pid)
	if err := w.link.send(toGuard{Order: o}, orderLimit); err != nil {
		w.process.Kill() // the guard may have received a part of the order
	}
}

// watch handles messages, signals and deadlines until the guard has sent its last message or has ended.
func (w *wrapper) watch() {
	alarm, err := newAlarm()
	if err != nil {
		alarm = newGoAlarm()
	}
	defer alarm.stop()
	done := w.Tenure.Context().Done()
	signals := w.Signals
	for {
		alarm.set(min(w.killIfOverdue(), w.checkInterval()))
		select {
		case m, ok := <-w.messages:
			if !ok {
				w.handleGuardExit()
				return
			}
			if w.handle(m) {
				return
			}
		case s := <-signals:
			w.forward(s)
		case <-done:
			done = nil
			w.handleLoss()
		case <-alarm.wakes():
			w.sendDeadline()
		}
	}
}

// checkInterval returns how often to check whether the deadline has moved. Renewals come about every third of the TTL.
func (w *wrapper) checkInterval() time.Duration {
	return min(max(w.Terms.TTL/32, 5*time.Millisecond), time.Second)
}

// killIfOverdue sends the command SIGKILL if the guard should have done so by now. It returns how long to wait before the
// next check.
func (w *wrapper) killIfOverdue() time.Duration {
	what, wait := w.judge.decide(clock.Now())
	if what == actKill && w.head != 0 && w.ended == nil {
		w.killed = true
		syscall.Kill(-w.head, syscall.SIGKILL) // the guard has not reported its end; the guard reports errors
	}
	return wait
}

// sendDeadline sends the guard the deadline if it has moved. It also continues the guard, in case a signal stopped it.
func (w *wrapper) sendDeadline() {
	w.process.Signal(syscall.SIGCONT)
	now := w.Tenure.Deadline()
	if now == w.sentDeadline || w.lossHandled {
		return
	}
	w.sentDeadline = now
	w.judge.extend(now)
	w.send(toGuard{Deadline: &now})
}

// send sends the guard a message. If it cannot, it kills the guard, and handleGuardExit ends the command.
func (w *wrapper) send(m toGuard) {
	if err := w.link.send(m, sendLimit); err != nil {
		w.process.Kill() // the guard may have received half a message
	}
}

// handleLoss makes the guard end the command because the lease is lost. If the policy is Warn, it only reports the loss.
func (w *wrapper) handleLoss() {
	w.lossHandled = true
	cause := context.Cause(w.Tenure.Context())
	if w.Terms.OnLost == Warn {
		w.Report(fmt.Sprintf("the lease has ended (%v), and the command runs on: others may act too", cause))
		return
	}
	w.Report(fmt.Sprintf("the lease has ended (%v): ending the command", cause))
	w.send(toGuard{Lost: true})
}

// handle handles a message of the guard. It returns true for the last message.
func (w *wrapper) handle(m toWrapper) (last bool) {
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
	case m.Ending == lost && !w.lossHandled:
		w.Report("the lease could not be renewed in time: ending the command before the lease expires")
	case m.Ending == leftovers:
		w.Report("the command left processes running: ending them; to wait for them instead, use --leftovers wait")
	case m.Ended != nil:
		w.ended = m.Ended
		w.judge.headEnded = true
		w.outcome.Code, w.outcome.Signal = m.Ended.Code, m.Ended.Signal
		w.outcome.Interrupted = w.terminal.isGiven() && m.Ended.Signal == int(syscall.SIGINT)
		if w.Terms.Wait { // as in a shell, the waiting process has the keyboard
			w.terminal.takeBack(w.outcome.Signal != 0)
		}
	case m.Trouble != "":
		w.Report(m.Trouble)
	case m.Gone:
		w.outcome.Stopped = m.Lost || w.killed
		return true
	}
	return false
}

// forward makes the guard send a signal to the command's group, or to the processes that the command left running. If the
// wrapper was continued, it continues the command.
func (w *wrapper) forward(s os.Signal) {
	number, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	switch {
	case number == syscall.SIGCONT:
		w.continueCommand()
		return
	case number == syscall.SIGTSTP && w.ended != nil:
		return // the processes that the command left running would stop, and the wrapper would not
	}
	w.send(toGuard{Signal: int(number)})
}

// stopDelay bounds how long this process waits for a signal to stop or end it.
const stopDelay = 200 * time.Millisecond

// awaitContinue waits until the process is stopped and continued, or stopDelay has passed without a stop. It waits in
// parts, because the clock runs on while the process is stopped: a stop uses up at most one part.
func awaitContinue(continued <-chan os.Signal) {
	const parts = 10
	for range parts {
		select {
		case <-continued:
			return
		case <-time.After(stopDelay / parts):
		}
	}
}

// suspend stops this process with its group, because the command was stopped by the keyboard or by an attempt to use the
// terminal. When this process is continued, it continues the command. If no other process could continue this one, it
// continues the command at once.
func (w *wrapper) suspend(by syscall.Signal) {
	if by == syscall.SIGSTOP || w.ended != nil {
		return
	}
	// The command may have tried to use the terminal just before the shell put this group into the foreground.
	late := by != syscall.SIGTSTP && w.terminal.inForeground()
	if !late && !isOrphaned() {
		w.terminal.takeBack(true)
		// The Go runtime cannot restore the default action of SIGTSTP once it was caught. So this process stops itself by
		// SIGSTOP, and ignores the SIGTSTP that it sends to the group: otherwise that signal could arrive after the
		// process is continued, and would then be forwarded. SIGCONT is delivered here only: if it were in w.Signals
		// too, it would later continue a command that was stopped again.
		ignored := signal.Ignored(syscall.SIGTSTP)
		signal.Ignore(syscall.SIGTSTP)
		signal.Reset(syscall.SIGCONT)
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		syscall.Kill(0, syscall.SIGTSTP)
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		awaitContinue(continued)
		signal.Stop(continued) // a SIGCONT that is still on its way is not forwarded
		if !ignored {
			signal.Notify(w.Signals, syscall.SIGTSTP) // catchForwarded leaves out ignored signals
		}
		catchForwarded(w.Signals)
	}
	w.continueCommand()
}

// isOrphaned reports whether this process has no ancestor in another group of the session. Such an ancestor is usually a
// shell, which can continue a stopped group. The system does not let the keyboard stop orphaned groups.
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

// continueCommand puts the command's group into the foreground and makes the guard continue it.
func (w *wrapper) continueCommand() {
	if w.head == 0 || w.ended != nil {
		return
	}
	w.terminal.give(w.head)
	w.continued++
	w.send(toGuard{Signal: int(syscall.SIGCONT)})
}

// killLimit bounds how long a process may take to end after SIGKILL.
const killLimit = 10 * time.Second

// handleGuardExit ends all processes of the command, because the guard has ended before its last message.
func (w *wrapper) handleGuardExit() {
	why := "it ended by itself"
	if state, err := w.process.Wait(); err != nil {
		why = err.Error()
	} else if !state.Success() {
		why = state.String()
	}
	w.failure = fmt.Errorf("%w (%s), so the command was killed", ErrGuard, why)
	for limit := time.Now().Add(killLimit); !w.endRest(); time.Sleep(killAgain) {
		if time.Now().After(limit) {
			w.outcome.Remains = true
			w.failure = fmt.Errorf("%w (%s), and a process that the command started cannot be killed", ErrGuard, why)
			return
		}
	}
}

// endRest kills the processes of the command, and returns whether all have ended.
func (w *wrapper) endRest() bool {
	gone := true
	if w.head != 0 {
		gone = syscall.Kill(-w.head, syscall.SIGKILL) == syscall.ESRCH
	}
	for _, pid := range descendants(os.Getpid(), w.earlierChildren...) {
		gone = false
		syscall.Kill(pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
	return gone
}
