package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// trio is a real cluster of three members in this process, over TCP.
type trio struct {
	t       *testing.T
	members [3]*trioMember
}

type trioMember struct {
	*front
	id        uint64
	transport *peer.Transport
	socket    *socket
	over      sync.Once
}

// socket is a [peer.Socket] that can stop sending to one member.
type socket struct {
	peer.Socket
	kept atomic.Uint64 // the member to which nothing is sent; 0 for none
}

func (s *socket) Send(to uint64, urgent bool, message []byte) {
	if s.kept.Load() != to {
		s.Socket.Send(to, urgent, message)
	}
}

// startTrio starts a cluster with patience as its read timeout.
func startTrio(t *testing.T, patience time.Duration) *trio {
	t.Helper()
	return startTrioWith(t, patience, anyPort())
}

// startTrioWith starts a cluster whose servers have a configuration.
func startTrioWith(t *testing.T, patience time.Duration, every Config) *trio {
	t.Helper()
	return startEachOfTrio(t, patience, func(cfg *Config, _ *node.ClusterConfig, _ *peer.Config) { *cfg = every })
}

// startEachOfTrio starts a cluster, and lets a test change the configuration of each member.
func startEachOfTrio(t *testing.T, patience time.Duration, change func(*Config, *node.ClusterConfig, *peer.Config)) *trio {
	t.Helper()
	tr := &trio{t: t}
	addresses, listeners, ids := make(map[uint64]string), [3]net.Listener{}, []uint64{11, 12, 13}
	group := Cluster{ReadTimeout: patience}
	var founders []roster.Member
	for i, id := range ids {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		wantOK(t, err)
		addresses[id], listeners[i] = l.Addr().String(), l
		founders = append(founders, roster.Member{ID: id, Name: string(rune('a' + i)), PeerURLs: []string{"http://" + l.Addr().String()}})
	}
	for i, id := range ids {
		m := &trioMember{id: id, socket: new(socket)}
		logins := NewLogins(DefaultAuthTokenTTL)
		cfg, own := anyPort(), group
		inCluster := &node.ClusterConfig{
			Self: id, Members: ids, Founders: founders, ClusterID: 77, Transport: m.socket, ReadTimeout: group.ReadTimeout,
		}
		peers := peer.Config{Self: id, ClusterID: 77, Members: addresses, Listener: listeners[i]}
		change(&cfg, inCluster, &peers)
		cfg.Logins, cfg.BcryptCost = logins, 4
		node, err := node.Start(t.Context(), node.Config{Dir: t.TempDir(), LoggedIn: logins.Learn, Cluster: inCluster})
		wantOK(t, err)
		peers.Incarnation, peers.Receive, peers.ReceiveState, peers.Unreachable = node.Incarnation(), node.Receive, node.ReceiveState, node.Unreachable
		m.transport, err = peer.New(peers)
		wantOK(t, err)
		m.socket.Connect(m.transport)
		own.Peers = m.transport
		cfg.Name, cfg.Cluster = founders[i].Name, &own
		s, err := New(cfg, node)
		wantOK(t, err)
		wantOK(t, m.transport.Start())
		m.front = frontOf(t, s, node)
		tr.members[i] = m
		t.Cleanup(func() { m.stop(t) })
	}
	for _, m := range tr.members {
		select {
		case <-m.node.Ready():
		case <-time.After(waitLimit):
			t.Fatal("no leader is known")
		}
		eventually(t, "the member is ready", func() bool { return m.node.CheckReady() == nil })
	}
	return tr
}

// in returns the cluster for use in a subtest.
func (tr *trio) in(t *testing.T) *trio {
	sub := &trio{t: t}
	for i, m := range tr.members {
		f := *m.front
		f.t = t
		sub.members[i] = &trioMember{front: &f, id: m.id, transport: m.transport, socket: m.socket}
	}
	return sub
}

// stop stops a member properly.
func (m *trioMember) stop(t *testing.T) {
	m.over.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if m.node.Err() == nil && m.server.forwarder.Leads() {
			if err := m.node.HandOver(ctx, 0); err != nil {
				t.Logf("handing over: %v", err)
			}
		}
		if err := m.server.Stop(ctx); err != nil {
			t.Errorf("stopping the server: %v", err)
		}
		if err := m.node.Stop(ctx); err != nil {
			t.Errorf("stopping the node: %v", err)
		}
		if err := m.transport.Close(ctx); err != nil {
			t.Errorf("closing the transport: %v", err)
		}
	})
}

// leader returns the leader and one follower.
func (tr *trio) leader() (leader, follower *trioMember) {
	tr.t.Helper()
	eventually(tr.t, "a member leads", func() bool {
		leader, follower = nil, nil
		for _, m := range tr.members {
			if m.server.forwarder.Leads() {
				leader = m
			} else {
				follower = m
			}
		}
		return leader != nil && follower != nil
	})
	return leader, follower
}
