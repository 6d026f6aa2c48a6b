package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestMemberList(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		s.store().put("a", "1")
		cl := s.stubs()
		for _, linearizable := range []bool{true, false} {
			resp, err := cl.MemberList(s.context(), &pb.MemberListRequest{Linearizable: linearizable})
			wantOK(t, "member list", err)
			wantEqual(t, "members", len(resp.Members), 1)
			m := resp.Members[0]
			wantEqual(t, "id", m.ID, resp.Header.MemberId)
			wantEqual(t, "learner", m.IsLearner, false)
			wantEqual(t, "client URLs", fmt.Sprint(m.ClientURLs), "[http://"+s.grpcAddr+"]")
			if m.Name == "" || resp.Header.ClusterId == 0 || resp.Header.RaftTerm == 0 {
				t.Errorf("incomplete: %v", resp)
			}
			// Alone among the answers this one leaves the revision out.
			wantEqual(t, "revision", resp.Header.Revision, 0)
		}
		c := s.client()
		wantOK(t, "synchronizing endpoints", c.Sync(s.context()))
		wantEqual(t, "endpoints", fmt.Sprint(c.Endpoints()), "[http://"+s.grpcAddr+"]")
		_, err := c.Put(s.context(), "a", "2")
		wantOK(t, "a write to the endpoint that was listed", err)
	})
}

func TestStatusReportsLeaderTermAndSizes(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		st, ms := s.store(), s.stubs()
		status := func() *pb.StatusResponse {
			resp, err := ms.Status(s.context(), &pb.StatusRequest{})
			wantOK(t, "status", err)
			return resp
		}
		before := status()
		checkVersion(t, before.Version)
		wantEqual(t, "leader", before.Leader, before.Header.MemberId)
		wantEqual(t, "revision", before.Header.Revision, 1)
		wantEqual(t, "terms", before.RaftTerm, before.Header.RaftTerm)
		wantEqual(t, "learner", before.IsLearner, false)
		wantEqual(t, "errors", len(before.Errors), 0)
		if before.RaftIndex == 0 || before.RaftTerm == 0 || before.DbSize <= 0 || before.DbSizeInUse <= 0 || before.DbSizeInUse > before.DbSize {
			t.Errorf("a field is missing or implausible: %v", before)
		}
		st.put("a", "1")
		after := status()
		wantEqual(t, "revision", after.Header.Revision, 2)
		if after.RaftIndex <= before.RaftIndex || after.RaftAppliedIndex <= before.RaftAppliedIndex || after.RaftAppliedIndex > after.RaftIndex {
			t.Errorf("indexes after a write %d, %d; before %d, %d",
				after.RaftIndex, after.RaftAppliedIndex, before.RaftIndex, before.RaftAppliedIndex)
		}
	})
}

func TestHeadersAgree(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		st, stubs := s.store(), s.stubs()
		want := *s.identity(st.put("a", "1").Header)
		lease := st.grant(60)
		wantEqual(t, "grant", *s.identity(lease.ResponseHeader), want)
		wantEqual(t, "range", *s.identity(st.get("a").Header), want)
		wantEqual(t, "delete", *s.identity(st.delete("a").Header), want)
		wantEqual(t, "revoke", *s.identity(st.revoke(lease.ID).Header), want)
		list, err := stubs.MemberList(s.context(), &pb.MemberListRequest{})
		wantOK(t, "member list", err)
		wantEqual(t, "member list", *s.identity(list.Header), want)
		status, err := stubs.Status(s.context(), &pb.StatusRequest{})
		wantOK(t, "status", err)
		wantEqual(t, "status", *s.identity(status.Header), want)
		created := s.watch().create(&pb.WatchCreateRequest{Key: []byte("a")})
		wantEqual(t, "watch", *s.identity(created.Header), want)
	})
}

type identityFields struct{ cluster, member, term uint64 }

// identity returns the identity of the answering member. It is any of the members that clients know.
func (s *server) identity(h *pb.ResponseHeader) *identityFields {
	if s.endpoints != nil && h.MemberId != 0 {
		return &identityFields{h.ClusterId, 0, h.RaftTerm}
	}
	return &identityFields{h.ClusterId, h.MemberId, h.RaftTerm}
}

func TestAlarmList(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		ms := s.stubs()
		for _, kind := range []pb.AlarmType{pb.AlarmType_NONE, pb.AlarmType_NOSPACE} {
			resp, err := ms.Alarm(s.context(), &pb.AlarmRequest{Action: pb.AlarmRequest_GET, Alarm: kind})
			wantOK(t, "alarms", err)
			wantEqual(t, "alarms", len(resp.Alarms), 0)
			wantEqual(t, "header", resp.Header.Revision, 1)
		}
	})
}

func TestGRPCHealth(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		health := healthpb.NewHealthClient(s.stubs().conn)
		resp, err := health.Check(s.context(), &healthpb.HealthCheckRequest{})
		wantOK(t, "check", err)
		wantEqual(t, "status", resp.Status, healthpb.HealthCheckResponse_SERVING)
		_, err = health.Check(s.context(), &healthpb.HealthCheckRequest{Service: "no.such.service"})
		wantEqual(t, "an unknown service", codeOf(err), codes.NotFound)
		ctx, cancel := context.WithCancel(s.context())
		defer cancel()
		stream, err := health.Watch(ctx, &healthpb.HealthCheckRequest{})
		wantOK(t, "watch", err)
		resp, err = stream.Recv()
		wantOK(t, "watch", err)
		wantEqual(t, "watched status", resp.Status, healthpb.HealthCheckResponse_SERVING)
	})
}

func TestHTTPServesVersionHealthAndMetrics(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		get := func(path string) string {
			t.Helper()
			code, body, err := httpGet("http://" + s.httpAddr + path)
			wantOK(t, path, err)
			wantEqual(t, path+": status", code, http.StatusOK)
			return body
		}
		var version struct{ Etcdserver, Etcdcluster string }
		wantOK(t, "decoding the version", json.Unmarshal([]byte(get("/version")), &version))
		checkVersion(t, version.Etcdserver)
		checkVersion(t, version.Etcdcluster)
		var health struct{ Health string }
		wantOK(t, "decoding the health", json.Unmarshal([]byte(get("/health")), &health))
		wantEqual(t, "health", health.Health, "true")
		wantEqual(t, "livez", strings.TrimSpace(get("/livez")), "ok")
		wantEqual(t, "readyz", strings.TrimSpace(get("/readyz")), "ok")
		if metrics := get("/metrics"); !strings.Contains(metrics, "# TYPE ") {
			t.Errorf("/metrics is not in Prometheus' format: %.200q", metrics)
		}
		code, _, err := httpGet("http://" + s.httpAddr + "/no-such-page")
		wantOK(t, "an unknown page", err)
		wantEqual(t, "an unknown page", code, http.StatusNotFound)
	})
}
