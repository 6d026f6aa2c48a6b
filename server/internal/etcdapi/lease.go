package etcdapi

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// MinTTL is the shortest TTL that the server grants. It raises a shorter TTL to it.
const MinTTL = time.Second

// leaseService is etcd's Lease. Its keep-alive is in keepalive.go.
type leaseService struct {
	pb.UnimplementedLeaseServer
	*API
}

func (l *leaseService) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	ttl, err := grantTTL(r.TTL)
	if err != nil {
		return nil, err
	}
	h, granted, err := l.cfg.Member.Grant(ctx, lessor.ID(r.ID), ttl)
	if err != nil {
		return nil, err
	}
	return &pb.LeaseGrantResponse{Header: header(h), ID: int64(granted.ID), TTL: wholeSeconds(granted.TTL)}, nil
}

func (l *leaseService) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	h, err := l.cfg.Member.Revoke(ctx, lessor.ID(r.ID))
	if err != nil {
		return nil, err
	}
	return &pb.LeaseRevokeResponse{Header: header(h)}, nil
}

// LeaseTimeToLive answers TTL −1, not an error, for a lease that does not exist. A lease past its deadline whose end is
// not applied yet has TTL 0.
func (l *leaseService) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	h, status, err := l.cfg.Member.TimeToLive(ctx, lessor.ID(r.ID), r.Keys)
	if errors.Is(err, lessor.ErrNotFound) {
		if h.MemberID == 0 {
			h = l.cfg.Member.Header()
		}
		return &pb.LeaseTimeToLiveResponse{Header: header(h), ID: r.ID, TTL: -1}, nil
	}
	if err != nil {
		return nil, err
	}
	resp := &pb.LeaseTimeToLiveResponse{
		Header: header(h), ID: r.ID,
		TTL: wholeSeconds(status.Remaining), GrantedTTL: wholeSeconds(status.Granted),
	}
	if r.Keys {
		resp.Keys = make([][]byte, len(status.Items))
		for i, item := range status.Items {
			resp.Keys[i] = []byte(item.Key)
		}
	}
	return resp, nil
}

func (l *leaseService) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	h, leases, err := l.cfg.Member.Leases(ctx)
	if err != nil {
		return nil, err
	}
	values := make([]pb.LeaseStatus, len(leases))
	resp := &pb.LeaseLeasesResponse{Header: header(h), Leases: make([]*pb.LeaseStatus, len(leases))}
	for i := range leases {
		values[i].ID = int64(leases[i].ID)
		resp.Leases[i] = &values[i]
	}
	return resp, nil
}

// grantTTL returns the TTL to grant for the requested seconds.
func grantTTL(seconds int64) (time.Duration, error) {
	switch {
	case seconds > int64(lessor.MaxTTL/time.Second):
		return 0, lessor.ErrTTLTooLarge
	case seconds < int64(MinTTL/time.Second):
		return MinTTL, nil
	default:
		return time.Duration(seconds) * time.Second, nil
	}
}

// wholeSeconds rounds down, so that no client relies on a lease for longer than it lives. A negative duration counts as
// 0.
func wholeSeconds(d time.Duration) int64 { return int64(max(d, 0) / time.Second) }
