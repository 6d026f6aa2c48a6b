package main

import (
	"context"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildDir is where buildOnce has built our server, if it has; TestMain makes and removes it.
var buildDir string

var buildOnce = sync.OnceValues(func() (string, error) {
	ours := targets()[1:2]
	err := build(context.Background(), buildDir, ours, progress{})
	return ours[0].binary, err
})

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == attackerArgument {
		attackMain(context.Background(), os.Args[2:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == busyArgument {
		spin(os.Stdin)
		return
	}
	if crowdMain(context.Background()) {
		return
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		panic(err)
	}
	buildDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// useBuilt runs our server, the only target, from the build that all tests share.
func useBuilt(t *testing.T, only []*target) {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	if len(only) != 1 || only[0].name != targets()[1].name {
		t.Fatalf("%d targets are left, want our server only", len(only))
	}
	only[0].binary = binary
}

// recorded measures into a table, and keeps nothing.
func recorded(t *testing.T, b *bench, into *table, measure func(context.Context, string, *recorder) error) *table {
	t.Helper()
	rec := &recorder{out: io.Discard, table: into, noise: &b.noise}
	if err := measure(t.Context(), t.TempDir(), rec); err != nil {
		t.Fatal(err)
	}
	if err := rec.end(); err != nil {
		t.Fatal(err)
	}
	return into
}

// TestScenariosGiveNumbers runs a few scenarios, small, on our server. It asserts that there are numbers, and through the
// scenarios that no lease ended early and no name had two holders; never how large the numbers are.
func TestScenariosGiveNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a server")
	}
	b, err := configure([]string{"-quick", "-target", "leasekeeper", "-run", "^(" + strings.Join([]string{
		"lateness of single expiries", "acquire and release a name, 1 in flight", "hand-over of a name among 2(, on etcd://)?",
		"renewed ids, in messages of 100(, with users)?", "claims and releases by stubs, 64 in flight, with users"}, "|") + ")$"})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.scenarios) != 7 {
		t.Fatalf("%d scenarios are left, want 7", len(b.scenarios))
	}
	b.size.waves, b.size.perWave, b.size.batched = 1, 4, 100*batchWires
	useBuilt(t, b.targets)
	table := recorded(t, b, &table{}, b.measure)
	if len(table.rows) == 0 {
		t.Fatal("nothing was measured")
	}
	for _, row := range table.rows {
		values := row.values["leasekeeper"]
		if len(values) != 1 || math.IsNaN(values[0]) || math.IsInf(values[0], 0) {
			t.Errorf("%s, %s: %v", row.scenario, row.figure.name, values)
		}
	}
}

// TestClusterTrialsGiveNumbers runs short trials on a cluster of ours, near and apart, kills its leader once, and lets a member
// catch up. It asserts that there are numbers. The trials themselves assert that no lease ended early and no acknowledged write was lost.
func TestClusterTrialsGiveNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs three servers")
	}
	b, err := configure([]string{"-quick", "-cluster", "-kills", "1", "-target", "leasekeeper", "-run", "gets|killed|streams to a member"})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.trials) != 3 {
		t.Fatalf("%d trials are left, want 3", len(b.trials))
	}
	b.size.warm, b.size.span = 10*time.Millisecond, 200*time.Millisecond
	b.size.streamed, b.size.cutLog = 1000, 100 // the member gets the log, which takes less long
	b.size.dying = dying{leases: 2, ttl: 2 * time.Second, first: 100 * time.Millisecond, last: 200 * time.Millisecond}
	useBuilt(t, b.members())
	table := recorded(t, b, b.newClusterTable(), b.measureClusters)
	const ofGets, ofKills, ofStream = 2 * 2 * 2, 2 * 7, 6
	if len(table.rows) != ofGets+ofKills+ofStream {
		t.Errorf("%d rows, want %d", len(table.rows), ofGets+ofKills+ofStream)
	}
	for _, row := range table.rows {
		values := row.values["leasekeeper"]
		if len(values) != 1 || math.IsNaN(values[0]) || math.IsInf(values[0], 0) {
			t.Errorf("%s, %s: %v", row.scenario, row.figure.name, values)
		}
	}
}

// TestDatabaseScenariosGiveNumbers measures each way of each database a little. It asserts that there are numbers, and through what
// is measured that no name had two holders.
func TestDatabaseScenariosGiveNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("runs database servers")
	}
	// What is common to all is measured on all, and what takes a while on one.
	const common = "acquire and release a name, 1 in flight"
	table := measureWays(t, "-run", "^("+common+"|renewals of 1 )")
	measured := 0
	for part := range strings.SplitSeq(table, common+"\n") {
		if rate := strings.Fields(part); len(rate) > 0 && rate[0] == "rate" {
			line, _, _ := strings.Cut(part, "\n")
			if measured++; slices.Contains(strings.Fields(line), "-") {
				t.Errorf("not all ways were measured:\n%s", table)
			}
		}
	}
	if want := len(databaseList()); measured != want {
		t.Errorf("%d databases were measured, want %d:\n%s", measured, want, table)
	}
	table = measureWays(t, "-target", "SQLite|flock")
	for _, task := range tasks(database{runs: true}, quickSize) {
		if !strings.Contains(table, task.name) {
			t.Errorf("%s were not measured:\n%s", task.name, table)
		}
	}
}

// A crowd shows beside its own rows what the machine allows without leases.
func TestCrowdShowsItsLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a database server")
	}
	table := measureWays(t, "-target", "keeper on PostgreSQL", "-run", "crowd of 2 processes")
	for _, kind := range relayKinds {
		for _, row := range []string{kind.name + ", rate", kind.name + ", p50"} {
			_, rest, found := strings.Cut(table, "  "+row+"  ")
			line, _, _ := strings.Cut(rest, "\n")
			if values := strings.Fields(line); !found || len(values) != 2 || values[1] == "-" {
				t.Errorf("no value of %q:\n%s", row, table)
			}
		}
	}
}

// measureWays returns the tables of a short run.
func measureWays(t *testing.T, args ...string) string {
	t.Helper()
	b, err := configure(append([]string{"-quick", "-databases"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	b.size.warm, b.size.span, b.size.runs = 20*time.Millisecond, 500*time.Millisecond, 3
	if b.built, err = buildOnce(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "bench-") // not TempDir: the servers must be able to get into it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var out strings.Builder
	if err := b.measureDatabases(t.Context(), &out, dir); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestContradictingFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-run", "("}, {"-target", "("}, {"-run", "no such thing"}, {"-cluster", "-run", "no such thing"}, {"-against", "HEAD", "-run", "no such thing"}, {"-against", "HEAD", "-board"}, {"-board", "-quick"}, {"-apart"}, {"-rounds", "2"}, {"-kills", "-1"}, {"-cluster", "-streamed", "-1"}, {"-results", ""}, {"-cluster", "-target", "bare"}, {"-cluster", "-databases"}, {"-overload", "-cluster"}, {"-starts", "-databases"}, {"-span", "1m"}, {"word"}, {"-no-such-flag"}} {
		if _, err := configure(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	b, err := configure([]string{"-cluster", "-kills", "7", "-streamed", "9", "-target", "leasekeeper|alone"})
	if err != nil || len(b.trials) != len(trials(fullSize)) || len(b.setups) != 2 || len(b.members()) != 1 || b.size.kills != 7 || b.size.streamed != 9 {
		t.Errorf("the flags of a cluster are not followed: %v", err)
	}
	b, err = configure(nil)
	if err != nil || len(b.targets) != len(targets()) || len(b.scenarios) != len(scenarios(fullSize)) {
		t.Errorf("without flags not everything is measured: %v", err)
	}
}
