package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var testSeries = series{Commit: "0123456789ab", Machine: "2 x test", Flags: "servers -quick"}

func testRow(name string) rowResult {
	return rowResult{Name: name, Began: time.Unix(1, 0).UTC(), Ended: time.Unix(2, 0).UTC(),
		Figures: []result{{Target: ours, Name: "rate", Unit: "1/s", Goal: "5", Value: 7}}}
}

func reopen(t *testing.T, path string, s series) *journal {
	t.Helper()
	j, err := openJournal(path, s)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestJournalKeepsRowsOfItsSeries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "results.jsonl")
	j := reopen(t, path, testSeries)
	must(t, j.begin())
	must(t, j.keep(testRow("gets")))
	again := reopen(t, path, testSeries)
	got, found := again.row("gets")
	if !found || len(got.Figures) != 1 || got.Figures[0] != testRow("gets").Figures[0] || !got.Ended.Equal(time.Unix(2, 0)) {
		t.Errorf("the row is %+v, %v", got, found)
	}
	if _, found := again.row("puts"); found {
		t.Error("a row is there that was not kept")
	}
	for _, other := range []series{
		{"other", testSeries.Machine, testSeries.Flags}, {testSeries.Commit, "other", testSeries.Flags}, {testSeries.Commit, testSeries.Machine, "servers"},
	} {
		if j := reopen(t, path, other); len(j.rows) > 0 {
			t.Errorf("rows of %v are taken for %v", testSeries, other)
		}
	}
}

func TestJournalDropsOldRowsWhenItBegins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	j := reopen(t, path, testSeries)
	must(t, j.keep(testRow("gets")))
	must(t, j.finish())
	if j := reopen(t, path, testSeries); !j.finished || len(j.rows) != 1 {
		t.Errorf("finished is %v with %d rows", j.finished, len(j.rows))
	}
	must(t, j.begin())
	must(t, j.keep(testRow("puts")))
	j = reopen(t, path, testSeries)
	if _, old := j.row("gets"); old || j.finished || len(j.rows) != 1 {
		t.Errorf("after a new beginning finished is %v with the rows %v", j.finished, j.rows)
	}
}

func TestDamagedLinesAreIgnored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	j := reopen(t, path, testSeries)
	must(t, j.keep(testRow("gets")))
	must(t, j.keep(testRow("puts")))
	whole, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, whole[:len(whole)-20], 0o600)) // killed while it wrote
	j = reopen(t, path, testSeries)
	if _, found := j.row("gets"); !found || len(j.rows) != 1 || j.damaged != 1 {
		t.Errorf("%d rows are left, %d lines damaged; want 1 and 1", len(j.rows), j.damaged)
	}
	must(t, j.keep(testRow("puts")))
	if j = reopen(t, path, testSeries); len(j.rows) != 2 || j.damaged != 1 {
		t.Errorf("after half a line there are %d rows, %d lines damaged; want 2 and 1", len(j.rows), j.damaged)
	}
	for _, line := range []string{"{}", `{"kind":"row"}`, `{"kind":"row","row":{"name":"x"}}`, `{"kind":"other"}`, "\x00\x00", "[1]"} {
		if j := parseJournal([]byte(line+"\n\n"), series{}); j.damaged != 1 || len(j.rows) > 0 {
			t.Errorf("of %q, %d lines are damaged and %d rows are read", line, j.damaged, len(j.rows))
		}
	}
}

// TestRecorderResumes has a run fail at its second row, and the next one measure only from there.
func TestRecorderResumes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	var out strings.Builder
	measured := map[string]int{}
	attempt := func(ctx context.Context, fails bool) error {
		rec := &recorder{out: &out, table: &table{targets: []string{ours}}, journal: reopen(t, path, testSeries), noise: &noise{}}
		for _, name := range []string{"gets", "puts"} {
			err := rec.row(ctx, name, func(add func(string, figure)) error {
				measured[name]++
				add(ours, figure{unit: "1/s", value: 1234})
				if fails && name == "puts" {
					return errors.New("puts: broken")
				}
				return nil
			})
			must(t, err)
		}
		return rec.end()
	}
	if err := attempt(t.Context(), true); err == nil || !strings.Contains(err.Error(), "puts: broken") {
		t.Errorf("a run with a failed row ends with %v", err)
	}
	if !strings.Contains(out.String(), "gets") || !strings.Contains(out.String(), "1 234") {
		t.Errorf("the row is not printed:\n%s", out.String())
	}
	out.Reset()
	must(t, attempt(t.Context(), false))
	if measured["gets"] != 1 || measured["puts"] != 2 {
		t.Errorf("measured %v, want gets once and puts twice", measured)
	}
	if !strings.Contains(out.String(), "gets") {
		t.Errorf("a kept row is not printed:\n%s", out.String())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, attempt(ended, true)) // nothing is left to be measured
	if measured["gets"] != 1 || measured["puts"] != 2 || !reopen(t, path, testSeries).finished {
		t.Errorf("a finished run was measured again: %v", measured)
	}
}
