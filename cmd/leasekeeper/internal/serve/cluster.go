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
	// handOverLimit bounds how long a leader that is to stop tries to have another lead first.
	handOverLimit = 3 * time.Second
	// frameReserve is what a message between members takes besides a request.
	frameReserve = 1 << 20
)

// socket is what the node speaks through. There is no connection to other members before the node is there, because
// they are told which data folder it has; what it says until then is lost, and said again.
type socket struct {
	transport atomic.Pointer[peer.Transport]
}

// Send implements [node.Transport].
func (s *socket) Send(to uint64, urgent bool, message []byte) {
	if t := s.transport.Load(); t != nil {
		t.Send(to, urgent, message)
	}
}

var errNotConnected = errors.New("this member is not connected to the others yet")

// Ship implements [node.Transport].
func (s *socket) Ship(ctx context.Context, to uint64, message []byte, state io.Reader) error {
	t := s.transport.Load()
	if t == nil {
		return errNotConnected
	}
	return t.Ship(ctx, to, message, state)
}

// groupMember is what a server has more if it is a member of a group.
type groupMember struct {
	plan      *settings.Cluster
	socket    *socket
	transport *peer.Transport
}

// config is the node's.
func (m *groupMember) config() *node.ClusterConfig {
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

// connect lets the node hear the others, and be heard. The caller starts the transport, and closes it.
func (m *groupMember) connect(node *node.Node, requestBytes int, log *slog.Logger) error {
	addresses := make(map[uint64]string)
	for _, member := range m.plan.Members {
		addresses[member.ID] = member.Address
	}
	listener, err := net.Listen("tcp", m.plan.Listen)
	if err != nil {
		return errors.Join(checkPort(m.plan.Listen, "--peer-listen"), err) // it says better what to do
	}
	m.transport, err = peer.New(peer.Config{
		Self: m.plan.Self.ID, ClusterID: m.plan.ID, Incarnation: node.Incarnation(),
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

// group is what the front has to know.
func (m *groupMember) group() *server.Cluster {
	g := &server.Cluster{Peers: m.transport, ReadTimeout: m.plan.Patience, InsecurePeers: m.plan.Insecure}
	for _, member := range m.plan.Members {
		g.Members = append(g.Members, server.ClusterMember{
			ID: member.ID, Name: member.Name, PeerURL: m.plan.Scheme() + member.Address,
		})
	}
	return g
}

// close ends the connections; nil has none.
func (m *groupMember) close(ctx context.Context) error {
	if m == nil || m.transport == nil {
		return nil
	}
	return m.transport.Close(ctx)
}

// handOver has another member lead before this one stops, if this one does: as long as it serves, its clients do
// not notice.
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
