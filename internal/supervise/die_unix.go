//go:build linux || darwin

package supervise

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Die ends this process by the signal, so that its parent sees that. It returns after a moment if that cannot be done.
func Die(by os.Signal) { die(syscall.Getpid(), by) }

// DieWithGroup does the same to all processes of its group: they would have got the terminal's interrupt if
// the command had not had the terminal for itself.
func DieWithGroup(by os.Signal) { die(0, by) }

func die(whom int, by os.Signal) {
	number, ok := by.(syscall.Signal)
	if !ok || number == syscall.SIGQUIT { // Go would print what all goroutines do
		return
	}
	signal.Reset(number)
	if syscall.Kill(whom, number) == nil {
		time.Sleep(stopSettles)
	}
}
