package leasekeeper

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// asleep is the clocks of a suspended machine: they jump without firing a timer.
type asleep struct{ *memory.Clock }

func (asleep) Moved() <-chan struct{} { return nil }

type asleepBackend struct {
	*memory.Backend
	clock asleep
}

func (b asleepBackend) Clock() backend.Clock { return b.clock }

func TestBootTimerEndsLeasesThatRanOutDuringSuspend(t *testing.T) {
	clocks := asleep{memory.NewClock()}
	k, err := New(asleepBackend{memory.New(memory.WithClock(clocks.Clock)).Backend(), clocks}, WithTTL(10*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	l, err := k.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	boot := newBootTimer()
	k.own.Go(func() { k.watchTime(boot) })
	time.Sleep(50 * time.Millisecond) // usually long enough for both goroutines to sleep; the test holds in any case
	clocks.Suspend(11 * time.Hour)
	for fired := false; !fired; {
		boot.set(time.Millisecond) // as the kernel does on resume
		select {
		case <-l.Context().Done():
			fired = true
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := k.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBootTimerFiresByTheBootClock(t *testing.T) {
	a := newBootTimer()
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
		a.set(30 * time.Millisecond) // replaces the earlier setting
		<-a.fired
		if took := time.Since(start); took < 29*time.Millisecond {
			t.Errorf("fired after %v, too early", took)
		}
	}
	a.set(-1) // at once
	<-a.fired
	a.close()
	<-ended
	a.set(time.Second) // after close: does nothing
}

func TestNapsAreShorterThanTheTimeLeft(t *testing.T) {
	for left := 3 * time.Millisecond; left < 1000*time.Hour; left *= 3 {
		if n := nap(left); n <= 0 || n > left*9/10+1 {
			t.Errorf("sleeps %v when %v are left", n, left)
		}
	}
}
