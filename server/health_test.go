package server

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// startFlaky returns a front whose member has no leader while the flag is set.
func startFlaky(t *testing.T) (*front, *atomic.Bool) {
	t.Helper()
	lost := new(atomic.Bool)
	f := startWith(t, anyPort(), func(n *node.Node) member {
		return &faulty{Node: n, serving: func() error {
			if lost.Load() {
				return replica.ErrNoLeader
			}
			return n.Serving()
		}}
	})
	return f, lost
}

func TestHealthFollowsReadiness(t *testing.T) {
	f, lost := startFlaky(t)
	check := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		resp, err := f.health.Check(f.ctx(), &healthpb.HealthCheckRequest{})
		wantOK(t, err)
		wantEqual(t, "status", resp.Status, want)
		list, err := f.health.List(f.ctx(), &healthpb.HealthListRequest{})
		wantOK(t, err)
		wantEqual(t, "listed status", list.Statuses[""].GetStatus(), want)
	}
	check(healthpb.HealthCheckResponse_SERVING)
	watch, err := f.health.Watch(f.ctx(), &healthpb.HealthCheckRequest{})
	wantOK(t, err)
	next := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		resp, err := watch.Recv()
		wantOK(t, err)
		wantEqual(t, "watched status", resp.Status, want)
	}
	next(healthpb.HealthCheckResponse_SERVING)
	lost.Store(true)
	check(healthpb.HealthCheckResponse_NOT_SERVING)
	next(healthpb.HealthCheckResponse_NOT_SERVING)
	lost.Store(false)
	next(healthpb.HealthCheckResponse_SERVING)

	_, err = f.health.Check(f.ctx(), &healthpb.HealthCheckRequest{Service: "etcdserverpb.KV"})
	wantCode(t, err, codes.NotFound)
	unknown, err := f.health.Watch(f.ctx(), &healthpb.HealthCheckRequest{Service: "x"})
	wantOK(t, err)
	resp, err := unknown.Recv()
	wantOK(t, err)
	wantEqual(t, "unknown service", resp.Status, healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
}

// get sends a GET request and returns code and body.
func (f *front) get(path string) (int, string) {
	f.t.Helper()
	return f.request(http.MethodGet, path)
}

func (f *front) request(method, path string) (int, string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.ctx(), method, "http://"+f.server.HTTPAddr()+path, nil)
	wantOK(f.t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	wantOK(f.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	wantOK(f.t, err)
	return resp.StatusCode, string(body)
}

func TestProbesAnswerOverHTTP(t *testing.T) {
	f, lost := startFlaky(t)
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/health", "/version", "/metrics"} {
		code, _ := f.get(path)
		wantEqual(t, path, code, http.StatusOK)
		code, _ = f.request(http.MethodPost, path)
		wantEqual(t, "POST "+path, code, http.StatusMethodNotAllowed)
	}
	_, body := f.get("/health")
	wantEqual(t, "/health", body, `{"health":"true","reason":""}`+"\n")
	lost.Store(true)
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503, "/healthz": 503, "/health": 503, "/metrics": 200} {
		code, _ := f.get(path)
		wantEqual(t, path+" without leader", code, want)
	}
	_, body = f.get("/readyz")
	wantEqual(t, "/readyz", body, replica.ErrNoLeader.Error()+"\n")
	_, body = f.get("/health")
	if !strings.HasPrefix(body, `{"health":"false","reason":"no leader`) {
		t.Errorf("/health: %s", body)
	}
	code, _ := f.get("/nowhere")
	wantEqual(t, "/nowhere", code, http.StatusNotFound)
}

func TestVersionIsServedOverHTTP(t *testing.T) {
	cfg := anyPort()
	cfg.Version = "v1.2.3"
	f := startWith(t, cfg, nil)
	_, body := f.get("/version")
	var got map[string]string
	wantOK(t, json.Unmarshal([]byte(body), &got))
	for key, want := range map[string]string{
		"etcdserver": EtcdVersion, "etcdcluster": EtcdVersion, "storage": EtcdVersion, "leasekeeper": "v1.2.3",
	} {
		wantEqual(t, key, got[key], want)
	}
}

func TestMetricsCountRequests(t *testing.T) {
	f := startFront(t)
	f.grant(60, 1)
	f.grant(60, 2)
	f.put("a", "")
	_, err := f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 2})
	wantOK(t, err)
	_, err = f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 99})
	wantCode(t, err, codes.NotFound)
	w := f.openWatch(f.ctx())
	w.create(&pb.WatchCreateRequest{Key: []byte("a")})
	w.next()
	k := f.keepAlive(f.ctx())
	send(t, k, 1)
	_, err = k.Recv()
	wantOK(t, err)
	eventually(t, "the watcher is counted", func() bool { return f.server.metrics.watchers.Load() == 1 })
	_, body := f.get("/metrics")
	for _, line := range []string{
		"leasekeeper_serving 1", "leasekeeper_leases 1", "leasekeeper_leases_overdue 0",
		"leasekeeper_lease_overdue_oldest_seconds 0", "leasekeeper_leases_granted_total 2",
		"leasekeeper_leases_renewed_total 1", "leasekeeper_leases_revoked_total 1",
		"leasekeeper_leases_expired_total 0", "leasekeeper_revision 2", "leasekeeper_watchers 1",
		`leasekeeper_streams{kind="watch"} 1`, `leasekeeper_streams{kind="keepalive"} 1`,
		`leasekeeper_grpc_requests_total{code="OK",method="etcdserverpb.Lease/LeaseGrant"} 2`,
		`leasekeeper_grpc_requests_total{code="NotFound",method="etcdserverpb.Lease/LeaseRevoke"} 1`,
		`leasekeeper_refused_total{reason="lease_not_found"} 1`, `leasekeeper_refused_total{reason="no_leader"} 0`,
		`leasekeeper_build_info{etcd_api="3.7.0",version="development"} 1`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	for _, name := range []string{"leasekeeper_commands_applied_total ", "leasekeeper_disk_syncs_total ",
		"leasekeeper_disk_sync_seconds_total ", "leasekeeper_disk_bytes ", "go_goroutines "} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("no %s", name)
		}
	}
}
