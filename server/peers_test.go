package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// cable connects members in this process.
type cable struct {
	t testing.TB

	mu      sync.Mutex
	conns   map[uint64]*grpc.ClientConn
	servers map[uint64]*grpc.Server
}

func newCable(t testing.TB) *cable {
	return &cable{t: t, conns: make(map[uint64]*grpc.ClientConn), servers: make(map[uint64]*grpc.Server)}
}

// cableEnd is the end of one member.
type cableEnd struct {
	*cable
	registrar *grpc.Server
	open      bool
}

func (w *cableEnd) Conn(member uint64) grpc.ClientConnInterface {
	w.mu.Lock()
	defer w.mu.Unlock()
	if conn := w.conns[member]; conn != nil {
		return conn
	}
	return nil
}

func (w *cableEnd) RegisterService(desc *grpc.ServiceDesc, impl any) {
	w.registrar.RegisterService(desc, impl)
}

func (w *cableEnd) Status() []peer.PeerStatus { return nil }

func (w *cableEnd) Open() bool { return w.open }

// serve lets other members reach a member.
func (w *cableEnd) serve(member uint64) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	wantOK(w.t, err)
	served := make(chan struct{})
	go func() { defer close(served); w.registrar.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	wantOK(w.t, err)
	w.mu.Lock()
	w.conns[member], w.servers[member] = conn, w.registrar
	w.mu.Unlock()
	w.t.Cleanup(func() { conn.Close(); w.registrar.Stop(); <-served })
}

// cut breaks the connections to a member.
func (w *cable) cut(member uint64) {
	w.mu.Lock()
	server := w.servers[member]
	w.mu.Unlock()
	server.Stop()
}

// followerNode is a node to which the test says who leads.
type followerNode struct {
	*faulty
	leader *atomic.Uint64
	term   *atomic.Uint64
	list   []roster.Member
	deaf   atomic.Uint64 // if not 0, the node regards this member as the leader, in term 1
}

func (l *followerNode) Leader() (id, term uint64) {
	if id := l.deaf.Load(); id != 0 {
		return id, 1
	}
	return l.leader.Load(), l.term.Load()
}

func (l *followerNode) AwaitLeader(context.Context) (uint64, error) {
	if id, _ := l.Leader(); id != 0 {
		return id, nil
	}
	return 0, replica.ErrNoLeader
}

func (l *followerNode) Members(context.Context) ([]roster.Member, replica.Header, error) {
	return l.list, l.Header(), nil
}

// AwaitApplied does not wait, because the two members do not share a log.
func (l *followerNode) AwaitApplied(context.Context, uint64) bool { return true }

func (l *followerNode) HandOver(_ context.Context, to uint64) error {
	l.leader.Store(to)
	l.term.Add(1)
	return nil
}

// pair is two members that share nothing except the leader that the test sets. A change that shows at one member was
// made there.
type pair struct {
	cable        *cable
	leader, term atomic.Uint64
	ids          [2]uint64
	fronts       [2]*front
	nodes        [2]*followerNode
}

func startPair(t *testing.T) *pair { return startPairWith(t, func(*Config) {}) }

// startPairWith lets a test change the configuration of each member, and its server before anything calls it.
func startPairWith(t *testing.T, change func(*Config), prepare ...func(*Server)) *pair {
	t.Helper()
	p := &pair{cable: newCable(t)}
	p.term.Store(1)
	for i := range p.nodes {
		node := startNode(t)
		p.nodes[i] = &followerNode{faulty: &faulty{Node: node}, leader: &p.leader, term: &p.term}
		p.ids[i] = node.Header().MemberID
	}
	p.leader.Store(p.ids[0])
	for i, node := range p.nodes {
		peers := &cableEnd{cable: p.cable, registrar: grpc.NewServer(grpc.WaitForHandlers(true))}
		cfg := anyPort()
		cfg.RequestTimeout = time.Hour // no request here may end because of its time limit
		cfg.Name = []string{"a", "b"}[i]
		cfg.Cluster = &Cluster{Peers: peers}
		node.list = []roster.Member{
			{ID: p.ids[0], Name: "a", PeerURLs: []string{"http://a:2380"}}, {ID: p.ids[1], Name: "b", PeerURLs: []string{"http://b:2380"}},
		}
		change(&cfg)
		s, err := newServer(cfg, node)
		wantOK(t, err)
		for _, do := range prepare {
			do(s)
		}
		peers.serve(p.ids[i])
		p.fronts[i] = startServer(t, s, node.Node)
	}
	return p
}

// lead makes a member the leader.
func (p *pair) lead(i int) {
	p.leader.Store(p.ids[i])
	p.term.Add(1)
}

// deaf stops a member from noticing later leaders.
func (p *pair) deaf(i int) { p.nodes[i].deaf.Store(p.leader.Load()) }
