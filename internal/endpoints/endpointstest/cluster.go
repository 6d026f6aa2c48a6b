package endpointstest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server"
)

// Cluster is three servers in this process that form one cluster. Messages between them, and from clients, go through
// proxies.
type Cluster struct {
	t       testing.TB
	Members []*Member
}

// Member is a member of a [Cluster]. Its [Store] connects without a proxy.
type Member struct {
	*Store
	ID        uint64
	Node      *node.Node
	Front     *Proxy // for clients that CutOff is to cut off
	server    *server.Server
	transport *peer.Transport
	socket    peer.Socket
	peers     []*Proxy // to and from the other members
}

const clusterID = 77

// loginTTL is how long a token of a user lasts without being used.
const loginTTL = 5 * time.Minute

// StartCluster starts a cluster whose first member leads.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	g := &Cluster{t: t}
	ids := []uint64{11, 12, 13}
	listeners := make([]net.Listener, len(ids))
	var members []roster.Member
	for i, id := range ids {
		var err error
		listeners[i], err = net.Listen("tcp", "127.0.0.1:0")
		OK(t, err)
		members = append(members, roster.Member{ID: id, Name: string(rune('a' + i)), PeerURLs: []string{"http://" + listeners[i].Addr().String()}})
		g.Members = append(g.Members, &Member{ID: id})
	}
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()} // removed after the members have stopped
	t.Cleanup(g.stopMembers)
	for i, m := range g.Members {
		g.startMember(m, i, dirs[i], ids, listeners, members)
	}
	for _, m := range g.Members {
		<-m.Node.Ready()
	}
	g.lead(g.Members[0])
	return g
}

func (g *Cluster) startMember(m *Member, place int, dir string, ids []uint64, listeners []net.Listener, members []roster.Member) {
	g.t.Helper()
	addresses := make(map[uint64]string)
	for i, other := range g.Members {
		addresses[other.ID] = listeners[i].Addr().String()
		if other != m {
			p := StartProxy(g.t, addresses[other.ID])
			addresses[other.ID] = p.Addr()
			m.peers, other.peers = append(m.peers, p), append(other.peers, p)
		}
	}
	logins := server.NewLogins(loginTTL)
	var err error
	m.Node, err = node.Start(context.Background(), node.Config{Dir: dir, LoggedIn: logins.Learn, Cluster: &node.ClusterConfig{
		Self: m.ID, Members: ids, Founders: members, ClusterID: clusterID, Transport: &m.socket,
	}})
	OK(g.t, err)
	m.transport, err = peer.New(peer.Config{
		Self: m.ID, ClusterID: clusterID, Incarnation: m.Node.Incarnation(), Members: addresses, Listener: listeners[place],
		Receive: m.Node.Receive, ReceiveState: m.Node.ReceiveState, Unreachable: m.Node.Unreachable,
	})
	OK(g.t, err)
	m.socket.Connect(m.transport)
	m.server, err = server.New(server.Config{
		MaxTTL: lessor.MaxTTL, // the limit of the backend
		Name:   members[place].Name, ListenClient: "127.0.0.1:0", ListenHTTP: server.HTTPOff,
		Logins: logins, Cluster: &server.Cluster{Peers: m.transport},
	}, m.Node)
	OK(g.t, err)
	OK(g.t, m.transport.Start())
	OK(g.t, m.server.Start())
	m.Store = At(g.t, m.server.Addr())
	m.Front = StartProxy(g.t, m.server.Addr())
}

// Endpoints are the addresses of the members' front proxies.
func (g *Cluster) Endpoints() []string {
	var all []string
	for _, m := range g.Members {
		all = append(all, m.Front.Addr())
	}
	return all
}

// lead makes a member the leader.
func (g *Cluster) lead(m *Member) {
	g.t.Helper()
	Eventually(g.t, "the member leads", func() bool {
		leader, _ := m.Node.Leader()
		for _, other := range g.Members {
			if other.ID == leader && other != m {
				_ = other.Node.HandOver(Limited(g.t), m.ID) // if it fails, the next attempt may succeed
			}
		}
		return leader == m.ID
	})
}

// CutOff drops all messages to and from a member. For the others it has vanished.
func (m *Member) CutOff() {
	m.Front.Stall(false)
	for _, p := range m.peers {
		p.Stall(false)
	}
}

// Stop stops a member in order. It may have stopped before.
func (m *Member) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), WaitLimit)
	defer cancel()
	return errors.Join(m.server.Stop(ctx), m.Node.Stop(ctx), m.transport.Close(ctx))
}

func (g *Cluster) stopMembers() {
	for _, m := range g.Members {
		if m.transport == nil || m.server == nil {
			continue // the test failed before the member started
		}
		OK(g.t, m.Stop())
	}
}
