package main

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestSamplesWithinASpan(t *testing.T) {
	start := time.Now()
	var samples []sample
	for i := range 5 {
		samples = append(samples, sample{start.Add(time.Duration(i) * time.Second), time.Duration(i), nil})
	}
	got := within(samples, start.Add(time.Second), 2*time.Second)
	if want := []time.Duration{1, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestShareOfRefusedSamples(t *testing.T) {
	last := errors.New("the last reason")
	part, why := refusals([]sample{{}, {err: errors.New("a reason")}, {}, {err: last}})
	if part != 0.5 || why != last {
		t.Errorf("%v are refused: %v", part, why)
	}
	if part, why := refusals(nil); part != 0 || why != nil {
		t.Errorf("of no puts %v are refused: %v", part, why)
	}
}
