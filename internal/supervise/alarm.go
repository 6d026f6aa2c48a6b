package supervise

import "time"

// alarm wakes a goroutine after a duration, or earlier: the goroutine then reads the clocks.
type alarm interface {
	set(time.Duration)
	wakes() <-chan struct{}
	stop()
}

// goAlarm uses Go's timers, which stop during suspend and may be slewed. So it wakes after nine tenths of the time, and the
// goroutine sets it again.
type goAlarm struct {
	timer *time.Timer
	woken chan struct{}
}

// minSleep is the least time after which goAlarm wakes early: without it, the tenths would never add up to the whole.
const minSleep = time.Millisecond

func newGoAlarm() *goAlarm {
	a := &goAlarm{woken: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(forever, a.wake)
	return a
}

func (a *goAlarm) wake() {
	select {
	case a.woken <- struct{}{}:
	default:
	}
}

func (a *goAlarm) set(d time.Duration) { a.timer.Reset(max(d/10*9, min(d, minSleep))) }

func (a *goAlarm) wakes() <-chan struct{} { return a.woken }

func (a *goAlarm) stop() { a.timer.Stop() }
