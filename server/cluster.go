package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/forwarding"
	"github.com/leasekeeper/leasekeeper/server/internal/guard"
	"github.com/leasekeeper/leasekeeper/server/internal/login"
)

// DefaultReadTimeout is the default of [Cluster.ReadTimeout].
const DefaultReadTimeout = replica.DefaultReadTimeout

// Cluster describes to a [Server] the cluster that its member belongs to. The member itself knows the other members.
type Cluster struct {
	// Peers are the connections between members.
	Peers Peers
	// ReadTimeout is how long a request waits for a leader. The node must have the same value.
	ReadTimeout time.Duration
	// InsecurePeers allows [Config.ClientCAFile] although Peers are open. Clients that reach the port for members then
	// need no certificate.
	InsecurePeers bool
}

// ErrOpenPeers reports that clients need a certificate at the port for clients, and none at the port for members.
var ErrOpenPeers = errors.New("--client-ca has clients show a certificate, but the port for members is reachable from other machines " +
	"and has no TLS, so any program that reaches it can read and change everything without one: give --peer-cert, --peer-key and --peer-ca, " +
	"listen for members on this machine only (--peer-listen), or accept this with --insecure-peers")

// Peers are the connections between members.
type Peers interface {
	// Conn returns the connection to another member, nil if there is no such member.
	Conn(member uint64) grpc.ClientConnInterface
	// RegisterService offers a service to other members. Only [New] calls it.
	RegisterService(desc *grpc.ServiceDesc, impl any)
	// Status returns the state of the connection to each other member.
	Status() []peer.PeerStatus
	// Open reports whether programs on other machines can act as a member without a certificate.
	Open() bool
}

var _ Peers = (*peer.Transport)(nil)

func (g *Cluster) validate() error {
	if g == nil {
		return nil
	}
	if g.Peers == nil {
		return errors.New("the cluster has no connections between its members: set Cluster.Peers")
	}
	if g.ReadTimeout < 0 {
		return fmt.Errorf("the read timeout is %v, not a positive length of time", g.ReadTimeout)
	}
	return nil
}

// checkPeers returns [ErrOpenPeers] if the configuration requires certificates of clients, but not of members.
func (c Config) checkPeers() error {
	if g := c.Cluster; g != nil && g.Peers != nil && c.ClientCAFile != "" && !g.InsecurePeers && g.Peers.Open() {
		return ErrOpenPeers
	}
	return nil
}

// withDefaults returns a copy in which every zero field has its default; nil for nil.
func (g *Cluster) withDefaults() *Cluster {
	if g == nil {
		return nil
	}
	c := *g
	setDefault(&c.ReadTimeout, DefaultReadTimeout)
	return &c
}

// services returns the services for clients. Some of them also serve other members.
func (s *Server) services() []service {
	var all []service
	for _, svc := range s.etcd.Services() {
		all = append(all, service{svc.Desc, svc.Impl, svc.Peers})
	}
	return append(all,
		service{&leasekeeperv1.Leasekeeper_ServiceDesc, s.names, true},
		service{&leasekeeperv1.Members_ServiceDesc, &membersService{s: s}, true},
	)
}

// describeMember returns a member of the list with what it said of itself.
func (s *Server) describeMember(m roster.Member) roster.Member {
	if s.reports == nil {
		m.Name, m.ClientURLs = s.cfg.Name, s.clientURLs()
		return m
	}
	return s.reports.complete(m)
}

// listed returns the members of the cluster as this member has applied them, in the order in which they are shown: by
// names, and those without one last.
func (s *Server) listed() []roster.Member {
	members, _, err := s.clusterNode.Members(s.life.Context())
	if err != nil {
		return nil
	}
	members = slices.Clone(members)
	slices.SortStableFunc(members, func(a, b roster.Member) int {
		if (a.Name == "") != (b.Name == "") {
			return strings.Compare(b.Name, a.Name)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return members
}

// etcdCluster is the cluster as etcd's API uses it.
type etcdCluster struct {
	*forwarding.Forwarder
	clusterNode
}

func (s *Server) newEtcd() *etcdapi.API {
	c := etcdapi.Config{
		Member: guard.Keys{Member: s.member, Guard: s.guard}, Metrics: s.metrics, Log: s.log, Lifetime: s.life,
		Guard: s.guard, Tokens: s.guard.Tokens(), Passwords: login.NewPasswords(s.cfg.BcryptCost), Watchers: s.limits.watchers, Bulk: s.bulk,
		Serving: s.serving, Describe: s.describeMember, Room: s.spareRoom,
		MaxRequestBytes: s.cfg.MaxRequestBytes, MaxTxnOps: s.cfg.MaxTxnOps, MaxRenewals: s.cfg.MaxRenewals, ProgressInterval: s.cfg.ProgressInterval,
	}
	if s.forwarder != nil {
		c.Cluster = etcdCluster{s.forwarder, s.clusterNode}
	}
	return etcdapi.New(c)
}

type service struct {
	desc *grpc.ServiceDesc
	impl any
	// peers is set if other members use the service too.
	peers bool
}

// registerForPeers offers services to the other members.
func (s *Server) registerForPeers() {
	if s.cfg.Cluster == nil {
		return
	}
	for _, svc := range s.services() {
		if svc.peers {
			s.cfg.Cluster.Peers.RegisterService(s.incoming.Service(svc.desc), svc.impl)
		}
	}
}

// connectForwarding makes both sides of forwarding, unless the member is alone.
func (s *Server) connectForwarding() (err error) {
	if s.cfg.Cluster == nil {
		return nil
	}
	s.forwarder, err = forwarding.New(forwarding.Config{
		Member: s.member, Peers: s.cfg.Cluster.Peers, ReadTimeout: s.cfg.Cluster.ReadTimeout,
		Lifetime: s.life, Places: s.limits.places, ReadsOnly: etcdapi.ReadsOnly, Refused: peer.Refused, Caller: s.guard.Forward,
	})
	if err != nil {
		return err
	}
	s.incoming = forwarding.NewIncoming(forwarding.IncomingConfig{
		Unary: s.limited, Stream: s.limitedStream, Answer: s.toStatus, Changes: s.forwarder.Changes, Applied: s.clusterNode.Applied,
	})
	return nil
}

// clusterNode is what this package uses of a node in a cluster, in addition to [member].
type clusterNode interface {
	// Leader returns the leader as far as the node knows, 0 if it knows none.
	Leader() (id, term uint64)
	// AwaitLeader waits until there is a leader, at most for the read timeout.
	AwaitLeader(context.Context) (uint64, error)
	// Applied returns the index of the last log entry that this member has applied.
	Applied() uint64
	// AwaitApplied waits until this member has applied an entry, at most for the read timeout.
	AwaitApplied(ctx context.Context, index uint64) bool
	// HandOver transfers leadership to another member. 0 means the member with the most complete log.
	HandOver(ctx context.Context, to uint64) error
	// Found makes this new member found its cluster without the missing members.
	Found(ctx context.Context) error
	// Cluster returns the state of the cluster as this member sees it.
	Cluster(context.Context) (replica.ClusterStatus, error)
	// Members returns the members of the cluster as this member has applied them.
	Members(context.Context) ([]roster.Member, replica.Header, error)
	// Listed reports whether the cluster has a list of members in its log.
	Listed() bool
	// ChangeMembers changes the members of the cluster. Only the leader can do this.
	ChangeMembers(context.Context, roster.Change) ([]roster.Member, replica.Header, error)
}
