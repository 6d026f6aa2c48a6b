package node

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// A disk with ever new operations under way is busy; a disk with one operation that does not end is stuck.
func TestDiskWatchDistinguishesStuckFromBusy(t *testing.T) {
	var w diskWatch
	looks := func(n int) {
		for range n {
			w.look()
		}
	}
	before := w.begin()
	for range 10 * stuckLooks {
		next := w.begin() // before the previous operation ends
		w.end(before)
		before = next
		if looks(1); w.stuck() {
			t.Fatal("a disk that is always busy counts as stuck")
		}
	}
	if looks(stuckLooks - 1); w.stuck() {
		t.Errorf("after %d looks an operation counts as stuck", stuckLooks)
	}
	w.end(w.begin()) // other operations still end
	if looks(1); !w.stuck() {
		t.Errorf("after %d looks an operation does not count as stuck", stuckLooks+1)
	}
	w.end(before)
	if looks(1); w.stuck() {
		t.Error("an operation counts as stuck after it has ended")
	}
}

// The member's goroutine does not run, as in a process without processor time, for many more looks than make a disk
// stuck. The member still serves.
func TestBusyMemberServes(t *testing.T) {
	n, err := Start(context.Background(), Config{Dir: "data", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	<-n.Ready()
	busy, over := make(chan struct{}), make(chan struct{})
	go look(context.Background(), n, func(*replica.Replica, clock.Instant) struct{} {
		close(busy)
		<-over
		return struct{}{}
	})
	<-busy
	for range 3 * stuckLooks {
		n.disk.look()
		time.Sleep(time.Millisecond) // the database may be at work, and must not count as stuck
	}
	if err := n.Serving(); err != nil {
		t.Errorf("a member that is busy: %v", err)
	}
	if err := n.CheckReady(); err != nil {
		t.Errorf("a member that is busy is not ready: %v", err)
	}
	close(over)
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
