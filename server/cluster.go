package server

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// clusterService is etcd's Cluster: a list of members, which can not be changed yet.
type clusterService struct {
	pb.UnimplementedClusterServer
	s *Server
}

// MemberList leaves the header's revision out, as etcd does: members are not part of the key space.
func (c *clusterService) MemberList(_ context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if r.Linearizable {
		if err := c.s.serving(); err != nil {
			return nil, err
		}
	}
	h := c.s.member.Header()
	h.Revision = 0
	return &pb.MemberListResponse{
		Header:  header(h),
		Members: []*pb.Member{{ID: h.MemberID, Name: c.s.cfg.Name, ClientURLs: c.s.clientURLs()}},
	}, nil
}

// maintenanceService is etcd's Maintenance as far as its tools need it to look at a member.
type maintenanceService struct {
	pb.UnimplementedMaintenanceServer
	s *Server
}

// Status tells what this member knows, without asking others.
func (m *maintenanceService) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	st, err := m.s.member.Status(ctx)
	if err != nil {
		return nil, m.s.answer(err)
	}
	resp := &pb.StatusResponse{
		Header:  header(st.Header),
		Version: EtcdVersion, StorageVersion: EtcdVersion,
		DbSize: st.DiskBytes, DbSizeInUse: st.DiskBytes,
		Leader: st.Leader, RaftTerm: st.Header.Term, RaftIndex: st.LogIndex, RaftAppliedIndex: st.AppliedIndex,
		DowngradeInfo: &pb.DowngradeInfo{},
	}
	if st.Leader == 0 {
		resp.Errors = append(resp.Errors, status.Convert(rpctypes.ErrGRPCNoLeader).Message())
	}
	return resp, nil
}

// Alarm knows no alarms: none is ever listed, and there is none to disarm. To raise one is refused, because
// the caller would rely on an effect that it does not have.
func (m *maintenanceService) Alarm(_ context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	switch r.Action {
	case pb.AlarmRequest_GET, pb.AlarmRequest_DEACTIVATE:
		return &pb.AlarmResponse{Header: header(m.s.member.Header())}, nil
	case pb.AlarmRequest_ACTIVATE:
		return nil, status.Error(codes.Unimplemented, "etcdserver: alarms can not be raised on this server")
	default:
		return nil, status.Errorf(codes.InvalidArgument, "etcdserver: unknown alarm action %d", int32(r.Action))
	}
}

// authService says that there is no authentication. etcd's clients go on without it when told so, also
// those that were given a name and a password.
type authService struct {
	pb.UnimplementedAuthServer
	s *Server
}

func (a *authService) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: header(a.s.member.Header())}, nil
}

func (a *authService) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}
