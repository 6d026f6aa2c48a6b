package server

import (
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/snapshotstream"
)

// Snapshot sends a copy of this member's data in Leasekeeper's own format. It ends when the server stops.
func (m *membersService) Snapshot(_ *leasekeeperv1.SnapshotRequest, stream grpc.ServerStreamingServer[leasekeeperv1.SnapshotResponse]) error {
	ctx, end := m.s.life.Stream(stream.Context(), lifetime.AnyLeader)
	defer end(nil)
	return snapshotstream.Send(ctx, m.s.log, m.s.member.Snapshot, func(p snapshotstream.Part) error {
		return stream.Send(&leasekeeperv1.SnapshotResponse{Data: p.Data, Size: p.Size})
	})
}
