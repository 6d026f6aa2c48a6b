package leasekeeper

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/clock"
)

// An earlier instant on either clock wakes the watcher. A later one does not.
func TestWatcherIsWokenForAnEarlierWakeAt(t *testing.T) {
	for what, c := range map[string]struct {
		armed  bool
		wakeAt clock.Instant
		woken  bool
	}{
		"it waits for nothing":    {false, clock.Instant{Raw: 30, Boot: 30}, true},
		"the same":                {true, clock.Instant{Raw: 20, Boot: 20}, false},
		"later":                   {true, clock.Instant{Raw: 30, Boot: 30}, false},
		"earlier":                 {true, clock.Instant{Raw: 10, Boot: 10}, true},
		"earlier on the one only": {true, clock.Instant{Raw: 10, Boot: 30}, true},
		"and on the other only":   {true, clock.Instant{Raw: 30, Boot: 10}, true},
	} {
		k := &Keeper{wakeUp: make(chan struct{}, 1), armed: clock.Instant{Raw: 20, Boot: 20}, isArmed: c.armed, wakeAt: c.wakeAt, waits: true}
		k.wake()
		if woken := len(k.wakeUp) > 0; woken != c.woken {
			t.Errorf("%s: woken %t", what, woken)
		}
	}
}

// The watcher waits for the instant that the renewer requested last.
func TestWatcherIsArmedForTheLatestWakeAt(t *testing.T) {
	k := &Keeper{clock: clock.System{}, wakeAt: clock.Now().Add(1e15), waits: true}
	if left, waits := k.arm(); !waits || left <= 0 || !k.isArmed || k.armed != k.wakeAt {
		t.Errorf("left %v, waits %t, armed %t for %v", left, waits, k.isArmed, k.armed)
	}
	k.waits = false
	if _, waits := k.arm(); waits || k.isArmed {
		t.Errorf("waits %t, armed %t for nothing", waits, k.isArmed)
	}
}
