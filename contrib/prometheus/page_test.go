package prometheuslease_test

import (
	"strings"
	"testing"

	_ "github.com/prometheus/client_golang/prometheus/promhttp" // the page's program uses it

	_ "github.com/leasekeeper/leasekeeper/backend/postgres" // the page's program uses it
	prometheuslease "github.com/leasekeeper/leasekeeper/contrib/prometheus"
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

func TestPageShowsProgramThatCompiles(t *testing.T) {
	pageprogram.Vet(t, "../../docs/contrib/prometheus.md", nil)
	pageprogram.Resolve(t, "../../docs/contrib/prometheus.md", nil, "../..", "contrib/prometheus")
	pageprogram.Shows(t, "../../docs/contrib/prometheus.md", "page_test.go")
	if newWithGroups() == nil {
		t.Error("there are no metrics")
	}
}

// newWithGroups has the code of the page that is no program.
func newWithGroups() *prometheuslease.Collector {
	metrics := prometheuslease.New(prometheuslease.WithGroups(func(name string) string {
		group, _, _ := strings.Cut(name, "/")
		return group
	}, "jobs", "shards"))
	return metrics
}
