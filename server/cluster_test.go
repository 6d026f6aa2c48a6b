package server

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

func TestMemberList(t *testing.T) {
	cfg := anyPort()
	cfg.Name = "one"
	f := startWith(t, cfg, nil)
	f.put("a", "")
	for _, linearizable := range []bool{false, true} {
		resp, err := f.cluster.MemberList(f.ctx(), &pb.MemberListRequest{Linearizable: linearizable})
		wantOK(t, err)
		f.header(resp.Header, 0)
		wantEqual(t, "members", len(resp.Members), 1)
		m := resp.Members[0]
		wantEqual(t, "id", m.ID, f.node.Header().MemberID)
		wantEqual(t, "member", fmt.Sprint(m.Name, m.ClientURLs, m.IsLearner), "one[http://"+f.server.Addr()+"] false")
	}
}

func TestMemberListAdvertises(t *testing.T) {
	cfg := anyPort()
	cfg.ListenClient = "0.0.0.0:0"
	cfg.Advertise = []string{"lease.example:2379", "https://[2001:db8::1]:2379/"}
	f := startWith(t, cfg, nil)
	resp, err := f.cluster.MemberList(f.ctx(), &pb.MemberListRequest{})
	wantOK(t, err)
	wantEqual(t, "urls", fmt.Sprint(resp.Members[0].ClientURLs), "[http://lease.example:2379 https://[2001:db8::1]:2379]")
}

func TestMemberListWithoutLeader(t *testing.T) {
	f := startWith(t, anyPort(), func(n *replica.Node) member {
		return &faulty{Node: n, serving: func() error { return replica.ErrNoLeader }}
	})
	_, err := f.cluster.MemberList(f.ctx(), &pb.MemberListRequest{Linearizable: true})
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	_, err = f.cluster.MemberList(f.ctx(), &pb.MemberListRequest{})
	wantOK(t, err)
}

func TestStatus(t *testing.T) {
	f := startFront(t)
	f.put("a", "")
	resp, err := f.maintenance.Status(f.ctx(), &pb.StatusRequest{})
	wantOK(t, err)
	f.header(resp.Header, 2)
	own := f.node.Header()
	wantEqual(t, "versions", resp.Version+" "+resp.StorageVersion, EtcdVersion+" "+EtcdVersion)
	wantEqual(t, "leader", resp.Leader, own.MemberID)
	wantEqual(t, "term", resp.RaftTerm, own.Term)
	if resp.DbSize <= 0 || resp.RaftIndex == 0 || resp.RaftAppliedIndex == 0 || resp.RaftAppliedIndex > resp.RaftIndex {
		t.Errorf("implausible status: %v", resp)
	}
	wantEqual(t, "errors", len(resp.Errors), 0)
	wantEqual(t, "downgrade", resp.DowngradeInfo.GetEnabled(), false)
}

func TestAlarm(t *testing.T) {
	f := startFront(t)
	for _, action := range []pb.AlarmRequest_AlarmAction{pb.AlarmRequest_GET, pb.AlarmRequest_DEACTIVATE} {
		resp, err := f.maintenance.Alarm(f.ctx(), &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE})
		wantOK(t, err)
		f.header(resp.Header, 1)
		wantEqual(t, "alarms", len(resp.Alarms), 0)
	}
	_, err := f.maintenance.Alarm(f.ctx(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE})
	wantCode(t, err, codes.Unimplemented)
	_, err = f.maintenance.Alarm(f.ctx(), &pb.AlarmRequest{Action: 9})
	wantCode(t, err, codes.InvalidArgument)
}

func TestNoAuthentication(t *testing.T) {
	f := startFront(t)
	resp, err := f.auth.AuthStatus(f.ctx(), &pb.AuthStatusRequest{})
	wantOK(t, err)
	wantEqual(t, "enabled", resp.Enabled, false)
	_, err = f.auth.Authenticate(f.ctx(), &pb.AuthenticateRequest{Name: "root", Password: "x"})
	wantStatus(t, err, rpctypes.ErrGRPCAuthNotEnabled)
}
