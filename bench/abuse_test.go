package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestAbuseReportHasAllFigures runs the phase without an attack, briefly. It asserts that each figure is there and no lease was lost,
// never how fast the server was.
func TestAbuseReportHasAllFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a server")
	}
	b, err := configure([]string{"-abuse", "-run", "^no attack$"})
	if err != nil {
		t.Fatal(err)
	}
	if b.built, err = buildOnce(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = b.abuse(t.Context(), &out, t.TempDir(), time.Second)
	for _, figure := range []string{"memory before", "neighbour's renewals, p99", "neighbour's puts, p99", "leases that were lost", "most memory", "memory released after"} {
		if !strings.Contains(out.String(), figure) {
			t.Errorf("no figure is called %q in:\n%s%v", figure, &out, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "lost") {
		t.Error(err)
	}
}

func TestAttackersStayOnThisMachine(t *testing.T) {
	var out bytes.Buffer
	err := attackNow(t.Context(), []string{"no attack", "192.0.2.1:2379", "1s"}, &out)
	if err == nil || !strings.Contains(err.Error(), "not on this machine") {
		t.Errorf("an attack on another machine begins: %v", err)
	}
}
