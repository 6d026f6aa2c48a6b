package server

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/backup"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
)

// maxCode is the largest code that gRPC defines. Larger codes are counted as Unknown.
const maxCode = codes.Unauthenticated

// streamKind is a kind of long stream. Each kind has a metric label in streamNames.
type streamKind int

const (
	watchStream streamKind = iota
	keepAliveStream
	claimStream
	streamKinds
)

var streamNames = [streamKinds]string{watchStream: "watch", keepAliveStream: "keepalive", claimStream: "hold"}

// metrics counts what this package does, and collects the member's own numbers at each scrape. All label values
// (methods, codes, reasons) are known before the server starts. No label value comes from a client.
type metrics struct {
	registry *prometheus.Registry
	member   member
	cluster  *Server          // nil if the member is alone
	backups  *backup.Schedule // nil if none are made

	methods  map[string]*[maxCode + 1]atomic.Uint64 // by full method; the map does not change
	refused  map[string]*atomic.Uint64              // by reason; the map does not change
	streams  [streamKinds]atomic.Int64
	watchers atomic.Int64
}

func newMetrics(cfg Config, m member) *metrics {
	out := &metrics{
		registry: prometheus.NewRegistry(),
		member:   m,
		methods:  make(map[string]*[maxCode + 1]atomic.Uint64),
		refused:  make(map[string]*atomic.Uint64),
	}
	for _, reason := range []string{reasonPlain, reasonConnections, admission.ReasonWatchers} {
		out.refused[reason] = new(atomic.Uint64)
	}
	for _, reason := range namesapi.Reasons() {
		out.refused[reason] = new(atomic.Uint64)
	}
	for _, reason := range etcdapi.Reasons() {
		out.refused[reason] = new(atomic.Uint64)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "leasekeeper_build_info",
		Help:        "Always 1; the labels say which version runs and which level of etcd's API it speaks.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "etcd_api": EtcdVersion},
	})
	build.Set(1)
	out.registry.MustRegister(build, out,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return out
}

// addMethods starts to count the methods of services.
func (m *metrics) addMethods(services map[string]grpc.ServiceInfo) {
	for name, service := range services {
		for _, method := range service.Methods {
			m.methods["/"+name+"/"+method.Name] = new([maxCode + 1]atomic.Uint64)
		}
	}
}

// countResult counts one unary request or stream that has ended with err.
func (m *metrics) countResult(method string, err error) { m.Count(method, status.Code(err), 1) }

// Count counts n requests of a method that have ended with a code.
func (m *metrics) Count(method string, code codes.Code, n int) {
	if n == 0 {
		return
	}
	if code > maxCode {
		code = codes.Unknown
	}
	if counts := m.methods[method]; counts != nil {
		counts[code].Add(uint64(n))
	}
}

// Refuse counts one refused request under a reason, which is a metric label.
func (m *metrics) Refuse(reason string) { m.refused[reason].Add(1) }

// open counts a long stream as open until closed is called.
func (m *metrics) open(kind streamKind) (closed func()) {
	m.streams[kind].Add(1)
	return func() { m.streams[kind].Add(-1) }
}

// OpenWatch counts a watch stream as open until closed is called.
func (m *metrics) OpenWatch() (closed func()) { return m.open(watchStream) }

// OpenKeepAlive counts a stream of renewals as open until closed is called.
func (m *metrics) OpenKeepAlive() (closed func()) { return m.open(keepAliveStream) }

// OpenHold counts a stream of claims as open until closed is called.
func (m *metrics) OpenHold() (closed func()) { return m.open(claimStream) }

// AddWatchers adds n to the number of open watchers.
func (m *metrics) AddWatchers(n int64) { m.watchers.Add(n) }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("leasekeeper_"+name, help, labels, nil)
}

var (
	descServing   = desc("serving", "1 if the member is ready: linearizable reads and renewals work through it; else 0.")
	descLeases    = desc("leases", "Leases that have not ended.")
	descOverdue   = desc("leases_overdue", "Leases past their deadline whose end is not applied yet.")
	descOldestDue = desc("lease_overdue_oldest_seconds", "How long the oldest overdue lease has been overdue.")
	descGranted   = desc("leases_granted_total", "Leases granted.")
	descRenewed   = desc("leases_renewed_total", "Renewals acknowledged.")
	descRevoked   = desc("leases_revoked_total", "Leases revoked.")
	descExpired   = desc("leases_expired_total", "Leases expired.")
	descApplied   = desc("commands_applied_total", "Commands applied to the state.")
	descSyncs     = desc("disk_syncs_total", "Synced writes of the log.")
	descSyncTime  = desc("disk_sync_seconds_total", "Time spent in synced writes of the log.")
	descDisk      = desc("disk_bytes", "Size of the files in the data directory.")
	descRevision  = desc("revision", "Current revision of the key space.")
	descTerm      = desc("raft_term", "Current term.")
	descIndex     = desc("raft_log_index", "Index of the newest log entry.")
	descAppliedAt = desc("raft_applied_index", "Index of the newest log entry that is applied.")

	descRequests = desc("grpc_requests_total", "gRPC requests and streams that have ended.", "method", "code")
	descRefused  = desc("refused_total", "Requests that were refused.", "reason")
	descStreams  = desc("streams", "Long streams that are open.", "kind")
	descWatchers = desc("watchers", "Watchers on all watch streams.")
)

// Describe implements [prometheus.Collector]. It sends nothing, because the labels that will occur are not known in
// advance.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.collectMember(out)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for method, counts := range m.methods {
		for code := range counts {
			if n := counts[code].Load(); n > 0 {
				counter(descRequests, n, strings.TrimPrefix(method, "/"), codes.Code(code).String())
			}
		}
	}
	for reason, n := range m.refused {
		counter(descRefused, n.Load(), reason)
	}
	for kind := range m.streams {
		gauge(descStreams, float64(m.streams[kind].Load()), streamNames[kind])
	}
	gauge(descWatchers, float64(m.watchers.Load()))
	if m.backups != nil {
		collectBackups(out, m.backups.Stats())
	}
}

// scrapeLimit bounds how long a scrape waits for a member that does not answer.
const scrapeLimit = 2 * time.Second

func (m *metrics) collectMember(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	if m.cluster != nil {
		m.cluster.collectCluster(ctx, out)
	}
	st, err := m.member.Status(ctx)
	serving := 0.0
	if m.member.CheckReady() == nil {
		serving = 1
	}
	if err != nil { // counters that fall to zero would look like a restart
		out <- prometheus.MustNewConstMetric(descServing, prometheus.GaugeValue, serving)
		return
	}
	collectLoad(out, &st)
	for _, g := range []struct {
		desc  *prometheus.Desc
		value float64
	}{
		{descServing, serving},
		{descLeases, float64(st.Leases)},
		{descOverdue, float64(st.Overdue)},
		{descOldestDue, st.OldestDue.Seconds()},
		{descDisk, float64(st.DiskBytes)},
		{descRevision, float64(st.Header.Revision)},
		{descTerm, float64(st.Header.Term)},
		{descIndex, float64(st.LogIndex)},
		{descAppliedAt, float64(st.AppliedIndex)},
	} {
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value)
	}
	for _, c := range []struct {
		desc  *prometheus.Desc
		value float64
	}{
		{descGranted, float64(st.Granted)},
		{descRenewed, float64(st.Renewed)},
		{descRevoked, float64(st.Revoked)},
		{descExpired, float64(st.Expired)},
		{descApplied, float64(st.Applied)},
		{descSyncs, float64(st.Syncs)},
		{descSyncTime, st.SyncTime.Seconds()},
	} {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, c.value)
	}
}
