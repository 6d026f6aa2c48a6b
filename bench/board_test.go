package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func boardOf(t *testing.T) *board {
	t.Helper()
	single := &recorder{table: &table{targets: []string{reference, ours, "bare gRPC"}}, began: time.Date(2026, 11, 21, 22, 52, 0, 0, time.UTC), ended: time.Date(2026, 11, 21, 23, 50, 0, 0, time.UTC),
		usage: usage{Total: 100, Others: 2, Stolen: 14}}
	add := func(rec *recorder, scenario, target, name, unit, goal string, value float64) {
		rec.table.add(scenario, target, figure{name: name, unit: unit, goal: goal, value: value})
	}
	add(single, "lateness", reference, "p50", "ms", "5", 278)
	add(single, "lateness", ours, "p50", "ms", "5", 4.1)
	add(single, "lateness", ours, "max", "ms", "", 12)
	for _, v := range []float64{17999, 100, 20000} {
		add(single, "puts", ours, "", "1/s", "18 000", v)
	}
	add(single, "puts", "bare gRPC", "", "1/s", "18 000", 40000)
	cluster := &recorder{table: &table{targets: []string{reference, ours, alone}, second: alone}, began: time.Date(2026, 11, 22, 0, 1, 0, 0, time.UTC), ended: time.Date(2026, 11, 22, 0, 30, 0, 0, time.UTC)}
	add(cluster, "gets", alone, "p50", "ms", "as alone", 0.05)
	add(cluster, "gets", ours, "p50", "ms", "as alone", 0.06)
	facts := []fact{{"date", "x"}, {"cores", "2 x test"}, {"load", "0"}, {"leasekeeper", "y"}, {"etcd", "v3"}}
	return newBoard([]*recorder{single, cluster}, "0123456789ab", "-board -cluster", facts)
}

func TestBoardIsRendered(t *testing.T) {
	want := "Measured on 2026-11-21 to 2026-11-22 00:30 UTC at commit `0123456789ab` by `cd bench && go run . -board -cluster`." + `

- cores: 2 x test
- etcd: v3

Meanwhile other processes took 2 % of the cores' time, and the hypervisor 14 %.

| row                     | unit | leasekeeper | etcd | / etcd | bare gRPC | alone |     goal | reached |
|-------------------------|------|------------:|-----:|-------:|----------:|------:|---------:|--------:|
| **lateness**            |      |             |      |        |           |       |          |         |
| p50                     | ms   |        4.10 |  278 | 0.015x |         - |     - |        5 |     yes |
| max                     | ms   |        12.0 |    - |      - |         - |     - |          |         |
| puts                    | 1/s  |      17 999 |    - |      - |    40 000 |     - |   18 000 |      no |
| **three members: gets** |      |             |      |        |           |       |          |         |
| p50                     | ms   |        0.06 |    - |      - |         - |  0.05 | as alone |         |
`
	if got := boardOf(t).render(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestGoalIsReachedByTheMedian(t *testing.T) {
	for _, test := range []struct {
		unit, goal string
		ours, etcd []float64
		want       string
	}{
		{"ms", "5", []float64{5.001}, nil, "yes"}, // as it is shown
		{"ms", "5", []float64{5.1}, nil, "no"},
		{"1/s", "24 000", []float64{24000}, nil, "yes"},
		{"1/s", "4x", []float64{39}, []float64{10}, "no"},
		{"1/s", "4x", []float64{40}, []float64{10}, "yes"},
		{"ms", "0.5x", []float64{40}, []float64{10}, "no"},
		{"ms", "0.5x", []float64{40}, nil, ""},
		{"ms", "5", nil, []float64{1}, ""},
		{"ms", "", []float64{1}, nil, ""},
		{"ms", "as alone", []float64{1}, nil, ""},
	} {
		r := &row{figure: figure{unit: test.unit, goal: test.goal}, values: map[string][]float64{ours: test.ours, reference: test.etcd}}
		if got := reached(r); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

func TestBoardReplacesWhatIsBetweenItsMarkers(t *testing.T) {
	page := "# Page\n\n" + boardBegin + "\nold\n" + boardEnd + "\n\nAfter.\n"
	want := "# Page\n\n" + boardBegin + "\n\nnew\n\n" + boardEnd + "\n\nAfter.\n"
	got, err := replaceBoard(page, "new\n")
	if err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if again, err := replaceBoard(got, "new\n"); err != nil || again != want {
		t.Errorf("written again it is %q, %v", again, err)
	}
	for _, broken := range []string{"", boardBegin + "\n", boardEnd, boardEnd + "\n" + boardBegin + "\n", page + page} {
		if _, err := replaceBoard(broken, "new"); err == nil {
			t.Errorf("%q has a place for the board", broken)
		}
	}
}

// TestPageHasAPlaceForTheBoard reads the page that the board is written into.
func TestPageHasAPlaceForTheBoard(t *testing.T) {
	page, err := os.ReadFile(defaultPage)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replaceBoard(string(page), "board"); err != nil {
		t.Errorf("%s: %v", defaultPage, err)
	}
}

// TestBoardIsWritten measures a little of our server, writes a page, and writes it a second time from what the results
// file has.
func TestBoardIsWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a server")
	}
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	write := func(built bool) string {
		must(t, os.WriteFile(page, []byte("# Page\n\n"+boardBegin+"\n"+boardEnd+"\n"), 0o600))
		b, err := configure([]string{"-quick", "-board", "-page", page, "-dir", dir, "-results", filepath.Join(dir, "results.jsonl"),
			"-target", ours, "-run", "^renewed ids, in messages of 100$"})
		must(t, err)
		b.version, b.size.span = "0123456789ab", 50*time.Millisecond
		if useBuilt(t, b.targets); !built {
			b.targets[0].binary = filepath.Join(dir, "missing")
		}
		var out strings.Builder
		must(t, b.run(t.Context(), &out))
		text, err := os.ReadFile(page)
		must(t, err)
		return string(text)
	}
	first := write(true)
	for _, want := range []string{"commit `0123456789ab`", "-board -quick -run", "| **renewed ids, in messages of 100** |", "| rate ", "2 000 000"} {
		if !strings.Contains(first, want) {
			t.Errorf("the page lacks %q:\n%s", want, first)
		}
	}
	_, table, _ := strings.Cut(first, "| row")
	if second := write(false); !strings.Contains(second, table) {
		t.Errorf("written from the results file the page is\n%s\nwant\n%s", second, first)
	}
}
