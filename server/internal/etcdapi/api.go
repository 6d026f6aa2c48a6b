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
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// Version is the level of etcd's API that this package speaks.
const Version = "3.7.0"

// clusterVersion is the same in the form in which etcd tells what all members of a cluster speak.
const clusterVersion = "3.7"

// Member is what an [API] uses of its member.
type Member interface {
	Header() replica.Header
	keyMember
	leaseMember
	maintenanceMember
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
	Hash(ctx context.Context, revision int64) (replica.Header, keyspace.HashResult, error)
	Defragment(context.Context) error
	Snapshot(context.Context) (*datadir.Snapshot, error)
}

// Cluster is what an [API] uses of the cluster that its member is one of.
type Cluster interface {
	// Leads reports whether this member leads as far as it knows.
	Leads() bool
	// HandOver has another member lead.
	HandOver(ctx context.Context, to uint64) error
	// Unary serves a request where the leader is; handle serves it here.
	Unary(ctx context.Context, method string, req any, handle grpc.UnaryHandler) (any, error)
	// Ask calls another member about itself. why says to people why it did not answer, "" if it did.
	Ask(ctx context.Context, member uint64, call func(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) error) (why string, err error)
}

// ListedMember is one member in the list of members.
type ListedMember struct {
	ID         uint64
	Name       string
	PeerURLs   []string
	ClientURLs []string // nil while the member was never heard
}

// Metrics counts what an [API] does.
type Metrics interface {
	// OpenWatch and OpenKeepAlive count a stream as open until closed is called.
	OpenWatch() (closed func())
	OpenKeepAlive() (closed func())
	// AddWatchers counts n watchers more.
	AddWatchers(n int64)
	// Refuse counts a refusal for one of [Reasons].
	Refuse(reason string)
}

// Config is what an [API] is made of.
type Config struct {
	Member   Member
	Cluster  Cluster // nil if the member is alone
	Metrics  Metrics
	Log      *slog.Logger
	Lifetime *lifetime.Lifetime
	Watchers *admission.Watchers
	Bulk     *keyspace.Turns // of work that must leave processors to others

	// Serving returns nil if a request would be taken now, else why not.
	Serving func() error
	// Members returns all members in the order in which they are shown.
	Members func() []ListedMember

	MaxRequestBytes  int           // of a write
	MaxRenewals      int           // under way on one keep-alive stream
	ProgressInterval time.Duration // after which an idle watcher that asks for progress is notified
}

// API is the services of etcd's API.
type API struct {
	cfg    Config
	queues admission.Counted[string, queue] // of claims of the services Lock and Election, by key
}

// New makes the services.
func New(c Config) *API {
	c.Member = clientNaming{c.Member}
	return &API{cfg: c}
}

// Service is one of them.
type Service struct {
	Desc *grpc.ServiceDesc
	Impl any
	// Peers is set if other members use it, too.
	Peers bool
}

// Services returns all services.
func (a *API) Services() []Service {
	return []Service{
		{&pb.KV_ServiceDesc, a.KV(), true},
		{&pb.Lease_ServiceDesc, &leaseService{API: a}, true},
		{&pb.Watch_ServiceDesc, &watchService{API: a}, false},
		{&pb.Cluster_ServiceDesc, &clusterService{API: a}, false},
		{&pb.Maintenance_ServiceDesc, &maintenanceService{API: a}, true},
		{&pb.Auth_ServiceDesc, &authService{API: a}, false},
		{&v3lockpb.Lock_ServiceDesc, &lockService{API: a}, true},
		{&v3electionpb.Election_ServiceDesc, &electionService{API: a}, true},
	}
}

// KV returns the service KV.
func (a *API) KV() pb.KVServer { return &kvService{API: a} }

// Queues returns for how many keys claims of Lock and Election are under way.
func (a *API) Queues() int { return a.queues.Len() }

// isMember reports whether there is a member of that id.
func (a *API) isMember(id uint64) bool {
	return slices.ContainsFunc(a.cfg.Members(), func(m ListedMember) bool { return m.ID == id })
}

// Waits reports whether a request with one answer waits for others, for as long as its client wants.
func Waits(method string) bool {
	return method == v3lockpb.Lock_Lock_FullMethodName || method == v3electionpb.Election_Campaign_FullMethodName
}

func header(h replica.Header) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID, Revision: h.Revision, RaftTerm: h.Term}
}

// headerAt is header for an answer that knows better which revision it is of.
func headerAt(h replica.Header, revision int64) *pb.ResponseHeader {
	if revision > 0 {
		h.Revision = revision
	}
	return header(h)
}
