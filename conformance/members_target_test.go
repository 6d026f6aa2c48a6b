package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// cluster is three servers that replicate each other.
type cluster struct {
	t         *testing.T
	members   []*server
	reachable []*server // those that clients know; besides members, servers that are to join
}

// startCluster starts three members on empty directories and free ports, and returns once they agree on a leader.
func startCluster(t *testing.T, target string) *cluster {
	t.Helper()
	return startClusterWith(t, target, func(*server) {})
}

// startClusterWith is startCluster with members that configure has changed.
func startClusterWith(t *testing.T, target string, configure func(*server)) *cluster {
	t.Helper()
	g := &cluster{t: t}
	for _, name := range []string{"a", "b", "c"} {
		m := newServer(t, target)
		m.name, m.cluster = name, g
		configure(m)
		g.members = append(g.members, m)
	}
	g.reachable = slices.Clone(g.members)
	for attempt := 1; ; attempt++ {
		err := g.run()
		if err == nil {
			return g
		}
		if attempt == 3 {
			t.Fatalf("starting a cluster of %s: %v", target, err)
		}
		for _, m := range g.members {
			m.kill()
			os.RemoveAll(m.dir)
		}
	}
}

func (g *cluster) run() error {
	for _, m := range g.members {
		m.grpcAddr, m.httpAddr, m.peerAddr = freeAddr(g.t), freeAddr(g.t), freeAddr(g.t)
		if m.target == etcd {
			m.httpAddr = m.grpcAddr
		}
	}
	for _, m := range g.members {
		if err := m.launch(); err != nil {
			return err
		}
	}
	for _, m := range g.members {
		if err := m.awaitReady(); err != nil {
			return fmt.Errorf("member %s: %w", m.name, err)
		}
	}
	_, err := g.agreed(startLimit)
	return err
}

// list returns all members in the form that both programs take.
func (g *cluster) list(scheme string) string {
	var list []string
	for _, m := range g.members {
		list = append(list, m.name+"="+scheme+m.peerAddr)
	}
	return strings.Join(list, ",")
}

// endpoints are the addresses that clients know.
func (g *cluster) endpoints() []string {
	var all []string
	for _, m := range g.reachable {
		all = append(all, m.grpcAddr)
	}
	return all
}

// agreed returns the member that all follow.
func (g *cluster) agreed(within time.Duration) (*server, error) {
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		leader, seen := g.look()
		if leader != nil {
			return leader, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the members do not agree on a leader: %s", seen)
		}
	}
}

// look asks all members once for their leader.
func (g *cluster) look() (leader *server, seen string) {
	var said []string
	var first *pb.StatusResponse
	agree := true
	for _, m := range g.members {
		st, err := m.status()
		if err != nil {
			return nil, err.Error()
		}
		said = append(said, fmt.Sprintf("%x follows %x in term %d", st.Header.MemberId, st.Leader, st.RaftTerm))
		if first == nil {
			first = st
		}
		agree = agree && st.Leader != 0 && st.Leader == first.Leader && st.RaftTerm == first.RaftTerm
		if st.Header.MemberId == st.Leader {
			leader = m
		}
	}
	if !agree {
		leader = nil
	}
	return leader, strings.Join(said, ", ")
}

// status asks one member, over a connection that is closed again: a process that was killed since leaves none behind.
func (s *server) status() (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	config := clientv3.Config{Endpoints: []string{s.grpcAddr}, Logger: zap.NewNop(), Context: ctx}
	if s.certificates != nil {
		config.TLS = s.certificates.Client("probe")
	}
	c, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return pb.NewMaintenanceClient(c.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
}

func (g *cluster) leader() *server {
	g.t.Helper()
	leader, err := g.agreed(waitLimit)
	wantOK(g.t, "leader", err)
	return leader
}

// follower is a member that does not lead.
func (g *cluster) follower() *server {
	g.t.Helper()
	leader := g.leader()
	for _, m := range g.members {
		if m != leader {
			m.target = follower
			return m
		}
	}
	panic("unreachable: there are three")
}

// everyone is the leader, whose clients know the other members as well.
func (g *cluster) everyone() *server {
	g.t.Helper()
	leader := g.leader()
	leader.target, leader.endpoints = everyone, g.endpoints()
	return leader
}

// settle waits until all members have what any of them has, where a test talks to all of them. A member that is asked
// about itself, as with a watch, may be a little behind the one that has answered before.
func (s *server) settle() {
	s.t.Helper()
	if s.target != everyone {
		return
	}
	applied := func(m *server) uint64 {
		st, err := m.status()
		wantOK(s.t, "status", err)
		return st.RaftAppliedIndex
	}
	most := uint64(0)
	for _, m := range s.cluster.members {
		most = max(most, applied(m))
	}
	for _, m := range s.cluster.members {
		eventually(s.t, waitLimit, "all members have the same", func() bool { return applied(m) >= most })
	}
}
