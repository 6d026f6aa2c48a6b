package leasekeeper

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm rings when a time has passed on CLOCK_BOOTTIME, which counts the time that the machine sleeps. Go's
// own timers stop then, and would ring late by all of it.
type alarm struct {
	file *os.File
	rung chan struct{}
}

// newAlarm returns an alarm, or nil if there can be none: then the timers are all there is.
func newAlarm() *alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil
	}
	return &alarm{file: os.NewFile(uintptr(fd), "timerfd"), rung: make(chan struct{}, 1)}
}

// run rings until the alarm is closed.
func (a *alarm) run() {
	count := make([]byte, 8)
	for {
		if _, err := a.file.Read(count); err != nil {
			return
		}
		select {
		case a.rung <- struct{}{}:
		default:
		}
	}
}

// set makes the alarm ring after d instead of when it was to ring before.
func (a *alarm) set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	raw, err := a.file.SyscallConn()
	if err != nil {
		return // closed
	}
	// What fails leaves the timers, which are armed besides.
	_ = raw.Control(func(fd uintptr) { _ = unix.TimerfdSettime(int(fd), 0, &spec, nil) })
}

func (a *alarm) close() { _ = a.file.Close() }
