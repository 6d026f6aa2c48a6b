package server

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// metricLiteral finds the full name of a metric in Go source.
var metricLiteral = regexp.MustCompile(`"(leasekeeper_[a-z0-9_]+)"`)

// metricsOfSource returns the names of all metrics of this package, including those of servers with TLS and in a
// cluster.
func metricsOfSource(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	wantOK(t, err)
	names := make(map[string]bool)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		wantOK(t, err)
		for _, match := range descName.FindAllStringSubmatch(string(source), -1) {
			names["leasekeeper_"+match[1]] = true
		}
		for _, match := range metricLiteral.FindAllStringSubmatch(string(source), -1) {
			names[match[1]] = true
		}
	}
	return names
}

func TestReferenceListsEveryMetric(t *testing.T) {
	const path = "../docs/reference/metrics.md"
	page, err := os.ReadFile(path)
	wantOK(t, err)
	listed := make(map[string]bool)
	for _, name := range metricName.FindAllString(string(page), -1) {
		listed[name] = true
	}
	made := metricsOfSource(t)
	if len(made) < 60 {
		t.Errorf("only %d metrics were found in the source", len(made))
	}
	for name := range made {
		if !listed[name] {
			t.Errorf("%s does not list %s", path, name)
		}
	}
	for name := range listed {
		if strings.HasPrefix(name, "leasekeeper_") && !made[name] {
			t.Errorf("%s lists %s, which does not exist", path, name)
		}
	}
}
