package prometheuslease_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasekeeper/leasekeeper"
	prometheuslease "github.com/leasekeeper/leasekeeper/contrib/prometheus"
)

// A program adds its keeper's metrics to its registry.
func ExampleNew() {
	metrics := prometheuslease.New()
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(metrics)

	ctx := context.Background()
	keeper, err := leasekeeper.Open(ctx, "memory:", leasekeeper.WithHook(metrics.Hook))
	if err != nil {
		log.Fatal(err)
	}
	err = keeper.Run(ctx, "jobs/backup", func(context.Context, *leasekeeper.Lease) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	if err := keeper.Close(); err != nil { // waits until the hook has all reports
		log.Fatal(err)
	}
	show(registry, "leasekeeper_client_tenures_total")
	// Output: leasekeeper_client_tenures_total [] 1
}

// The part before the first slash is the group of a name.
func ExampleWithGroups() {
	metrics := prometheuslease.New(prometheuslease.WithGroups(func(name string) string {
		group, _, _ := strings.Cut(name, "/")
		return group
	}, "jobs", "shards"))
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	metrics.Hook(leasekeeper.Held{Subject: leasekeeper.Subject{Name: "jobs/backup", Token: 1}})
	metrics.Hook(leasekeeper.Held{Subject: leasekeeper.Subject{Name: "lab/x", Token: 1}})
	show(registry, "leasekeeper_client_tenures_total")
	// Output:
	// leasekeeper_client_tenures_total [name:"group" value:"jobs"] 1
	// leasekeeper_client_tenures_total [name:"group" value:"other"] 1
	// leasekeeper_client_tenures_total [name:"group" value:"shards"] 0
}

// The keeper calls the hook. A program that has a hook of its own passes both.
func ExampleCollector_Hook() {
	metrics := prometheuslease.New()
	keeper, err := leasekeeper.Open(context.Background(), "memory:",
		leasekeeper.WithHook(metrics.Hook),
		leasekeeper.WithHook(func(r leasekeeper.Report) {
			if lost, ok := r.(leasekeeper.Lost); ok {
				log.Print(lost.Why)
			}
		}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(keeper.Close())
	// Output: <nil>
}

// Collect and Describe are for the registry.
func ExampleCollector() {
	var collector prometheus.Collector = prometheuslease.New()
	fmt.Println(prometheus.NewRegistry().Register(collector))
	// Output: <nil>
}

// show prints the counters of a name.
func show(registry *prometheus.Registry, name string) {
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("name:%q value:%q", label.GetName(), label.GetValue()))
			}
			fmt.Println(name, labels, metric.GetCounter().GetValue())
		}
	}
}
