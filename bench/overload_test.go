package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestOverloadLosesNoLease runs the scenario briefly, with few names, on SQLite and on our server. It asserts that each figure is
// there and that no lease was lost, never how fast anything was.
func TestOverloadLosesNoLease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a server")
	}
	b, err := configure([]string{"-overload", "-quick", "-target", "SQLite|our server", "-span", "2s"})
	if err != nil {
		t.Fatal(err)
	}
	if b.built, err = buildOnce(); err != nil {
		t.Fatal(err)
	}
	b.overload.ttl = 30 * time.Second // so that only a lease without renewals could be lost
	b.overload.names = 50
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var out strings.Builder
	if err := b.overloads(t.Context(), &out, dir); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"keeper on SQLite, round 1 of 1", "keeper on our server, round 1 of 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in:\n%s", want, &out)
		}
	}
	for _, figure := range []string{"leases lost", "least that was left of a lease", "claims, p99", "claims or releases that failed"} {
		if n := strings.Count(out.String(), "  "+figure+"  "); n != 2 {
			t.Errorf("%d figures are called %q in:\n%s", n, figure, &out)
		}
	}
}
