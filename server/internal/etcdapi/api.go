package etcdapi

import (
	"context"
	"log/slog"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/etcdfile"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/login"
)

// Version is the version of etcd's API that this package implements.
const Version = "3.7.0"

// clusterVersion is Version in the form of etcd's cluster version, without the patch level.
const clusterVersion = "3.7"

// Member is what an [API] uses of its member.
type Member interface {
	Header() replica.Header
	keyMember
	leaseMember
	clusterMember
	maintenanceMember
	accessMember
}

// keyMember is what KV, Watch, Lock and Election use.
type keyMember interface {
	Put(context.Context, keyspace.PutRequest) (replica.Header, keyspace.PutResult, error)
	DeleteRange(context.Context, keyspace.DeleteRequest) (replica.Header, keyspace.DeleteResult, error)
	Range(ctx context.Context, req keyspace.RangeRequest, serializable bool) (replica.Header, keyspace.RangeResult, error)
	Txn(ctx context.Context, req keyspace.TxnRequest, serializable bool) (replica.Header, keyspace.TxnResult, error)
	Compact(ctx context.Context, rev int64, physical bool) (replica.Header, error)
	NewWatchStream(keyspace.StreamLimits) *keyspace.Stream
}

// leaseMember is what Lease and Lock use.
type leaseMember interface {
	Grant(context.Context, lessor.ID, time.Duration) (replica.Header, replica.Granted, error)
	Revoke(context.Context, lessor.ID) (replica.Header, error)
	Renew(ctx context.Context, ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error
	TimeToLive(ctx context.Context, id lessor.ID, items bool) (replica.Header, replica.LeaseStatus, error)
	Leases(context.Context) (replica.Header, []lessor.End, error)
}

// maintenanceMember is what Maintenance uses.
type maintenanceMember interface {
	Status(context.Context) (node.Status, error)
	Shortage() replica.Shortage
	OrderShortage(ctx context.Context, raised bool) (before, after replica.Shortage, err error)
	HashKeys(ctx context.Context, revision int64) (replica.Header, keyspace.HashResult, error)
	HashHistory(ctx context.Context) (replica.Header, keyspace.HashResult, error)
	Defragment(context.Context) error
	EtcdSnapshot(context.Context, []etcdfile.Member) (*node.EtcdSnapshot, error)
}

// Cluster is what an [API] uses of its member's cluster.
type Cluster interface {
	// Leads reports whether this member leads as far as it knows.
	Leads() bool
	// HandOver transfers leadership to another member.
	HandOver(ctx context.Context, to uint64) error
	// Unary serves a request at the leader. handle serves it if this member leads.
	Unary(ctx context.Context, method string, req any, handle grpc.UnaryHandler) (any, error)
	// Ask calls another member about itself. If that member does not answer, why is the reason, for people. Otherwise
	// why is "".
	Ask(ctx context.Context, member uint64, call func(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) error) (why string, err error)
}

// Metrics counts what an [API] does.
type Metrics interface {
	// OpenWatch and OpenKeepAlive count a stream as open until closed is called.
	OpenWatch() (closed func())
	OpenKeepAlive() (closed func())
	// AddWatchers adds n to the number of open watchers.
	AddWatchers(n int64)
	// Refuse counts a refusal for one of [Reasons].
	Refuse(reason string)
}

// Config is what an [API] needs.
type Config struct {
	Member   Member
	Cluster  Cluster // nil if the member is alone
	Metrics  Metrics
	Log      *slog.Logger
	Lifetime *lifetime.Lifetime
	Watchers *admission.Watchers
	Bulk     *keyspace.Turns // of work that must leave processors free for other work

	Guard     Guard
	Passwords *login.Passwords
	Tokens    login.Tokens

	// Room has the memory for large responses of a watch stream. The caller calls release when the stream has ended.
	Room func(context.Context) (room keyspace.Room, release func())
	// Serving returns nil if the member would accept a request now, else the reason.
	Serving func() error
	// Describe returns a member of the list with what this server knows of it besides: its name and its URLs.
	Describe func(roster.Member) roster.Member

	MaxRequestBytes  int           // bound of a write
	MaxTxnOps        int           // bound of keyspace.TxnRequest.Size
	MaxRenewals      int           // bound of the unanswered renewals on one keep-alive stream
	ProgressInterval time.Duration // time after which an idle watcher that asks for progress is notified
}

// API implements the services of etcd's API. Its methods are safe for concurrent use.
type API struct {
	cfg    Config
	queues admission.Counted[string, queue] // of claims by Lock and Election, by key NAME/LEASE
}

// New makes an API.
func New(c Config) *API { return &API{cfg: c} }

// Service is one service of an [API].
type Service struct {
	Desc *grpc.ServiceDesc
	Impl any
	// Peers is set if other members use the service too.
	Peers bool
}

// Services returns all services.
func (a *API) Services() []Service {
	return []Service{
		{&pb.KV_ServiceDesc, a.KV(), true},
		{&pb.Lease_ServiceDesc, &leaseService{API: a}, true},
		{&pb.Watch_ServiceDesc, &watchService{API: a}, false},
		{&pb.Cluster_ServiceDesc, &clusterService{API: a}, true},
		{&pb.Maintenance_ServiceDesc, &maintenanceService{API: a}, true},
		{&pb.Auth_ServiceDesc, &authService{API: a}, true},
		{&v3lockpb.Lock_ServiceDesc, &lockService{API: a}, true},
		{&v3electionpb.Election_ServiceDesc, &electionService{API: a}, true},
	}
}

// KV returns the KV service.
func (a *API) KV() pb.KVServer { return &kvService{API: a} }

// Queues returns the number of keys for which claims of Lock and Election are in progress.
func (a *API) Queues() int { return a.queues.Len() }

// findMember returns the member with an id.
func (a *API) findMember(ctx context.Context, id uint64) (m roster.Member, found bool, err error) {
	members, _, err := a.cfg.Member.Members(ctx)
	if i := slices.IndexFunc(members, func(m roster.Member) bool { return m.ID == id }); i >= 0 {
		return members[i], true, err
	}
	return roster.Member{}, false, err
}

// Waits reports whether a unary request waits for other clients, for as long as its own client wants.
func Waits(method string) bool {
	return method == v3lockpb.Lock_Lock_FullMethodName || method == v3electionpb.Election_Campaign_FullMethodName
}

func header(h replica.Header) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID, Revision: h.Revision, RaftTerm: h.Term}
}

// headerAt returns the header of an answer that was read at a revision. If the revision is 0, it is the member's.
func headerAt(h replica.Header, revision int64) *pb.ResponseHeader {
	if revision > 0 {
		h.Revision = revision
	}
	return header(h)
}
