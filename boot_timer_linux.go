package leasekeeper

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// bootTimer is a timer on CLOCK_BOOTTIME, which also counts the time that the machine sleeps. Go's own timers stop during
// that time, and would fire late by all of it.
type bootTimer struct {
	file  *os.File
	fired chan struct{}
}

// newBootTimer returns a timer of the boot clock; nil if the system has none. Then only Go's timers are left.
func newBootTimer() *bootTimer {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil
	}
	return &bootTimer{file: os.NewFile(uintptr(fd), "timerfd"), fired: make(chan struct{}, 1)}
}

// run reports each expiry until the timer is closed.
func (a *bootTimer) run() {
	count := make([]byte, 8)
	for {
		if _, err := a.file.Read(count); err != nil {
			return
		}
		select {
		case a.fired <- struct{}{}:
		default:
		}
	}
}

// set makes the timer fire after d, in place of any earlier setting.
func (a *bootTimer) set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	raw, err := a.file.SyscallConn()
	if err != nil {
		return // closed
	}
	// An error leaves Go's timer, which is armed as well.
	_ = raw.Control(func(fd uintptr) { _ = unix.TimerfdSettime(int(fd), 0, &spec, nil) })
}

func (a *bootTimer) close() { _ = a.file.Close() }
