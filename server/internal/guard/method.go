package guard

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/access"
)

// needs says what a method needs before it is called.
type needs int

const (
	unknown  needs = iota // refused while access is enabled
	nothing               // it tells nobody anything that must be kept, or it checks by itself
	further               // [Keys] and [Names] check each call of the member that it makes
	someone               // a user
	rootRole              // a user with the role root
)

// methods has every method that the server offers.
var methods = map[string]needs{
	pb.KV_Range_FullMethodName:       further,
	pb.KV_RangeStream_FullMethodName: further,
	pb.KV_Put_FullMethodName:         further,
	pb.KV_DeleteRange_FullMethodName: further,
	pb.KV_Txn_FullMethodName:         further,
	pb.KV_Compact_FullMethodName:     rootRole,

	pb.Lease_LeaseGrant_FullMethodName:      further,
	pb.Lease_LeaseRevoke_FullMethodName:     further,
	pb.Lease_LeaseKeepAlive_FullMethodName:  further,
	pb.Lease_LeaseTimeToLive_FullMethodName: further,
	pb.Lease_LeaseLeases_FullMethodName:     further,
	pb.Watch_Watch_FullMethodName:           further,

	v3lockpb.Lock_Lock_FullMethodName:             further,
	v3lockpb.Lock_Unlock_FullMethodName:           further,
	v3electionpb.Election_Campaign_FullMethodName: further,
	v3electionpb.Election_Proclaim_FullMethodName: further,
	v3electionpb.Election_Resign_FullMethodName:   further,
	v3electionpb.Election_Leader_FullMethodName:   further,
	v3electionpb.Election_Observe_FullMethodName:  further,

	pb.Cluster_MemberAdd_FullMethodName:     rootRole,
	pb.Cluster_MemberRemove_FullMethodName:  rootRole,
	pb.Cluster_MemberUpdate_FullMethodName:  rootRole,
	pb.Cluster_MemberPromote_FullMethodName: rootRole,
	pb.Cluster_MemberList_FullMethodName:    someone,

	pb.Maintenance_Alarm_FullMethodName:      rootRole, // someone may list alarms, see levelOf
	pb.Maintenance_Status_FullMethodName:     someone,
	pb.Maintenance_Defragment_FullMethodName: rootRole,
	pb.Maintenance_Hash_FullMethodName:       rootRole,
	pb.Maintenance_HashKV_FullMethodName:     rootRole,
	pb.Maintenance_Snapshot_FullMethodName:   rootRole,
	pb.Maintenance_MoveLeader_FullMethodName: rootRole,
	pb.Maintenance_Downgrade_FullMethodName:  rootRole,

	// As in etcd, anybody may ask whether access is enabled, and authenticate. UserGet and RoleGet check by themselves. The
	// others are checked when they are applied, too.
	pb.Auth_AuthStatus_FullMethodName:           nothing,
	pb.Auth_Authenticate_FullMethodName:         nothing,
	pb.Auth_UserGet_FullMethodName:              nothing,
	pb.Auth_RoleGet_FullMethodName:              nothing,
	pb.Auth_AuthEnable_FullMethodName:           rootRole,
	pb.Auth_AuthDisable_FullMethodName:          rootRole,
	pb.Auth_UserAdd_FullMethodName:              rootRole,
	pb.Auth_UserList_FullMethodName:             rootRole,
	pb.Auth_UserDelete_FullMethodName:           rootRole,
	pb.Auth_UserChangePassword_FullMethodName:   rootRole,
	pb.Auth_UserGrantRole_FullMethodName:        rootRole,
	pb.Auth_UserRevokeRole_FullMethodName:       rootRole,
	pb.Auth_RoleAdd_FullMethodName:              rootRole,
	pb.Auth_RoleList_FullMethodName:             rootRole,
	pb.Auth_RoleDelete_FullMethodName:           rootRole,
	pb.Auth_RoleGrantPermission_FullMethodName:  rootRole,
	pb.Auth_RoleRevokePermission_FullMethodName: rootRole,

	leasekeeperv1.Leasekeeper_Acquire_FullMethodName:     further,
	leasekeeperv1.Leasekeeper_Hold_FullMethodName:        further,
	leasekeeperv1.Leasekeeper_Renew_FullMethodName:       further,
	leasekeeperv1.Leasekeeper_Release_FullMethodName:     further,
	leasekeeperv1.Leasekeeper_Announce_FullMethodName:    further,
	leasekeeperv1.Leasekeeper_Finish_FullMethodName:      further,
	leasekeeperv1.Leasekeeper_Get_FullMethodName:         further,
	leasekeeperv1.Leasekeeper_List_FullMethodName:        further,
	leasekeeperv1.Leasekeeper_Watch_FullMethodName:       further,
	leasekeeperv1.Leasekeeper_History_FullMethodName:     further,
	leasekeeperv1.Leasekeeper_Revoke_FullMethodName:      further,
	leasekeeperv1.Leasekeeper_Pin_FullMethodName:         further,
	leasekeeperv1.Leasekeeper_Unpin_FullMethodName:       further,
	leasekeeperv1.Leasekeeper_Transfer_FullMethodName:    further,
	leasekeeperv1.Leasekeeper_Prefer_FullMethodName:      further,
	leasekeeperv1.Leasekeeper_GetMark_FullMethodName:     further,
	leasekeeperv1.Leasekeeper_RaiseMark_FullMethodName:   further,
	leasekeeperv1.Leasekeeper_ReplaceMark_FullMethodName: further,

	leasekeeperv1.Leasekeeper_GrantRight_FullMethodName:  rootRole,
	leasekeeperv1.Leasekeeper_RevokeRight_FullMethodName: rootRole,
	leasekeeperv1.Leasekeeper_ListRights_FullMethodName:  someone, // it shows users their own roles
	leasekeeperv1.Leasekeeper_Audit_FullMethodName:       rootRole,

	leasekeeperv1.Leasekeeper_SetQuota_FullMethodName:    rootRole,
	leasekeeperv1.Leasekeeper_GetQuota_FullMethodName:    rootRole,
	leasekeeperv1.Leasekeeper_ListUnowned_FullMethodName: rootRole,

	leasekeeperv1.Members_Get_FullMethodName:                someone,
	leasekeeperv1.Members_List_FullMethodName:               someone,
	leasekeeperv1.Members_TransferLeadership_FullMethodName: rootRole,
	leasekeeperv1.Members_Found_FullMethodName:              rootRole,
	leasekeeperv1.Members_Snapshot_FullMethodName:           rootRole,

	healthpb.Health_Check_FullMethodName: nothing,
	healthpb.Health_List_FullMethodName:  nothing,
	healthpb.Health_Watch_FullMethodName: nothing,

	reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName:      nothing,
	reflectionalphapb.ServerReflection_ServerReflectionInfo_FullMethodName: nothing,
}

// Knows reports whether this package decides about a method.
func Knows(method string) bool { return methods[method] != unknown }

// levelOf returns what a request needs.
func levelOf(method string, req any) needs {
	if alarm, ok := req.(*pb.AlarmRequest); ok && alarm.GetAction() == pb.AlarmRequest_GET {
		return someone
	}
	return methods[method]
}

// Method decides whether a request may be served, as far as its method decides. req is nil for a stream.
func (g *Guard) Method(ctx context.Context, method string, req any) error {
	switch levelOf(method, req) {
	case nothing, further:
		return nil
	case someone:
		return g.admit(ctx, true, identified)
	case rootRole:
		return g.admit(ctx, true, root)
	}
	return g.admit(ctx, true, func(p *access.Policy, _ access.Caller) error {
		if p.Enabled() {
			return access.ErrPermissionDenied
		}
		return nil
	})
}
