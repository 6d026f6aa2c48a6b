package prometheuslease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	prometheuslease "github.com/leasekeeper/leasekeeper/contrib/prometheus"
	"github.com/leasekeeper/leasekeeper/internal/test/keepertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 15 * time.Second

// world is a store in a bubble of synctest, where time passes only while all goroutines wait, and a registry.
type world struct {
	*testing.T
	store    *memory.Store
	registry *prometheus.Registry
	metrics  *prometheuslease.Collector
}

// bubble runs a test in a bubble, with a collector in a real registry.
func bubble(t *testing.T, o []prometheuslease.Option, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t, memory.New(memory.WithClock(memory.NewRunningClock())), prometheus.NewPedanticRegistry(), prometheuslease.New(o...)}
		if err := w.registry.Register(w.metrics); err != nil {
			t.Fatal(err)
		}
		test(w)
	})
}

// keeper returns a keeper that reports to the collector, and its client of the store. The test's end closes it.
func (w *world) keeper(id string) (*leasekeeper.Keeper, *memory.Backend) {
	w.Helper()
	client := w.store.Backend()
	return keepertest.New(w, time.Hour, client, leasekeeper.WithHolder(id), leasekeeper.WithTTL(ttl), leasekeeper.WithHook(w.metrics.Hook)), client
}

func (w *world) must(l *leasekeeper.Lease, err error) *leasekeeper.Lease {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// released releases a lease.
func (w *world) released(l *leasekeeper.Lease) {
	w.Helper()
	if err := l.Release(w.Context()); err != nil {
		w.Error(err)
	}
}

// gathered returns the metrics by name, after all reports have arrived.
func (w *world) gathered() map[string][]*dto.Metric {
	w.Helper()
	synctest.Wait()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	found := make(map[string][]*dto.Metric)
	for _, family := range families {
		found[family.GetName()] = family.GetMetric()
	}
	return found
}

// one returns the metric of a name with all these label values, and fails unless there is exactly one.
func (w *world) one(name string, values ...string) *dto.Metric {
	w.Helper()
	var found []*dto.Metric
	for _, metric := range w.gathered()["leasekeeper_client_"+name] {
		matches := 0
		for _, label := range metric.GetLabel() {
			for _, value := range values {
				if label.GetValue() == value {
					matches++
				}
			}
		}
		if matches == len(values) {
			found = append(found, metric)
		}
	}
	if len(found) != 1 {
		w.Fatalf("%d metrics %s%v", len(found), name, values)
	}
	return found[0]
}

// counts fails unless a counter has this value.
func (w *world) counts(want float64, name string, values ...string) {
	w.Helper()
	if got := w.one(name, values...).GetCounter().GetValue(); got != want {
		w.Errorf("%s%v is %v, want %v", name, values, got, want)
	}
}

// sums fails unless a histogram has this count and, within a millisecond, this sum.
func (w *world) sums(count uint64, sum time.Duration, name string, values ...string) {
	w.Helper()
	h := w.one(name, values...).GetHistogram()
	got := time.Duration(h.GetSampleSum() * float64(time.Second)).Round(time.Millisecond)
	if h.GetSampleCount() != count || got != sum {
		w.Errorf("%s%v has %d observations of %v, want %d of %v", name, values, h.GetSampleCount(), got, count, sum)
	}
}
