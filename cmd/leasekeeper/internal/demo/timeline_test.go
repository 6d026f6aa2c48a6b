package demo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

func TestTimelineIsInTheOrderOfItsEvents(t *testing.T) {
	var out strings.Builder
	began := clock.Now().Add(-10 * time.Second)
	line := newTimeline(&out, began, func(err error) { t.Error(err) })
	line.mu.Lock() // nothing is printed until all events are there
	line.pending = append(line.pending, event{at: began.Add(2 * time.Second), what: "second", holder: "green", token: 7}, event{at: began.Add(time.Second), what: "first"})
	line.mu.Unlock()
	line.close()
	printed := out.String()
	first, second := strings.Index(printed, "first"), strings.Index(printed, "second")
	if first < 0 || second < first {
		t.Errorf("printed %q", printed)
	}
	for row := range strings.Lines(printed) {
		if len(row) > 100 {
			t.Errorf("%q has more than 100 columns", row)
		}
	}
	if !strings.Contains(printed, "green") || !strings.Contains(printed, "7\n") {
		t.Errorf("the holder or its token is missing in %q", printed)
	}
}

// brokenWriter is an output that cannot be written.
type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestTimelineReportsAnOutputThatCannotBeWritten(t *testing.T) {
	var got error
	line := newTimeline(brokenWriter{}, clock.Now(), func(err error) { got = err })
	line.close()
	if !errors.Is(got, errBroken) {
		t.Errorf("got %v", got)
	}
}
