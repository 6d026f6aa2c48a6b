package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasekeeper/leasekeeper/internal/histogram"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

var (
	descExpiryLag = desc("lease_expiry_lag_seconds", "Time from the deadline of a lease until its end was applied.")
	descRenewal   = desc("lease_renewal_seconds", "Time that renewals took in the member.")
	descSync      = desc("disk_sync_duration_seconds", "Time that synced writes of the log took.")
	descApply     = desc("apply_duration_seconds", "Time of steps in which log entries were applied; the member serves nothing else meanwhile.")

	descAttached = desc("keys_attached", "Keys attached to leases.")
	descVersion  = desc("log_version", "Versions of the log: what the program understands, what all members understand, and what is in use.", "of")
	descQueue    = desc("queue_length", "Requests that wait in the member.")

	descWatchQueued  = desc("watch_queued_events", "Events that wait to be sent to watchers.")
	descWatchLagging = desc("watchers_lagging", "Watchers that are behind, and therefore read the history of keys.")
	descWatchLag     = desc("watch_lag_revisions", "Revisions that the watcher furthest behind has not received yet.")

	descData    = desc("data_bytes", "Size of the data, as the quota counts it.")
	descQuota   = desc("data_quota_bytes", "Quota of the data, 0 for none.")
	descFree    = desc("disk_free_bytes", "Free space on the file system of the data directory; missing if the system does not report it.")
	descNoSpace = desc("no_space", "1 if puts and grants are refused for this reason, else 0.", "reason")
)

// shortageReasons maps each shortage, which makes the member refuse puts and grants, to its metric label.
var shortageReasons = []struct {
	shortage replica.Shortage
	reason   string
}{
	{replica.DiskFull, "disk"},
	{replica.QuotaExceeded, "quota"},
	{replica.Ordered, "operator"},
}

// collectLoad collects the metrics of the member's load, disk and watchers.
func collectLoad(out chan<- prometheus.Metric, st *node.Status) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descAttached, float64(st.Attached))
	gauge(descVersion, float64(gate.Newest), "program")
	gauge(descVersion, float64(st.Versions.Cluster), "cluster")
	gauge(descVersion, float64(st.Versions.InUse), "in_use")
	gauge(descQueue, float64(st.Queue))
	gauge(descWatchQueued, float64(st.Watch.Queued))
	gauge(descWatchLagging, float64(st.Watch.Lagging))
	gauge(descWatchLag, float64(st.Watch.Furthest))
	gauge(descData, float64(st.DataBytes))
	gauge(descQuota, float64(st.QuotaBytes))
	if st.FreeBytes >= 0 {
		gauge(descFree, float64(st.FreeBytes))
	}
	for _, r := range shortageReasons {
		value := 0.0
		if st.Shortage == r.shortage {
			value = 1
		}
		gauge(descNoSpace, value, r.reason)
	}
	addHistogram(out, descExpiryLag, &st.Timings.Late)
	addHistogram(out, descRenewal, &st.Timings.Renewal)
	addHistogram(out, descSync, &st.Timings.Sync)
	addHistogram(out, descApply, &st.Timings.Apply)
}

func addHistogram(out chan<- prometheus.Metric, d *prometheus.Desc, h *histogram.Durations) {
	buckets := make(map[float64]uint64)
	h.Cumulative(func(bound time.Duration, n uint64) { buckets[bound.Seconds()] = n })
	out <- prometheus.MustNewConstHistogram(d, h.Count(), h.Sum().Seconds(), buckets)
}
