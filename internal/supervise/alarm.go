package supervise

import "time"

// alarm wakes a goroutine that waits for a moment to come. It may ring early: the goroutine then reads the clocks.
type alarm interface {
	set(time.Duration)
	rings() <-chan struct{}
	stop()
}

// goAlarm rings by Go's timers, which stand still in suspend and may be slewed. So it rings when nine tenths
// of the time are over, and then again.
type goAlarm struct {
	timer *time.Timer
	rung  chan struct{}
}

// leastSleep keeps the tenths from becoming endless.
const leastSleep = time.Millisecond

func newGoAlarm() *goAlarm {
	a := &goAlarm{rung: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(forever, a.ring)
	return a
}

func (a *goAlarm) ring() {
	select {
	case a.rung <- struct{}{}:
	default:
	}
}

func (a *goAlarm) set(d time.Duration) { a.timer.Reset(max(d/10*9, min(d, leastSleep))) }

func (a *goAlarm) rings() <-chan struct{} { return a.rung }

func (a *goAlarm) stop() { a.timer.Stop() }
