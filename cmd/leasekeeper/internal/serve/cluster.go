package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/server"
)

const (
	// handOverLimit bounds how long a stopping leader tries to hand over leadership.
	handOverLimit = 3 * time.Second
	// frameReserve is the largest part of a message between members that is not a request, in bytes.
	frameReserve = 1 << 20
)

// socket forwards the node's messages to the transport. The node starts before the transport, because the transport
// sends the incarnation of the node's data directory to other members. Until then socket drops messages, and the node
// sends them again.
type socket struct {
	transport atomic.Pointer[peer.Transport] // nil until connect
}

// Send implements [node.Transport].
func (s *socket) Send(to uint64, urgent bool, message []byte) {
	if t := s.transport.Load(); t != nil {
		t.Send(to, urgent, message)
	}
}

var errNotConnected = errors.New("this member is not connected to the other members yet: try again in a moment")

// Ship implements [node.Transport].
func (s *socket) Ship(ctx context.Context, to uint64, message []byte, state io.Reader) error {
	t := s.transport.Load()
	if t == nil {
		return errNotConnected
	}
	return t.Ship(ctx, to, message, state)
}

// clusterMember holds the parts of a server that only a member of a cluster has.
type clusterMember struct {
	plan      *settings.Cluster
	socket    *socket
	transport *peer.Transport // nil before connect
}

// config returns the configuration of the cluster for the node.
func (m *clusterMember) config() *node.ClusterConfig {
	p := m.plan
	c := &node.ClusterConfig{
		Self: p.Self.ID, ClusterID: p.ID, Transport: m.socket,
		ElectionTimeout: p.Election, MasterLease: p.Lease, ReadTimeout: p.Patience, Drift: p.Drift,
	}
	for _, member := range p.Members {
		c.Members = append(c.Members, member.ID)
	}
	return c
}

// connect listens on the port for members and connects the transport with the node. The caller starts and closes the
// transport.
func (m *clusterMember) connect(node *node.Node, requestBytes int, log *slog.Logger) error {
	addresses := make(map[uint64]string)
	for _, member := range m.plan.Members {
		addresses[member.ID] = member.Address
	}
	listener, err := net.Listen("tcp", m.plan.Listen)
	if err != nil {
		return errors.Join(checkPort(m.plan.Listen, "--peer-listen"), err) // the error of checkPort says what to do
	}
	m.transport, err = peer.New(peer.Config{
		Self: m.plan.Self.ID, ClusterID: m.plan.ID, Incarnation: node.Incarnation(), InUse: node.VersionInUse,
		Members: addresses, Listener: listener,
		Files:   peer.CertificateFiles{Cert: m.plan.TLS[0], Key: m.plan.TLS[1], CA: m.plan.TLS[2]},
		Receive: node.Receive, Connected: node.Connected, ReceiveState: node.ReceiveState, Unreachable: node.Unreachable,
		MaxFrame: max(peer.DefaultMaxFrame, 2*requestBytes+frameReserve),
		Logger:   log,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	m.socket.transport.Store(m.transport)
	log.Info("member of a cluster", "name", m.plan.Self.Name, "member", fmt.Sprintf("%016x", m.plan.Self.ID), "members", len(m.plan.Members), "peers", listener.Addr().String())
	return nil
}

// serverCluster returns the configuration of the cluster for the front.
func (m *clusterMember) serverCluster() *server.Cluster {
	c := &server.Cluster{Peers: m.transport, ReadTimeout: m.plan.Patience, InsecurePeers: m.plan.Insecure}
	for _, member := range m.plan.Members {
		c.Members = append(c.Members, server.ClusterMember{
			ID: member.ID, Name: member.Name, PeerURL: m.plan.Scheme() + member.Address,
		})
	}
	return c
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
	if leader, _ := p.node.Leader(); leader != p.member.plan.Self.ID {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	if err := p.node.HandOver(ctx, 0); err != nil {
		p.log.Warn("leadership was not handed over in time; the other members will elect a leader", "error", err)
	}
}
