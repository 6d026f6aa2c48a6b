package prometheuslease_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	prometheuslease "github.com/leasekeeper/leasekeeper/contrib/prometheus"
)

var (
	clientMetric = regexp.MustCompile(`\bleasekeeper_client_[a-z0-9_]+\b`)
	groupings    = regexp.MustCompile(`by \(([a-z, ]*)\)`)
	selectors    = regexp.MustCompile(`\{([a-z]+)="([a-z]+)"\}`)
)

// Every metric and label that the dashboard's row of clients uses exists, and every metric is on the dashboard.
func TestDashboardShowsEveryMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheuslease.New(prometheuslease.WithGroups(groupOf, "jobs")))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[string]dto.MetricType)
	labels := map[string][]string{"le": nil, "instance": nil} // made by Prometheus
	for _, family := range families {
		kinds[family.GetName()] = family.GetType()
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = append(labels[label.GetName()], label.GetValue())
			}
		}
	}
	shown := make(map[string]bool)
	for _, expression := range clientExpressions(t) {
		for _, name := range clientMetric.FindAllString(expression, -1) {
			base := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			kind, ok := kinds[base]
			if !ok || (kind == dto.MetricType_HISTOGRAM) != (base != name) {
				t.Errorf("there is no %s, in %s", name, expression)
			}
			shown[base] = true
		}
		for _, grouping := range groupings.FindAllStringSubmatch(expression, -1) {
			for label := range strings.SplitSeq(grouping[1], ", ") {
				if _, ok := labels[label]; !ok {
					t.Errorf("there is no label %s, in %s", label, expression)
				}
			}
		}
		for _, selector := range selectors.FindAllStringSubmatch(expression, -1) {
			if !slices.Contains(labels[selector[1]], selector[2]) {
				t.Errorf("%s has no value %s, in %s", selector[1], selector[2], expression)
			}
		}
	}
	for name := range kinds {
		if !shown[name] {
			t.Errorf("%s is not on the dashboard", name)
		}
	}
}

// clientExpressions returns the expressions of the panels below the row Clients.
func clientExpressions(t *testing.T) (found []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	row := ""
	for _, panel := range dashboard.Panels {
		if panel.Type == "row" {
			row = panel.Title
		}
		for _, target := range panel.Targets {
			if ours := clientMetric.MatchString(target.Expr); ours != (row == "Clients") {
				t.Errorf("%s stands in the row %s", target.Expr, row)
			} else if ours {
				found = append(found, target.Expr)
			}
		}
	}
	return found
}

// The page lists every metric with its type.
func TestPageListsEveryMetric(t *testing.T) {
	page, err := os.ReadFile("../../docs/contrib/prometheus.md")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheuslease.New())
	families, err := registry.Gather()
	if err != nil || len(families) == 0 {
		t.Fatal(families, err)
	}
	for _, family := range families {
		row := regexp.MustCompile("(?m)^\\| `" + family.GetName() + "(\\{outcome\\})?` \\| " + strings.ToLower(family.GetType().String()) + " \\|")
		if !row.Match(page) {
			t.Errorf("the page has no row for %s", family.GetName())
		}
	}
}
