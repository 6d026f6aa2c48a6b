//go:build linux || darwin

package supervise

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Die ends this process by the signal, so that its parent sees that signal as the cause. If the signal does not end the
// process, Die returns after a moment.
func Die(by os.Signal) { signalSelf(syscall.Getpid(), by) }

// DieWithGroup ends all processes of this process's group by the signal. They would have received the terminal's interrupt
// if the command's group had not been in the foreground.
func DieWithGroup(by os.Signal) { signalSelf(0, by) }

// signalSelf sends the signal to a target as in kill(2), with the signal's default action restored.
func signalSelf(target int, by os.Signal) {
	number, ok := by.(syscall.Signal)
	if !ok || number == syscall.SIGQUIT { // the Go runtime would print the stacks of all goroutines
		return
	}
	signal.Reset(number)
	if syscall.Kill(target, number) == nil {
		time.Sleep(stopDelay)
	}
}
