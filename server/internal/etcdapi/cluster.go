package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// clusterService is etcd's Cluster: a list of members, which cannot be changed.
type clusterService struct {
	pb.UnimplementedClusterServer
	*API
}

// MemberList leaves the header's revision out, as etcd does: members are not part of the key space. Of a
// member that was never heard it is not known where clients reach it.
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

// authService says that there is no authentication. etcd's clients go on without it when told so, also
// those that were given a name and a password.
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
