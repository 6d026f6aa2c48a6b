package main

import (
	"strings"
	"testing"
)

func TestMetricIsFoundByItsWholeName(t *testing.T) {
	const text = "# HELP a_bytes Of a.\n# TYPE a_bytes gauge\na_bytes_more 3\na_bytes 1.5e+06\n"
	if v, err := findMetric(strings.NewReader(text), "a_bytes"); err != nil || v != 1.5e6 {
		t.Errorf("got %v, %v", v, err)
	}
	if _, err := findMetric(strings.NewReader(text), "b_bytes"); err == nil {
		t.Error("a metric that is not there is found")
	}
}
