package prometheuslease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/clock"
	prometheuslease "github.com/leasekeeper/leasekeeper/contrib/prometheus"
)

// relied is the part of a TTL that a holder relies on.
var relied = clock.DefaultDrift.RelyRemote(ttl)

func TestLifeOfLeaseIsCounted(t *testing.T) {
	bubble(t, nil, func(w *world) {
		k, _ := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		next := make(chan *leasekeeper.Lease, 1)
		go func() { next <- w.must(k.Acquire(w.Context(), "x")) }()
		time.Sleep(10 * ttl)
		w.released(l)
		w.released(<-next)
		w.sums(2, 10*ttl, "wait_seconds", "held")
		w.sums(0, 0, "wait_seconds", "ended")
		w.sums(0, 0, "wait_seconds", "failed")
		w.sums(2, 10*ttl, "hold_seconds")
		w.counts(2, "tenures_total")
		margin := w.one("renewal_margin_ratio").GetHistogram()
		if n := margin.GetSampleCount(); n < 30 || n > 40 {
			t.Errorf("%d renewals in ten TTLs", n)
		}
		if mean := margin.GetSampleSum() / float64(margin.GetSampleCount()); mean < 0.6 || mean > 0.7 {
			t.Errorf("a fast store leaves %v of the TTL", mean)
		}
		for _, none := range []string{"doubts_total", "recoveries_total", "early_ends_total", "losses_total", "unconfirmed_releases_total", "missed_reports_total"} {
			w.counts(0, none)
		}
	})
}

func TestDoubtRecoveryAndLossAreCounted(t *testing.T) {
	bubble(t, nil, func(w *world) {
		k, client := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		remove := client.Inject(memory.Fault{Kind: memory.Stall})
		time.Sleep(relied * 3 / 4)
		w.counts(1, "doubts_total")
		w.counts(0, "recoveries_total")
		remove()
		time.Sleep(ttl / 3)
		w.counts(1, "recoveries_total")
		w.counts(0, "losses_total")
		if low := w.one("renewal_margin_ratio").GetHistogram().GetBucket()[3]; low.GetUpperBound() != 0.3 || low.GetCumulativeCount() == 0 {
			t.Errorf("no renewal came with less than 0.3 of the TTL left: %v", low)
		}
		defer client.Inject(memory.Fault{Kind: memory.Stall})()
		<-l.Context().Done()
		w.counts(2, "doubts_total")
		w.counts(1, "losses_total")
		if h := w.one("hold_seconds").GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() < relied.Seconds() {
			t.Errorf("held for %v", h)
		}
	})
}

func TestFailuresAreCounted(t *testing.T) {
	bubble(t, nil, func(w *world) {
		k, client := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := k.Acquire(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.sums(1, time.Second, "wait_seconds", "ended")
		early := w.must(k.Acquire(w.Context(), "y", leasekeeper.HoldAtMost(time.Second)))
		<-early.Context().Done()
		w.counts(1, "early_ends_total")
		w.released(early)
		client.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Release})
		over, end := context.WithTimeout(w.Context(), time.Second)
		defer end()
		if err := l.Release(over); !errors.Is(err, leasekeeper.ErrUnknownOutcome) {
			t.Error(err)
		}
		time.Sleep(2 * ttl)
		w.counts(1, "unconfirmed_releases_total")
		w.counts(0, "losses_total")
		client.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Claim, Err: leasekeeper.ErrUnavailable})
		if _, err := k.Acquire(w.Context(), "z"); err == nil {
			t.Error("acquired without a store")
		}
		if n := w.one("wait_seconds", "failed").GetHistogram().GetSampleCount(); n != 1 {
			t.Errorf("%d calls failed", n)
		}
	})
}

// The collector hangs in its group function, so that the keeper leaves reports out.
func TestMissedReportsAreCounted(t *testing.T) {
	goOn := make(chan struct{})
	var once sync.Once
	stuck := prometheuslease.WithGroups(func(string) string {
		once.Do(func() { <-goOn })
		return ""
	})
	synctest.Test(t, func(t *testing.T) {
		goOn = make(chan struct{})
		const rounds = 2000 // with three reports each
		metrics := prometheuslease.New(stuck)
		k, err := leasekeeper.New(memory.New(memory.WithClock(memory.NewRunningClock())).Backend(), leasekeeper.WithHook(metrics.Hook))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		for range rounds {
			l, err := k.Acquire(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		close(goOn)
		synctest.Wait()
		registry := prometheus.NewRegistry()
		registry.MustRegister(metrics)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var missed, counted float64
		for _, family := range families {
			switch m := family.GetMetric()[0]; family.GetName() {
			case "leasekeeper_client_missed_reports_total":
				missed = m.GetCounter().GetValue()
			case "leasekeeper_client_tenures_total":
				counted += m.GetCounter().GetValue()
			case "leasekeeper_client_hold_seconds":
				counted += float64(m.GetHistogram().GetSampleCount())
			case "leasekeeper_client_wait_seconds":
				for _, m := range family.GetMetric() {
					counted += float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		if missed == 0 || missed+counted != 3*rounds {
			t.Errorf("%v reports are counted and %v missed, of %d", counted, missed, 3*rounds)
		}
	})
}

// groupOf returns the first part of a name.
func groupOf(name string) string {
	group, _, _ := strings.Cut(name, "/")
	return group
}

func TestNamesCountInTheirGroups(t *testing.T) {
	bubble(t, []prometheuslease.Option{prometheuslease.WithGroups(groupOf, "jobs", "shards", "jobs", "other")}, func(w *world) {
		k, _ := w.keeper("a")
		for _, name := range []string{"jobs/a", "jobs/b", "else/c", "other/d"} {
			l := w.must(k.Acquire(w.Context(), name))
			time.Sleep(time.Second)
			w.released(l)
		}
		for group, n := range map[string]uint64{"jobs": 2, "shards": 0, "other": 2} {
			w.counts(float64(n), "tenures_total", group)
			w.sums(n, time.Duration(n)*time.Second, "hold_seconds", group)
			w.sums(n, 0, "wait_seconds", group, "held")
		}
	})
}

// However many names and groups a program has, the number of series is that of the beginning.
func TestNumberOfSeriesIsBounded(t *testing.T) {
	var groups []string
	for i := range 3 * prometheuslease.MaxGroups {
		groups = append(groups, fmt.Sprintf("g%d", i))
	}
	groups[0] = "g\xff"
	bubble(t, []prometheuslease.Option{prometheuslease.WithGroups(groupOf, groups...)}, func(w *world) {
		before := testutil.CollectAndCount(w.metrics)
		if n := len(w.gathered()["leasekeeper_client_losses_total"]); n != prometheuslease.MaxGroups+1 {
			t.Errorf("%d groups", n)
		}
		k, _ := w.keeper("a")
		for i := range 100 {
			w.released(w.must(k.Acquire(w.Context(), fmt.Sprintf("g%d/x", i))))
		}
		w.counts(100-prometheuslease.MaxGroups+1, "tenures_total", "other")
		w.counts(1, "tenures_total", "g1")
		if after := testutil.CollectAndCount(w.metrics); after != before {
			t.Errorf("%d series, and %d before", after, before)
		}
	})
}

func TestMetricsFollowPrometheusRules(t *testing.T) {
	problems, err := testutil.CollectAndLint(prometheuslease.New(prometheuslease.WithGroups(groupOf, "jobs")))
	if err != nil || len(problems) != 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Several keepers report at the same time while a registry gathers.
func TestKeepersShareCollector(t *testing.T) {
	metrics := prometheuslease.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	store := memory.New()
	var working sync.WaitGroup
	for i := range 4 {
		working.Go(func() {
			k, err := leasekeeper.New(store.Backend(), leasekeeper.WithHook(metrics.Hook))
			if err != nil {
				t.Error(err)
				return
			}
			defer k.Close()
			for range 100 {
				l, err := k.Acquire(t.Context(), fmt.Sprintf("x%d", i))
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait() // Close has waited for the hooks
	want := "# HELP leasekeeper_client_tenures_total Tenures that began.\n# TYPE leasekeeper_client_tenures_total counter\nleasekeeper_client_tenures_total 400\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "leasekeeper_client_tenures_total"); err != nil {
		t.Error(err)
	}
}
