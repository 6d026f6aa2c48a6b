package histogram

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestDurationsAreCountedByBound(t *testing.T) {
	var h Durations
	for _, d := range []time.Duration{-1, 0, 1, 100 * time.Microsecond, 100*time.Microsecond + 1, 200 * time.Microsecond, 300 * time.Microsecond, time.Hour} {
		h.Observe(d, 2)
	}
	var got []string
	h.Cumulative(func(bound time.Duration, n uint64) {
		if bound <= 800*time.Microsecond || bound > 30*time.Second {
			got = append(got, fmt.Sprint(bound, " ", n))
		}
	})
	want := "100µs 8, 200µs 12, 400µs 14, 800µs 14, 52.4288s 14"
	if strings.Join(got, ", ") != want || h.Count() != 16 {
		t.Errorf("%v of %d, want %s of 16", got, h.Count(), want)
	}
}
