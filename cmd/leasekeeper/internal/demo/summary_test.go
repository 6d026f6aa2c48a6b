package demo

import (
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/clock"
)

func TestSummaryWithABrokenFactIsAnError(t *testing.T) {
	for _, holds := range []bool{true, false} {
		var out strings.Builder
		fail := func(err error) { t.Error(err) }
		s := &scenario{out: &out, fail: fail, timeline: newTimeline(&out, clock.Now(), fail), record: newRecord()}
		err := s.printSummary(s.tenureRows(), []fact{{name: "water is wet", value: "very", holds: true}, {name: "fire is cold", value: "so", holds: holds}})
		s.timeline.close()
		if holds && err != nil || !holds && (err == nil || !strings.Contains(err.Error(), "fire is cold") || strings.Contains(err.Error(), "water")) {
			t.Errorf("the fact holds: %v, the error: %v", holds, err)
		}
		if strings.Contains(out.String(), "BROKEN  fire is cold") == holds {
			t.Errorf("the fact holds: %v, printed:\n%s", holds, &out)
		}
	}
}

func TestLongTextsAreCutOff(t *testing.T) {
	fits := strings.Repeat("ä", eventColumns)
	if got := shortened(fits); got != fits {
		t.Errorf("got %q", got)
	}
	if got := shortened(fits + "ä"); got != strings.Repeat("ä", eventColumns-1)+"…" {
		t.Errorf("got %q", got)
	}
}
