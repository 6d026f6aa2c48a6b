package prometheuslease

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasekeeper/leasekeeper"
)

// MaxGroups is the number of groups that [WithGroups] takes, besides [Other].
const MaxGroups = 20

// Other is the group of all names without another group.
const Other = "other"

// Option changes a [Collector].
type Option func(*options)

type options struct {
	groupOf func(name string) string // nil: no metric has the label group
	groups  []string
}

// WithGroups adds the label group to all metrics but the missed reports. groupOf returns the group of a name, such as jobs
// for jobs/nightly. groups lists the groups that have series of their own. A name of any other group counts as [Other], and
// so does a listed group after the first [MaxGroups]. groupOf must be fast and safe for concurrent use.
func WithGroups(groupOf func(name string) string, groups ...string) Option {
	return func(o *options) { o.groupOf, o.groups = groupOf, groups }
}

// Collector counts the reports of keepers. It is safe for concurrent use.
type Collector struct {
	all     []prometheus.Collector
	missed  prometheus.Counter
	groupOf func(name string) string
	groups  map[string]*series // never changes after New
	other   *series
}

// series are the metrics of one group.
type series struct {
	waits                                                   prometheus.ObserverVec // by outcome
	margin, hold                                            prometheus.Observer
	tenures, doubts, recoveries, early, losses, unconfirmed prometheus.Counter
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a collector. Register it with a registry, and pass its Hook to [leasekeeper.WithHook].
func New(o ...Option) *Collector {
	var given options
	for _, option := range o {
		option(&given)
	}
	c := &Collector{groupOf: given.groupOf, groups: make(map[string]*series)}
	var labels []string
	if c.groupOf != nil {
		labels = []string{"group"}
	}
	newSeries := c.declare(labels)
	if c.groupOf == nil {
		c.other = newSeries()
		return c
	}
	c.other = newSeries(Other)
	for _, group := range given.groups {
		if len(c.groups) == MaxGroups {
			break
		}
		if _, twice := c.groups[group]; !twice && group != Other {
			c.groups[group] = newSeries(strings.ToValidUTF8(group, "?"))
		}
	}
	return c
}

// The outcomes of a wait.
const (
	held   = "held"   // the call got the name
	ended  = "ended"  // the context of the call ended, or its keeper was closed
	failed = "failed" // any other error
)

// declare makes the metrics with these labels, and returns a function that makes the series of one group.
func (c *Collector) declare(labels []string) func(values ...string) *series {
	counter := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "leasekeeper", Subsystem: "client", Name: name, Help: help}, labels)
		c.all = append(c.all, v)
		return v
	}
	histogram := func(name, help string, buckets []float64, labels []string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "leasekeeper", Subsystem: "client", Name: name, Help: help, Buckets: buckets,
		}, labels)
		c.all = append(c.all, v)
		return v
	}
	waits := histogram("wait_seconds", "How long calls waited for a name, by outcome: held, ended or failed.", waitBuckets, append(slices.Clone(labels), "outcome"))
	tenures := counter("tenures_total", "Tenures that began.")
	margin := histogram("renewal_margin_ratio", "How long a lease would have lasted without a renewal, as a part of its TTL.", marginBuckets, labels)
	doubts := counter("doubts_total", "How often a lease was not renewed for half of its time.")
	recoveries := counter("recoveries_total", "How often a lease in doubt was renewed again.")
	early := counter("early_ends_total", "Tenures that a health check, HoldAtMost or Transfer ended early.")
	losses := counter("losses_total", "Tenures that ended against the will of their holder.")
	unconfirmed := counter("unconfirmed_releases_total", "Releases that the store did not confirm, or that did not record their tick.")
	hold := histogram("hold_seconds", "How long names were held, at their release or loss.", holdBuckets, labels)
	c.missed = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "leasekeeper", Subsystem: "client", Name: "missed_reports_total", Help: "Reports left out because a hook was too slow.",
	})
	c.all = append(c.all, c.missed)
	return func(values ...string) *series {
		s := &series{
			waits: waits, margin: margin.WithLabelValues(values...), hold: hold.WithLabelValues(values...),
			tenures: tenures.WithLabelValues(values...), doubts: doubts.WithLabelValues(values...),
			recoveries: recoveries.WithLabelValues(values...), early: early.WithLabelValues(values...),
			losses: losses.WithLabelValues(values...), unconfirmed: unconfirmed.WithLabelValues(values...),
		}
		if len(values) > 0 {
			s.waits = waits.MustCurryWith(prometheus.Labels{"group": values[0]})
		}
		for _, outcome := range []string{held, ended, failed} {
			s.waits.WithLabelValues(outcome)
		}
		return s
	}
}

// The bounds of the histograms' buckets.
var (
	waitBuckets   = []float64{.001, .005, .02, .1, .5, 1, 5, 15, 60, 300, 1800, 7200}
	marginBuckets = []float64{.05, .1, .2, .3, .4, .5, .55, .6, .65, .7, .8}
	holdBuckets   = []float64{.001, .01, .1, 1, 5, 15, 60, 300, 1800, 7200, 28800, 86400, 604800}
)

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, metric := range c.all {
		metric.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, metric := range c.all {
		metric.Collect(to)
	}
}

// Hook counts a report. It is a [leasekeeper.Hook], for [leasekeeper.WithHook].
func (c *Collector) Hook(r leasekeeper.Report) {
	switch r := r.(type) {
	case leasekeeper.Waited:
		c.of(r.Name).waits.WithLabelValues(outcomeOf(r.Err)).Observe(r.For.Seconds())
	case leasekeeper.Held:
		c.of(r.Name).tenures.Inc()
	case leasekeeper.Renewed:
		if r.TTL > 0 {
			c.of(r.Name).margin.Observe(float64(r.Left) / float64(r.TTL))
		}
	case leasekeeper.Doubted:
		c.of(r.Name).doubts.Inc()
	case leasekeeper.Assured:
		c.of(r.Name).recoveries.Inc()
	case leasekeeper.EndedEarly:
		c.of(r.Name).early.Inc()
	case leasekeeper.Lost:
		s := c.of(r.Name)
		s.losses.Inc()
		s.hold.Observe(r.For.Seconds())
	case leasekeeper.Released:
		s := c.of(r.Name)
		s.hold.Observe(r.For.Seconds())
		if r.Err != nil {
			s.unconfirmed.Inc()
		}
	case leasekeeper.ReportsMissed:
		c.missed.Add(float64(r.Reports))
	}
}

// of returns the series of a name.
func (c *Collector) of(name string) *series {
	if c.groupOf == nil {
		return c.other
	}
	if s := c.groups[c.groupOf(name)]; s != nil {
		return s
	}
	return c.other
}

// outcomeOf returns the outcome of a wait that ended with err. If the store was unavailable until the context of the call
// ended, the call has failed.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return held
	case errors.Is(err, leasekeeper.ErrUnavailable):
		return failed
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, leasekeeper.ErrClosed):
		return ended
	}
	return failed
}
