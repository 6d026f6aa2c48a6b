package etcdapi

import (
	"context"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// alarms returns the alarms that a shortage causes.
func (m *maintenanceService) alarms(shortage replica.Shortage) []*pb.AlarmMember {
	if shortage == replica.Enough {
		return nil
	}
	return []*pb.AlarmMember{{MemberID: m.cfg.Member.Header().MemberID, Alarm: pb.AlarmType_NOSPACE}}
}

// Alarm lists, raises or removes the only alarm of this server, NOSPACE. The server also raises and removes it itself.
// A client cannot remove it while it has a cause. Each member has its own alarm. A request about another member, or
// about all, goes there.
func (m *maintenanceService) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	if m.cfg.Cluster == nil || admission.FromPeer(ctx) {
		return m.ownAlarm(ctx, r)
	}
	members, _, err := m.cfg.Member.Members(ctx)
	if err != nil {
		return nil, err
	}
	if r.MemberID != 0 && !slices.ContainsFunc(members, func(m roster.Member) bool { return m.ID == r.MemberID }) {
		return m.ownAlarm(ctx, r) // it is about an unknown member
	}
	resp := &pb.AlarmResponse{Header: header(m.cfg.Member.Header())}
	for _, member := range members {
		if r.Action != pb.AlarmRequest_GET && r.MemberID != 0 && r.MemberID != member.ID {
			continue
		}
		answer, err := m.memberAlarm(ctx, member.ID, r)
		switch {
		case err == nil:
			resp.Alarms = append(resp.Alarms, answer.Alarms...)
		case r.Action == pb.AlarmRequest_GET && member.ID != m.cfg.Member.Header().MemberID:
			// A member that is down is left out; the list contains the alarms of the others.
		default:
			return nil, err
		}
	}
	return resp, nil
}

// memberAlarm carries out a request for the alarm of one member.
func (m *maintenanceService) memberAlarm(ctx context.Context, member uint64, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	own := &pb.AlarmRequest{Action: r.Action, MemberID: member, Alarm: r.Alarm}
	if member == m.cfg.Member.Header().MemberID {
		return m.ownAlarm(ctx, own)
	}
	var resp *pb.AlarmResponse
	why, err := m.cfg.Cluster.Ask(ctx, member, func(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) (err error) {
		resp, err = pb.NewMaintenanceClient(conn).Alarm(ctx, own, opts...)
		return err
	})
	if err == nil || why == "" || errors.Is(err, replica.ErrNoLeader) {
		return resp, err
	}
	return nil, status.Errorf(codes.Unavailable, "etcdserver: member %016x cannot be reached: %s", member, why)
}

// ownAlarm carries out a request for the alarm of this member.
func (m *maintenanceService) ownAlarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	own := m.cfg.Member.Header().MemberID
	about := (r.MemberID == 0 || r.MemberID == own) && (r.Alarm == pb.AlarmType_NOSPACE || r.Alarm == pb.AlarmType_NONE)
	var alarms []*pb.AlarmMember
	switch r.Action {
	case pb.AlarmRequest_GET:
		// Like etcd, list the alarms of all members, whichever the request names.
		if r.Alarm == pb.AlarmType_NOSPACE || r.Alarm == pb.AlarmType_NONE {
			alarms = m.alarms(m.cfg.Member.Shortage())
		}
	case pb.AlarmRequest_ACTIVATE:
		if !about || r.Alarm == pb.AlarmType_NONE {
			return nil, status.Error(codes.Unimplemented, "etcdserver: only the alarm NOSPACE of this member can be raised on this server")
		}
		if _, _, err := m.cfg.Member.OrderShortage(ctx, true); err != nil {
			return nil, err
		}
		alarms = m.alarms(replica.Ordered)
	case pb.AlarmRequest_DEACTIVATE:
		if !about {
			break
		}
		before, after, err := m.cfg.Member.OrderShortage(ctx, false)
		if err != nil {
			return nil, err
		}
		if after != replica.Enough {
			return nil, status.Errorf(codes.FailedPrecondition, "etcdserver: the alarm stays because %v; the server removes it when there is space", after)
		}
		alarms = m.alarms(before)
	default:
		return nil, status.Errorf(codes.InvalidArgument, "etcdserver: unknown alarm action %d", int32(r.Action))
	}
	return &pb.AlarmResponse{Header: header(m.cfg.Member.Header()), Alarms: alarms}, nil
}
