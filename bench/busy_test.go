package main

import (
	"slices"
	"testing"
	"time"
)

func TestWithin(t *testing.T) {
	start := time.Now()
	var samples []sample
	for i := range 5 {
		samples = append(samples, sample{start.Add(time.Duration(i) * time.Second), time.Duration(i)})
	}
	got := within(samples, start.Add(time.Second), 2*time.Second)
	if want := []time.Duration{1, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
