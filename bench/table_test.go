package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

func TestTableOfTargets(t *testing.T) {
	table := table{reference: reference, targets: []string{reference, "leasekeeper", "bare gRPC"}}
	late := figure{name: "p50", unit: "ms", goal: "5"}
	with := func(f figure, value float64) figure { f.value = value; return f }
	table.add("lateness", reference, with(late, 297.1))
	table.add("lateness", "leasekeeper", with(late, 2.345))
	late.name, late.goal = "p99", ""
	table.add("lateness", "leasekeeper", with(late, 19.97))
	rate := figure{unit: "1/s", goal: "24 000"}
	for _, round := range []float64{12000, 1, 13400.4} {
		table.add("grants", reference, with(rate, round))
	}
	table.add("grants", "leasekeeper", with(rate, 24000))
	table.add("grants", "bare gRPC", with(rate, 1234567))
	var b strings.Builder
	table.nameWidth = len("lateness")
	printAll(t, &b, &table)
	want := `
          unit       etcd  leasekeeper     / etcd  bare gRPC     / etcd       goal
lateness
  p50     ms          297         2.35     0.008x          -          -          5
  p99     ms            -         20.0          -          -          -
grants    1/s      12 000       24 000       2.0x  1 234 567       103x     24 000
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestTableWithTwoReferences has one target that is divided by two others.
func TestTableWithTwoReferences(t *testing.T) {
	table := table{reference: reference, second: "alone", targets: []string{reference, "leasekeeper", "alone"}}
	for target, value := range map[string]float64{reference: 100, "leasekeeper": 400, "alone": 800} {
		table.add("gets", target, figure{unit: "1/s", value: value})
	}
	var b strings.Builder
	printAll(t, &b, &table)
	want := `
  unit       etcd  leasekeeper     / etcd    / alone      alone       goal
gets  1/s         100          400       4.0x      0.50x        800
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestNumbersAreRoundedAndGrouped(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 0.004: "0.00", 1.005: "1.00", 9.99: "9.99", 9.996: "10.0", 99.94: "99.9", 99.96: "100",
		999: "999", 1000: "1 000", 12345678: "12 345 678", -1234: "-1 234", -0.5: "-0.50",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is shown as %q, want %q", v, got, want)
		}
	}
}

func TestRatioToTheReference(t *testing.T) {
	for _, test := range []struct {
		value, base []float64
		want        string
	}{
		{[]float64{1}, []float64{2}, "0.50x"},
		{[]float64{3}, []float64{2}, "1.5x"},
		{[]float64{60}, []float64{2}, "30x"},
		{[]float64{1}, []float64{200}, "0.005x"},
		{[]float64{1}, []float64{0}, noValue},
		{nil, []float64{1}, noValue},
		{[]float64{1}, nil, noValue},
	} {
		if got := ratio(test.value, test.base); got != test.want {
			t.Errorf("%v / %v is shown as %q, want %q", test.value, test.base, got, test.want)
		}
	}
}

// printAll prints a table as a run does, row by row.
func printAll(t *testing.T, w io.Writer, table *table) {
	t.Helper()
	if err := writeAligned(w, table.widths(), table.head()); err != nil {
		t.Fatal(err)
	}
	var printed []string
	for _, r := range table.rows {
		if slices.Contains(printed, r.scenario) {
			continue
		}
		printed = append(printed, r.scenario)
		if err := writeAligned(w, table.widths(), table.linesOf(r.scenario)...); err != nil {
			t.Fatal(err)
		}
	}
}
