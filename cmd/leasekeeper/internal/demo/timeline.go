package demo

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

const (
	// heldBack is how long a line waits before it is printed, so that lines of several processes are in their order.
	heldBack = 500 * time.Millisecond
	// printEvery is the time between two prints.
	printEvery = 50 * time.Millisecond
	// mostPending bounds the lines that wait. Above it, lines are printed at once.
	mostPending = 100
	// eventColumns is the width of the column of events. No line is longer than 100 columns, if its text fits there.
	eventColumns = 71
)

// timeline prints events in the order of their times. It is safe for concurrent use. close prints the rest.
type timeline struct {
	out   io.Writer
	began clock.Instant
	fail  func(error) // receives errors of out

	mu      sync.Mutex
	pending []event
	stop    chan struct{} // closed by close
	stopped chan struct{} // closed when the goroutine has ended
}

// event is a line of the timeline.
type event struct {
	at     clock.Instant
	what   string
	holder string            // "" for none
	token  leasekeeper.Token // 0 for none
}

// newTimeline starts a timeline whose time is zero at began. It calls fail if out cannot be written.
func newTimeline(out io.Writer, began clock.Instant, fail func(error)) *timeline {
	t := &timeline{out: out, began: began, fail: fail, stop: make(chan struct{}), stopped: make(chan struct{})}
	t.print("%8s  %-*s  %-7s %6s", "SECONDS", eventColumns, "EVENT", "HOLDER", "TOKEN")
	go t.run()
	return t
}

// add adds an event.
func (t *timeline) add(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = append(t.pending, e)
	if len(t.pending) > mostPending {
		t.flush(e.at)
	}
}

// run prints pending lines until close is called.
func (t *timeline) run() {
	defer close(t.stopped)
	tick := time.NewTicker(printEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.mu.Lock()
			t.flush(clock.Now().Add(-heldBack))
			t.mu.Unlock()
		case <-t.stop:
			return
		}
	}
}

// close prints all pending lines and ends the goroutine.
func (t *timeline) close() {
	close(t.stop)
	<-t.stopped
	t.settle()
}

// settle prints all pending lines.
func (t *timeline) settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush(clock.Now())
}

// flush prints the events until an instant, in their order. The timeline is locked.
func (t *timeline) flush(until clock.Instant) {
	slices.SortStableFunc(t.pending, func(a, b event) int {
		switch {
		case a.at.Raw < b.at.Raw:
			return -1
		case a.at.Raw > b.at.Raw:
			return 1
		}
		return 0
	})
	n := 0
	for _, e := range t.pending {
		if e.at.Raw > until.Raw {
			break
		}
		n++
		t.printEvent(e)
	}
	t.pending = t.pending[n:]
}

func (t *timeline) printEvent(e event) {
	token := ""
	if e.token != 0 {
		token = e.token.String()
	}
	t.print("%8.3f  %-*s  %-7s %6s", e.at.Elapsed(t.began).Seconds(), eventColumns, e.what, e.holder, token)
}

func (t *timeline) print(format string, args ...any) {
	if err := console.PrintLine(t.out, "%s", trimmed(fmt.Sprintf(format, args...))); err != nil {
		t.fail(fmt.Errorf("the demo cannot print: %w", err))
	}
}
