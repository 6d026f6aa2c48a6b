package etcdapi

import (
	"testing"
	"time"
)

func TestTTLIsRoundedDownToSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-3 * time.Second: 0, -1: 0, 0: 0, time.Second - 1: 0, time.Second: 1, 2*time.Second - 1: 1,
	} {
		wantEqual(t, d.String(), wholeSeconds(d), want)
	}
}
