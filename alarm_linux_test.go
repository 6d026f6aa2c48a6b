package leasekeeper

import (
	"testing"
	"time"
)

func TestT4AlarmRingsByTheBootClock(t *testing.T) {
	a := newAlarm()
	if a == nil {
		t.Fatal("Linux has no timerfd")
	}
	ended := make(chan struct{})
	go func() {
		a.run()
		close(ended)
	}()
	for range 2 {
		start := time.Now()
		a.set(time.Hour)
		a.set(30 * time.Millisecond) // replaces the one before
		<-a.rung
		if took := time.Since(start); took < 29*time.Millisecond || took > 5*time.Second {
			t.Errorf("rang after %v", took)
		}
	}
	a.set(-1) // at once
	<-a.rung
	a.close()
	<-ended
	a.set(time.Second) // harmless
}

func TestT4NapsAreShorterThanWhatIsLeft(t *testing.T) {
	for left := 3 * time.Millisecond; left < 1000*time.Hour; left *= 3 {
		if n := nap(left); n <= 0 || n > left*9/10+1 {
			t.Errorf("sleeps %v when %v are left", n, left)
		}
	}
}
