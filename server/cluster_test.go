package server

import (
	"context"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

func TestMemberListOfASingleServer(t *testing.T) {
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

func TestMemberListContainsAdvertisedURLs(t *testing.T) {
	cfg := anyPort()
	cfg.ListenClient = "0.0.0.0:0"
	cfg.Advertise = []string{"lease.example:2379", "https://[2001:db8::1]:2379/"}
	f := startWith(t, cfg, nil)
	resp, err := f.cluster.MemberList(f.ctx(), &pb.MemberListRequest{})
	wantOK(t, err)
	wantEqual(t, "urls", fmt.Sprint(resp.Members[0].ClientURLs), "[http://lease.example:2379 https://[2001:db8::1]:2379]")
}

func TestLinearizableMemberListNeedsALeader(t *testing.T) {
	f := startWith(t, anyPort(), func(n *node.Node) member {
		return &faulty{Node: n, ranged: func(context.Context) error { return replica.ErrNoLeader }}
	})
	_, err := f.cluster.MemberList(f.ctx(), &pb.MemberListRequest{Linearizable: true})
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	_, err = f.cluster.MemberList(f.ctx(), &pb.MemberListRequest{})
	wantOK(t, err)
}

func TestAuthenticationIsNotEnabled(t *testing.T) {
	f := startFront(t)
	resp, err := f.auth.AuthStatus(f.ctx(), &pb.AuthStatusRequest{})
	wantOK(t, err)
	wantEqual(t, "enabled", resp.Enabled, false)
	_, err = f.auth.Authenticate(f.ctx(), &pb.AuthenticateRequest{Name: "root", Password: "x"})
	wantStatus(t, err, rpctypes.ErrGRPCAuthNotEnabled)
}

// A server without an address for other members refuses changes for etcd's reasons first.
func TestChangesOfMembersOnASingleServer(t *testing.T) {
	f := startFront(t)
	own := f.node.Header().MemberID
	_, err := f.cluster.MemberRemove(f.ctx(), &pb.MemberRemoveRequest{ID: own})
	wantStatus(t, err, rpctypes.ErrGRPCMemberNotEnoughStarted)
	_, err = f.cluster.MemberRemove(f.ctx(), &pb.MemberRemoveRequest{ID: own + 1})
	wantStatus(t, err, rpctypes.ErrGRPCMemberNotFound)
	_, err = f.cluster.MemberPromote(f.ctx(), &pb.MemberPromoteRequest{ID: own})
	wantStatus(t, err, rpctypes.ErrGRPCMemberNotLearner)
	_, err = f.cluster.MemberAdd(f.ctx(), &pb.MemberAddRequest{PeerURLs: []string{"http://192.0.2.1:2380"}})
	wantStatus(t, err, status.Error(codes.FailedPrecondition, "etcdserver: "+node.ErrNoPeerAddress.Error()))
}
