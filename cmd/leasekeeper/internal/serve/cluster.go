package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/server"
)

const (
	// handOverLimit bounds how long a stopping leader tries to hand over leadership.
	handOverLimit = 3 * time.Second
	// frameReserve is the largest part of a message between members that is not a request, in bytes.
	frameReserve = 1 << 20
)

// clusterMember holds the parts of a server that only a member of a cluster has.
type clusterMember struct {
	plan      *settings.Cluster
	log       *slog.Logger
	socket    *peer.Socket
	transport *peer.Transport // nil before connect
}

// config returns the configuration of the cluster for the node.
func (m *clusterMember) config() *node.ClusterConfig {
	p := m.plan
	c := &node.ClusterConfig{
		Self: p.Self.ID, ClusterID: p.ID, Transport: m.socket, Reconfigured: m.socket.SetMembers,
		ElectionTimeout: p.Election, MasterLease: p.Lease, ReadTimeout: p.Patience, Drift: p.Drift,
	}
	for _, member := range p.Members {
		c.Members = append(c.Members, member.ID)
		c.Founders = append(c.Founders, m.founder(member))
	}
	if len(p.Members) == 0 {
		c.Founders = []roster.Member{m.founder(p.Self)}
	}
	if len(p.Join) > 0 {
		c.Join = m.join
	}
	return c
}

func (m *clusterMember) founder(f settings.Member) roster.Member {
	return roster.Member{ID: f.ID, Name: f.Name, PeerURLs: []string{m.plan.Scheme() + f.Address}}
}

func (m *clusterMember) certificates() peer.CertificateFiles {
	return peer.CertificateFiles{Cert: m.plan.TLS[0], Key: m.plan.TLS[1], CA: m.plan.TLS[2], CRL: m.plan.CRL}
}

// join asks the members of a cluster which of them this server is.
func (m *clusterMember) join(ctx context.Context) (node.Invitation, error) {
	p := m.plan
	m.log.Info("asks members of the cluster which one this server is", "members", p.Join, "address", p.Self.Address)
	joined, err := peer.Join(ctx, peer.Joining{
		Ask: p.Join, Address: p.Self.Address, Files: m.certificates(), Drift: p.Drift, MasterLease: p.Lease, Logger: m.log,
	})
	return node.Invitation(joined), err
}

// connect listens on the port for members and connects the transport with the node. The caller starts and closes the
// transport.
func (m *clusterMember) connect(node *node.Node, requestBytes int) error {
	self := node.Header()
	listener, err := net.Listen("tcp", m.plan.Listen)
	if err != nil {
		return errors.Join(refusePort(m.plan.Listen, "--peer-listen"), err) // the error of refusePort says what to do
	}
	m.transport, err = peer.New(peer.Config{
		Self: self.MemberID, ClusterID: self.ClusterID, Incarnation: node.Incarnation(), InUse: node.VersionInUse, Listed: node.ConnectedByList,
		Members: map[uint64]string{self.MemberID: m.plan.Self.Address}, Listener: listener, Files: m.certificates(),
		Drift: m.plan.Drift, MasterLease: m.plan.Lease,
		Receive: node.Receive, Connected: node.Connected, ReceiveState: node.ReceiveState, Unreachable: node.Unreachable,
		MaxFrame:       max(peer.DefaultMaxFrame, 2*requestBytes+frameReserve),
		MaxConnections: m.plan.Connections,
		Logger:         m.log,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	m.socket.Connect(m.transport)
	members := m.socket.Members()
	m.log.Info("member of a cluster", "name", m.plan.Self.Name, "member", fmt.Sprintf("%016x", self.MemberID), "members", len(members), "peers", listener.Addr().String())
	m.compare(self.MemberID, members)
	return nil
}

// compare logs what the configuration says otherwise than the cluster's list of members, which decides.
func (m *clusterMember) compare(self uint64, members []roster.Member) {
	var addresses, founders []string
	own := ""
	for _, member := range members {
		if len(member.PeerURLs) == 0 {
			continue
		}
		address := roster.Address(member.PeerURLs[0])
		addresses = append(addresses, address)
		if member.ID == self {
			own = address
		}
	}
	for _, member := range m.plan.Members {
		founders = append(founders, roster.Address(member.Address))
	}
	slices.Sort(addresses)
	slices.Sort(founders)
	if len(founders) > 0 && !slices.Equal(addresses, founders) {
		m.log.Info("--initial-cluster is no longer used: the cluster has its own list of members", "initial-cluster", founders, "members", addresses)
	}
	if own != "" && own != roster.Address(m.plan.Self.Address) {
		m.log.Warn("the other members reach this one at another address than the configuration says: change it with leasekeeper member update, or correct the configuration",
			"members", own, "configuration", m.plan.Self.Address)
	}
}

// serverCluster returns the configuration of the cluster for the front.
func (m *clusterMember) serverCluster() *server.Cluster {
	return &server.Cluster{Peers: m.transport, ReadTimeout: m.plan.Patience, InsecurePeers: m.plan.Insecure}
}

// close closes the connections to other members. A nil member, or one that is not connected, has none.
func (m *clusterMember) close(ctx context.Context) error {
	if m == nil || m.transport == nil {
		return nil
	}
	return m.transport.Close(ctx)
}

// handOver hands leadership to another member before this one stops, if this one leads. This member still serves
// meanwhile, so its clients do not notice.
func (p *process) handOver(ctx context.Context) {
	if p.member == nil {
		return
	}
	if leader, _ := p.node.Leader(); leader != p.node.Header().MemberID || len(p.member.socket.Members()) == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	if err := p.node.HandOver(ctx, 0); err != nil {
		p.log.Warn("leadership was not handed over in time; the other members will elect a leader", "error", err)
	}
}
