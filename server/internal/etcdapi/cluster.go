package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// clusterService is etcd's Cluster. It lists the members, and cannot change them.
type clusterService struct {
	pb.UnimplementedClusterServer
	*API
}

// MemberList leaves the header's revision out, as etcd does, because members are not part of the key space. A member
// that has never answered is listed without client URLs.
func (c *clusterService) MemberList(_ context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if r.Linearizable {
		if err := c.cfg.Serving(); err != nil {
			return nil, err
		}
	}
	h := c.cfg.Member.Header()
	h.Revision = 0
	resp := &pb.MemberListResponse{Header: header(h)}
	for _, m := range c.cfg.Members() {
		resp.Members = append(resp.Members, &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs})
	}
	return resp, nil
}

// authService reports that authentication is not enabled. etcd's clients then continue without it, even if they have a
// name and a password.
type authService struct {
	pb.UnimplementedAuthServer
	*API
}

func (a *authService) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: header(a.cfg.Member.Header())}, nil
}

func (a *authService) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}
