package masterlease_test

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

func TestHoldOffsEndAndAreBounded(t *testing.T) {
	var h masterlease.HoldOffs
	now := clock.Instant{}.Add(time.Hour)
	left := func(member uint64, want time.Duration) {
		t.Helper()
		if got := h.Left(member, now); got != want {
			t.Errorf("member %d: %v left, want %v", member, got, want)
		}
	}
	left(1, 0)
	h.Hear(1, time.Second, now)
	h.Hear(2, time.Hour, now)
	left(1, time.Second)
	left(2, masterlease.MaxHoldOff)
	now = now.Add(600 * time.Millisecond)
	left(1, 400*time.Millisecond)
	now = now.Add(time.Second)
	left(1, 0)
	h.Hear(2, 0, now)
	left(2, 0)
}
