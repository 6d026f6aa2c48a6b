package server

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/knadh/koanf/parsers/yaml"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const histogramType = "HISTOGRAM"

var metricName = regexp.MustCompile(`\b(?:leasekeeper|go|process)_[a-z0-9_]+\b`)

// Every metric that the dashboard and the alert rules use exists in the expected form, and their labels have the values
// that the rules select.
func TestDocumentedMetricsExist(t *testing.T) {
	f := startWith(t, withBackups(t.TempDir()), nil)
	f.put("a", "")
	_, err := f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 99})
	wantCode(t, err, 5)
	families, err := f.server.metrics.registry.Gather()
	wantOK(t, err)
	known := make(map[string]string)
	for _, family := range families {
		known[family.GetName()] = family.GetType().String()
	}
	used := make(map[string]bool)
	for _, path := range []string{"../docs/grafana-dashboard.json", "../docs/alerts.yaml"} {
		expressions := expressionsIn(t, path)
		if len(expressions) < 10 {
			t.Errorf("%s has only %d expressions", path, len(expressions))
		}
		for _, expression := range expressions {
			for _, name := range metricName.FindAllString(expression, -1) {
				if strings.HasPrefix(name, "leasekeeper_client_") {
					continue // contrib/prometheus has these, and its tests check them
				}
				if base, ok := strings.CutSuffix(name, "_bucket"); ok {
					name = base
					if known[name] != histogramType {
						t.Errorf("%s: %s is no histogram", path, name)
					}
				}
				if _, ok := known[name]; !ok && !slices.Contains(clusterMetrics(), name) {
					t.Errorf("%s: there is no %s", path, name)
				}
				used[name] = true
			}
			f.checkReasons(path, expression)
		}
	}
	for name, kind := range known {
		if kind == histogramType && strings.HasPrefix(name, "leasekeeper_") && !used[name] {
			t.Errorf("%s is on no dashboard", name)
		}
	}
}

// checkReasons checks that the reasons in an expression are counted.
func (f *front) checkReasons(path, expression string) {
	for _, match := range regexp.MustCompile(`reason=~?"([^"]*)"`).FindAllStringSubmatch(expression, -1) {
		for reason := range strings.SplitSeq(match[1], "|") {
			if f.server.metrics.refused[reason] == nil {
				f.t.Errorf("%s: nothing is refused for %q", path, reason)
			}
		}
	}
}

// descName finds the name of a metric.
var descName = regexp.MustCompile(`desc\("([a-z_]+)"`)

// clusterMetrics returns the names of metrics that only a member of a cluster has.
func clusterMetrics() []string {
	source, err := os.ReadFile("metrics_cluster.go")
	if err != nil {
		panic(err)
	}
	var names []string
	for _, match := range descName.FindAllStringSubmatch(string(source), -1) {
		names = append(names, "leasekeeper_"+match[1])
	}
	return names
}

// expressionsIn returns all values of "expr" in a JSON or YAML file.
func expressionsIn(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	wantOK(t, err)
	var content any
	if strings.HasSuffix(path, ".json") {
		err = json.Unmarshal(text, &content)
	} else {
		content, err = yaml.Parser().Unmarshal(text)
	}
	wantOK(t, err)
	var found []string
	var visit func(any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				if expr, ok := value.(string); ok && key == "expr" {
					found = append(found, expr)
				}
				visit(value)
			}
		case []any:
			for _, value := range v {
				visit(value)
			}
		}
	}
	visit(content)
	slices.Sort(found)
	return found
}

// No metric has a label whose values clients choose.
func TestNoMetricLabelComesFromAClient(t *testing.T) {
	f := startFront(t)
	count := func() int {
		families, err := f.server.metrics.registry.Gather()
		wantOK(t, err)
		n := 0
		for _, family := range families {
			n += len(family.Metric)
		}
		return n
	}
	f.grant(60, 1)
	f.put("k", "")
	_, err := f.maintenance.Status(f.ctx(), &pb.StatusRequest{})
	wantOK(t, err)
	before := count()
	for i := range int64(50) {
		f.grant(60, i+2)
		f.put(strings.Repeat("k", int(i)+2), "")
	}
	wantEqual(t, "series", count(), before)
}
