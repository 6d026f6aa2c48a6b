package server

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// clusterService is etcd's Cluster: a list of members, which cannot be changed.
type clusterService struct {
	pb.UnimplementedClusterServer
	s *Server
}

// MemberList leaves the header's revision out, as etcd does: members are not part of the key space. Of a
// member that was never heard it is not known where clients reach it.
func (c *clusterService) MemberList(_ context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if r.Linearizable {
		if err := c.s.serving(); err != nil {
			return nil, err
		}
	}
	h := c.s.member.Header()
	h.Revision = 0
	resp := &pb.MemberListResponse{Header: header(h)}
	if c.s.peers == nil {
		resp.Members = []*pb.Member{{ID: h.MemberID, Name: c.s.cfg.Name, ClientURLs: c.s.clientURLs()}}
		return resp, nil
	}
	for _, m := range c.s.cfg.Group.Members {
		urls := c.s.peers.known(m.ID)
		if m.ID == h.MemberID {
			urls = c.s.clientURLs()
		}
		resp.Members = append(resp.Members, &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: []string{m.PeerURL}, ClientURLs: urls})
	}
	return resp, nil
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
