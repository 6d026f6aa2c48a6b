package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/backoff"
	"pgregory.net/rapid"
)

func TestPausesDoubleUpToTheLimit(t *testing.T) {
	for _, c := range []struct {
		first, limit time.Duration
		failures     int
		want         time.Duration
	}{
		{5, 1000, 0, 5}, {5, 1000, 1, 10}, {5, 1000, 4, 80}, {5, 1000, 7, 640}, {5, 1000, 8, 1000}, {5, 1000, math.MaxInt, 1000},
		{5, 5, 0, 5}, {5, 5, 3, 5}, {5, 3, 0, 3}, {5, 10, 1, 10}, {5, 10, 2, 10}, {5, 1000, -1, 5}, {0, 1000, math.MaxInt, 0},
		{1, math.MaxInt64, 62, 1 << 62}, {1, math.MaxInt64, 63, math.MaxInt64}, {1, math.MaxInt64, math.MaxInt, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, 1, math.MaxInt64},
	} {
		if got := backoff.Doubled(c.first, c.limit, c.failures); got != c.want {
			t.Errorf("Doubled(%d, %d, %d) = %d, want %d", c.first, c.limit, c.failures, got, c.want)
		}
	}
}

func TestRandomBitsReachBothEndsOfAnInterval(t *testing.T) {
	for _, c := range []struct {
		least, most time.Duration
		random      uint64
		want        time.Duration
	}{
		{10, 20, 0, 10}, {10, 20, math.MaxUint64, 20}, {10, 20, math.MaxUint64 / 2, 15},
		{10, 11, math.MaxUint64 / 2, 10}, {10, 11, math.MaxUint64/2 + 1, 11},
		{10, 10, math.MaxUint64, 10}, {10, 9, math.MaxUint64, 10}, {0, math.MaxInt64, math.MaxUint64, math.MaxInt64},
	} {
		if got := backoff.Between(c.least, c.most, c.random); got != c.want {
			t.Errorf("Between(%d, %d, %#x) = %d, want %d", c.least, c.most, c.random, got, c.want)
		}
	}
}

func TestDrawnPausesKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "d"))
		random := rapid.Uint64().Draw(t, "random")
		if got := backoff.Below(d, random); got < d/2 || got > d {
			t.Errorf("Below(%d) = %d", d, got)
		}
		if got := backoff.Around(d, 2, random); got < d-d/2 || got > d+d/2 {
			t.Errorf("Around(%d, 2) = %d", d, got)
		}
		if got := backoff.Around(d, 4, random); got < d-d/4 || got > d+d/4 {
			t.Errorf("Around(%d, 4) = %d", d, got)
		}
	})
}
