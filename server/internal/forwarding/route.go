package forwarding

import (
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
)

// route says how to forward a method that only the leader serves. A follower forwards the whole request instead of its
// steps. The requests of one client thereby meet at one member.
type route struct {
	method string
	// changes is set if a request whose answer is lost may have changed something.
	changes bool
	// stays is set if a request waits for others. It continues to wait at the former leader when another member leads.
	stays bool
	// audited is set if a request may have a record in the audit log. Then the leader learns from where it came.
	audited bool

	request, response protoreflect.MessageType
}

// leaderOnly are the methods that only the leader serves. Every member serves the others itself. Ranges and renewals
// have a shorter path to the leader. Watches, maintenance and health concern this member.
var leaderOnly = []route{
	{method: pb.KV_Put_FullMethodName, changes: true},
	{method: pb.KV_DeleteRange_FullMethodName, changes: true},
	{method: pb.KV_Txn_FullMethodName, changes: true}, // except those that only read, see routeOf
	{method: pb.KV_Compact_FullMethodName, changes: true, audited: true},
	{method: pb.Lease_LeaseGrant_FullMethodName, changes: true},
	{method: pb.Lease_LeaseRevoke_FullMethodName, changes: true, audited: true},
	{method: pb.Lease_LeaseTimeToLive_FullMethodName},
	{method: pb.Lease_LeaseLeases_FullMethodName},
	{method: pb.Cluster_MemberAdd_FullMethodName, changes: true, audited: true},
	{method: pb.Cluster_MemberRemove_FullMethodName, changes: true, audited: true},
	{method: pb.Cluster_MemberUpdate_FullMethodName, changes: true, audited: true},
	{method: pb.Cluster_MemberPromote_FullMethodName, changes: true, audited: true},

	{method: pb.Auth_Authenticate_FullMethodName, changes: true},
	{method: pb.Auth_AuthEnable_FullMethodName, changes: true, audited: true},
	{method: pb.Auth_AuthDisable_FullMethodName, changes: true, audited: true},
	{method: pb.Auth_UserAdd_FullMethodName, changes: true, audited: true},
	{method: pb.Auth_UserDelete_FullMethodName, changes: true, audited: true},
	{method: pb.Auth_UserChangePassword_FullMethodName, changes: true, audited: true},
	{method: pb.Auth_UserGrantRole_FullMethodName, changes: true, audited: true},
	{method: pb.Auth_UserRevokeRole_FullMethodName, changes: true, audited: true},
	{method: pb.Auth_RoleAdd_FullMethodName, changes: true, audited: true},
	{method: pb.Auth_RoleDelete_FullMethodName, changes: true, audited: true},
	{method: pb.Auth_RoleGrantPermission_FullMethodName, changes: true, audited: true},
	{method: pb.Auth_RoleRevokePermission_FullMethodName, changes: true, audited: true},

	{method: v3lockpb.Lock_Lock_FullMethodName, changes: true, stays: true},
	{method: v3lockpb.Lock_Unlock_FullMethodName, changes: true},
	{method: v3electionpb.Election_Campaign_FullMethodName, changes: true, stays: true},
	{method: v3electionpb.Election_Proclaim_FullMethodName, changes: true},
	{method: v3electionpb.Election_Resign_FullMethodName, changes: true},

	{method: leasekeeperv1.Leasekeeper_Release_FullMethodName, changes: true},
	{method: leasekeeperv1.Leasekeeper_Get_FullMethodName},
	{method: leasekeeperv1.Leasekeeper_List_FullMethodName},
	{method: leasekeeperv1.Leasekeeper_History_FullMethodName},
	{method: leasekeeperv1.Leasekeeper_Revoke_FullMethodName, changes: true, audited: true},
	{method: leasekeeperv1.Leasekeeper_Pin_FullMethodName, changes: true, audited: true},
	{method: leasekeeperv1.Leasekeeper_Unpin_FullMethodName, changes: true, audited: true},
	{method: leasekeeperv1.Leasekeeper_Transfer_FullMethodName, changes: true, audited: true},
	{method: leasekeeperv1.Leasekeeper_Announce_FullMethodName, changes: true},
	{method: leasekeeperv1.Leasekeeper_Finish_FullMethodName, changes: true},
	{method: leasekeeperv1.Leasekeeper_GetMark_FullMethodName},
	{method: leasekeeperv1.Leasekeeper_RaiseMark_FullMethodName, changes: true},
	{method: leasekeeperv1.Leasekeeper_ReplaceMark_FullMethodName, changes: true, audited: true},
	{method: leasekeeperv1.Leasekeeper_Prefer_FullMethodName, changes: true, audited: true},
	{method: leasekeeperv1.Leasekeeper_GrantRight_FullMethodName, changes: true, audited: true},
	{method: leasekeeperv1.Leasekeeper_RevokeRight_FullMethodName, changes: true, audited: true},
	{method: leasekeeperv1.Leasekeeper_SetQuota_FullMethodName, changes: true, audited: true},
	{method: leasekeeperv1.Members_TransferLeadership_FullMethodName, changes: true},

	// Streams end when another member leads.
	{method: leasekeeperv1.Leasekeeper_Acquire_FullMethodName, changes: true},
	{method: leasekeeperv1.Leasekeeper_Hold_FullMethodName, changes: true},
	{method: leasekeeperv1.Leasekeeper_Watch_FullMethodName},
}

// newRoutes returns the routes by method.
func newRoutes() (map[string]*route, error) {
	routes := make(map[string]*route, len(leaderOnly))
	for _, r := range leaderOnly {
		name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(r.method, "/"), "/", "."))
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			return nil, fmt.Errorf("server: %s: %w", name, err)
		}
		method, ok := found.(protoreflect.MethodDescriptor)
		if !ok {
			return nil, fmt.Errorf("server: %s is no method", name)
		}
		if r.request, err = protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName()); err != nil {
			return nil, fmt.Errorf("server: %s: %w", name, err)
		}
		if r.response, err = protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName()); err != nil {
			return nil, fmt.Errorf("server: %s: %w", name, err)
		}
		routes[r.method] = &r
	}
	return routes, nil
}

// routeOf returns the route of a request. It returns nil if every member serves it.
func (f *Forwarder) routeOf(method string, req any) *route {
	r := f.routes[method]
	if r != nil && f.readsOnly(req) {
		return nil
	}
	return r
}

func (r *route) newRequest() proto.Message  { return r.request.New().Interface() }
func (r *route) newResponse() proto.Message { return r.response.New().Interface() }
