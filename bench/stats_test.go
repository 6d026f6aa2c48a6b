package main

import (
	"testing"
	"time"
)

func TestPercentileOfSamples(t *testing.T) {
	hundred := func() []int64 {
		var values []int64
		for i := int64(100); i > 0; i-- {
			values = append(values, i)
		}
		return values
	}
	for _, test := range []struct {
		values []int64
		p      float64
		want   int64
	}{
		{[]int64{7}, 0, 7},
		{[]int64{7}, 50, 7},
		{[]int64{7}, 100, 7},
		{[]int64{2, 1}, 50, 1},
		{[]int64{2, 1}, 51, 2},
		{[]int64{3, 1, 2}, 50, 2},
		{[]int64{5, 5, 5, 9}, 75, 5},
		{[]int64{5, 5, 5, 9}, 76, 9},
		{hundred(), 0, 1},
		{hundred(), 50, 50},
		{hundred(), 99, 99},
		{hundred(), 99.5, 100},
		{hundred(), 100, 100},
	} {
		if got := percentile(test.values, test.p); got != test.want {
			t.Errorf("percentile %v of %v is %d, want %d", test.p, test.values, got, test.want)
		}
	}
}

func TestMedianLeavesItsArgument(t *testing.T) {
	values := []float64{3, 1, 2}
	if got := median(values); got != 2 || values[0] != 3 {
		t.Errorf("median is %v and leaves %v", got, values)
	}
}

func TestDurationInMilliseconds(t *testing.T) {
	if got := milliseconds(1500 * time.Microsecond); got != 1.5 {
		t.Errorf("got %v", got)
	}
}
