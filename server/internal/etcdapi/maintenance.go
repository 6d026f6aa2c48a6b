package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/etcdfile"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/snapshotstream"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

// maintenanceService is etcd's Maintenance: the state of one member, and operations on it. Only Alarm asks other
// members.
type maintenanceService struct {
	pb.UnimplementedMaintenanceServer
	*API
}

// Status returns what this member knows.
func (m *maintenanceService) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	st, err := m.cfg.Member.Status(ctx)
	if err != nil {
		return nil, err
	}
	own, _, err := m.findMember(ctx, st.Header.MemberID)
	if err != nil {
		return nil, err
	}
	resp := &pb.StatusResponse{
		Header: header(st.Header), IsLearner: own.Learner,
		Version: Version, StorageVersion: Version,
		DbSize: st.DiskBytes, DbSizeInUse: st.DataBytes, DbSizeQuota: st.QuotaBytes,
		Leader: st.Leader, RaftTerm: st.Header.Term, RaftIndex: st.LogIndex, RaftAppliedIndex: st.AppliedIndex,
		DowngradeInfo: &pb.DowngradeInfo{},
	}
	if st.Leader == 0 {
		resp.Errors = append(resp.Errors, status.Convert(rpctypes.ErrGRPCNoLeader).Message())
	}
	for _, alarm := range m.alarms(st.Shortage) {
		resp.Errors = append(resp.Errors, fmt.Sprintf("memberID:%d alarm:%s", alarm.MemberID, alarm.Alarm))
	}
	return resp, nil
}

// Defragment rewrites the database. Unlike etcd's, it does not block requests.
func (m *maintenanceService) Defragment(ctx context.Context, _ *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	start := time.Now()
	if err := m.cfg.Member.Defragment(ctx); err != nil {
		return nil, err
	}
	tracing.Log(ctx, m.cfg.Log).Info("defragmented", "took", time.Since(start))
	return &pb.DefragmentResponse{Header: header(m.cfg.Member.Header())}, nil
}

// Hash covers all keys with their history. The files of two members may differ although the members agree.
func (m *maintenanceService) Hash(ctx context.Context, _ *pb.HashRequest) (*pb.HashResponse, error) {
	h, result, err := m.cfg.Member.HashHistory(m.inTurn(ctx))
	if err != nil {
		return nil, err
	}
	return &pb.HashResponse{Header: headerAt(h, result.Current), Hash: result.Hash}, nil
}

// HashKV covers the keys as they are at a revision, so that a compaction of earlier revisions does not change it.
func (m *maintenanceService) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	h, result, err := m.cfg.Member.HashKeys(m.inTurn(ctx), r.Revision)
	if err != nil {
		return nil, err
	}
	return &pb.HashKVResponse{
		Header: headerAt(h, result.Current),
		Hash:   result.Hash, CompactRevision: result.Compact, HashRevision: result.Revision,
	}, nil
}

// inTurn returns a context under which a hash takes turns with other bulk work: it reads all keys.
func (m *maintenanceService) inTurn(ctx context.Context) context.Context {
	return keyspace.InTurn(ctx, m.cfg.Bulk, string(admission.IdentityOf(ctx)))
}

// MoveLeader transfers leadership to another member, if this one leads. etcd's clients send this request to the leader.
// A transfer to the present leader succeeds, since the client wants that member to lead.
func (m *maintenanceService) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	if err := m.cfg.Serving(); err != nil || m.cfg.Cluster != nil && !m.cfg.Cluster.Leads() {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	h := m.cfg.Member.Header()
	if r.TargetID == h.MemberID {
		return &pb.MoveLeaderResponse{Header: header(h)}, nil
	}
	if m.cfg.Cluster == nil {
		return nil, rpctypes.ErrGRPCBadLeaderTransferee
	}
	target, found, err := m.findMember(ctx, r.TargetID)
	if err != nil {
		return nil, err
	}
	if !found || target.Learner {
		return nil, rpctypes.ErrGRPCBadLeaderTransferee
	}
	err = m.cfg.Cluster.HandOver(ctx, r.TargetID)
	if errors.Is(err, replica.ErrNotLeader) {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	if err != nil {
		return nil, err
	}
	return &pb.MoveLeaderResponse{Header: header(m.cfg.Member.Header())}, nil
}

// Downgrade is refused, because this server implements one version of etcd's API. As in etcd, it is not an error to
// cancel a downgrade that does not exist.
func (m *maintenanceService) Downgrade(_ context.Context, r *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	if r.Action != pb.DowngradeRequest_CANCEL {
		return nil, rpctypes.ErrGRPCInvalidDowngradeTargetVersion
	}
	return &pb.DowngradeResponse{Header: header(m.cfg.Member.Header()), Version: clusterVersion}, nil
}

// Snapshot sends a copy of the data in etcd's format, which package etcdfile describes. It ends when the server stops.
func (m *maintenanceService) Snapshot(_ *pb.SnapshotRequest, stream grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	ctx, end := m.cfg.Lifetime.Stream(stream.Context(), lifetime.AnyLeader)
	defer end(nil)
	take := func(ctx context.Context) (*node.EtcdSnapshot, error) {
		members, err := m.members(ctx)
		if err != nil {
			return nil, err
		}
		return m.cfg.Member.EtcdSnapshot(ctx, members)
	}
	return snapshotstream.Send(ctx, m.cfg.Log, take, func(p snapshotstream.Part) error {
		return stream.Send(&pb.SnapshotResponse{RemainingBytes: uint64(p.Left), Blob: p.Data, Version: etcdfile.StorageVersion})
	})
}

// members returns the members for a snapshot.
func (m *maintenanceService) members(ctx context.Context) ([]etcdfile.Member, error) {
	members, _, err := m.cfg.Member.Members(ctx)
	var all []etcdfile.Member
	for _, l := range members {
		l = m.cfg.Describe(l)
		all = append(all, etcdfile.Member{ID: l.ID, Name: l.Name, PeerURLs: l.PeerURLs, ClientURLs: l.ClientURLs, Learner: l.Learner})
	}
	return all, err
}
