package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/forwarding"
)

// DefaultReadTimeout is the default of [Cluster.ReadTimeout].
const DefaultReadTimeout = replica.DefaultReadTimeout

// A Cluster is what a [Server] has to know of the group that its member is one of.
type Cluster struct {
	// Members are all of the group, this one among them, in the order in which they are shown.
	Members []ClusterMember
	// Peers are the connections between members.
	Peers Peers
	// ReadTimeout is how long a request waits for a leader that takes it on. It is that of the node.
	ReadTimeout time.Duration
	// InsecurePeers allows [Config.ClientCAFile] although Peers are open: every client that reaches the port for
	// members then needs no certificate.
	InsecurePeers bool
}

// ErrOpenPeers says that a client needs a certificate at one port and none at the other.
var ErrOpenPeers = errors.New("--client-ca has clients show a certificate, but the port for members is reachable from other machines " +
	"and has no TLS, so whoever reaches it can read and change everything without one: give --peer-cert, --peer-key and --peer-ca, " +
	"listen for members on this machine only (--peer-listen), or accept this with --insecure-peers")

// A ClusterMember is one member of a group.
type ClusterMember struct {
	ID   uint64
	Name string
	// PeerURL is where other members reach it.
	PeerURL string
}

// Peers are connections between members, on which one asks another what only that one can answer.
type Peers interface {
	// Conn returns the connection to another member, nil if there is no such member.
	Conn(member uint64) grpc.ClientConnInterface
	// RegisterService offers a service to other members. It is called by [New] only.
	RegisterService(desc *grpc.ServiceDesc, impl any)
	// Status tells how it is with the other members.
	Status() []peer.PeerStatus
	// Open says whether programs on other machines can speak as a member without proof.
	Open() bool
}

var _ Peers = (*peer.Transport)(nil)

func (g *Cluster) validate() error {
	if g == nil {
		return nil
	}
	if g.Peers == nil {
		return errors.New("a group needs connections between its members")
	}
	seen := make(map[uint64]bool)
	for _, m := range g.Members {
		if m.ID == 0 || seen[m.ID] {
			return fmt.Errorf("the member %q of the group has the id %x, which is not one of its own", m.Name, m.ID)
		}
		seen[m.ID] = true
	}
	if g.ReadTimeout < 0 {
		return fmt.Errorf("the read timeout is %v, not a positive length of time", g.ReadTimeout)
	}
	return nil
}

// checkPeers refuses to ask clients for a certificate where a process that speaks as a member needs none.
func (c Config) checkPeers() error {
	if g := c.Cluster; g != nil && g.Peers != nil && c.ClientCAFile != "" && !g.InsecurePeers && g.Peers.Open() {
		return ErrOpenPeers
	}
	return nil
}

// withDefaults returns a copy.
func (g *Cluster) withDefaults() *Cluster {
	if g == nil {
		return nil
	}
	c := *g
	setDefault(&c.ReadTimeout, DefaultReadTimeout)
	return &c
}

// member returns the member of that id.
func (g *Cluster) member(id uint64) (ClusterMember, bool) {
	for _, m := range g.Members {
		if m.ID == id {
			return m, true
		}
	}
	return ClusterMember{}, false
}

// services are those that clients and other members are served with.
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

// members returns the members as clients of etcd's API see them.
func (s *Server) members() []etcdapi.ListedMember {
	own := s.member.Header().MemberID
	if s.peers == nil {
		return []etcdapi.ListedMember{{ID: own, Name: s.cfg.Name, ClientURLs: s.clientURLs()}}
	}
	var all []etcdapi.ListedMember
	for _, m := range s.cfg.Cluster.Members {
		urls := s.peers.known(m.ID)
		if m.ID == own {
			urls = s.clientURLs()
		}
		all = append(all, etcdapi.ListedMember{ID: m.ID, Name: m.Name, PeerURLs: []string{m.PeerURL}, ClientURLs: urls})
	}
	return all
}

// etcdCluster is the group as etcd's API uses it.
type etcdCluster struct {
	*forwarding.Forwarder
	leading
}

func (s *Server) newEtcd() *etcdapi.API {
	c := etcdapi.Config{
		Member: s.member, Metrics: s.metrics, Log: s.log, Lifetime: s.life, Watchers: s.limits.watchers, Bulk: s.bulk,
		Serving: s.serving, Members: s.members,
		MaxRequestBytes: s.cfg.MaxRequestBytes, MaxRenewals: s.cfg.MaxRenewals, ProgressInterval: s.cfg.ProgressInterval,
	}
	if s.forwarder != nil {
		c.Cluster = etcdCluster{s.forwarder, s.leading}
	}
	return etcdapi.New(c)
}

type service struct {
	desc *grpc.ServiceDesc
	impl any
	// peers is set if other members use it, too.
	peers bool
}

// registerForPeers offers the other members what they ask this one for.
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

// connect makes both sides of forwarding, unless the member is alone.
func (s *Server) connect() (err error) {
	if s.cfg.Cluster == nil {
		return nil
	}
	s.forwarder, err = forwarding.New(forwarding.Config{
		Member: s.member, Peers: s.cfg.Cluster.Peers, ReadTimeout: s.cfg.Cluster.ReadTimeout,
		Lifetime: s.life, Places: s.limits.places, ReadsOnly: etcdapi.ReadsOnly,
	})
	if err != nil {
		return err
	}
	s.incoming = forwarding.NewIncoming(forwarding.IncomingConfig{
		Unary: s.limited, Stream: s.limitedStream, Answer: s.answerTo, Changes: s.forwarder.Changes, Applied: s.leading.Applied,
	})
	return nil
}

// leading is what this package uses of a node that is a member of a group, besides [member].
type leading interface {
	// Leader returns who leads as far as the node knows, 0 if it knows of nobody.
	Leader() (id, term uint64)
	// AwaitLeader waits, for the read timeout at most, until somebody leads.
	AwaitLeader(context.Context) (uint64, error)
	// Applied returns the log entry that the state of this member is at.
	Applied() uint64
	// AwaitApplied waits, for the read timeout at most, until the state of this member has an entry.
	AwaitApplied(ctx context.Context, index uint64) bool
	// HandOver has another member lead; 0 is whichever is furthest.
	HandOver(ctx context.Context, to uint64) error
	// Found has this member, which is new, found its cluster without the members that are missing.
	Found(ctx context.Context) error
	// Cluster tells how the group looks from here.
	Cluster(context.Context) (replica.ClusterStatus, error)
}
