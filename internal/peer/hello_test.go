package peer

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

func TestWrongMembersAreRefused(t *testing.T) {
	t.Run("cluster", func(t *testing.T) {
		g := newCluster(t, 1, 2)
		a := g.start(1, func(c *Config, _ *member) { c.ClusterID = 0xc2 })
		b := g.start(2, nil)
		a.awaitRefusal(2, "of another cluster", "--initial-cluster")
		b.awaitRefusal(1, "of another cluster", "--initial-cluster")
		if b.log.count("cluster c1") == 0 || b.log.count("cluster c2") == 0 {
			t.Errorf("the log of the member that refuses does not name both clusters:\n%s", b.log.text.String())
		}
	})
	t.Run("swapped", func(t *testing.T) {
		g := newCluster(t, 1, 2, 3)
		b, c := g.start(2, nil), g.start(3, nil)
		g.members[2], g.members[3] = g.members[3], g.members[2]
		a := g.start(1, nil)
		a.awaitRefusal(2, "meant for another member", "--initial-cluster")
		a.awaitRefusal(3, "meant for another member")
		b.awaitConnected(1)
		c.awaitConnected(1)
	})
	t.Run("itself", func(t *testing.T) {
		g := newCluster(t, 1, 2)
		g.listeners[2].Close()
		g.members[2] = g.members[1]
		g.start(1, nil).awaitRefusal(2, "meant for another member")
	})
	t.Run("unknown", func(t *testing.T) {
		g := newCluster(t, 1, 2, 3)
		g.listeners[2].Close()
		c := g.start(3, nil)
		delete(g.members, 3)
		a := g.startServing(1, new(asked))
		defer a.Close(within(t))
		_, err := healthpb.NewHealthClient(c.Conn(1)).Check(within(t), &healthpb.HealthCheckRequest{})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "not in the list of members") {
			t.Errorf("a call of an unknown member got %v", err)
		}
		if len(a.Status()) != 1 {
			t.Errorf("there are %d other members", len(a.Status()))
		}
	})
}

func TestRefusalIsLoggedOnce(t *testing.T) {
	g := newCluster(t, 1, 2)
	p := g.behind(2)
	a := g.start(1, func(c *Config, _ *member) { c.ClusterID = 0xc2 })
	b := g.start(2, nil)
	b.await("refused", 1, func(s PeerStatus) bool { return s.Err != nil })
	for tries := 1; tries <= 3; tries++ {
		a.await("another try", 2, func(PeerStatus) bool {
			p.mu.Lock()
			done := p.accepted >= tries
			p.mu.Unlock()
			if !done {
				p.reset() // also closes connections that were accepted since the last reset
			}
			return done
		})
		a.await("refused", 2, func(s PeerStatus) bool { return s.Err != nil && strings.Contains(s.Err.Error(), "cluster") })
		p.reset()
	}
	if n := b.log.count("a connection is refused"); n != 1 {
		t.Errorf("logged %d times\n%s", n, b.log.text.String())
	}
}

func TestInvalidHelloIsRefused(t *testing.T) {
	g := newCluster(t, 1, 2)
	g.listeners[2].Close()
	a := g.start(1, nil)
	right := func() *peerpb.Hello {
		return &peerpb.Hello{Version: 1, Oldest: 1, ClusterId: testCluster, From: 2, To: 1, Incarnation: 5}
	}
	if err := a.checkHello(right()); err != nil {
		t.Fatal(err)
	}
	for part, change := range map[string]func(*peerpb.Hello){
		"speaks version 0":         func(h *peerpb.Hello) { h.Version = 0 },
		"accepts 7":                func(h *peerpb.Hello) { h.Version, h.Oldest = 8, 7 },
		"cluster":                  func(h *peerpb.Hello) { h.ClusterId++ },
		"not 3":                    func(h *peerpb.Hello) { h.To = 3 },
		"two members are both 1":   func(h *peerpb.Hello) { h.From = 1 },
		"does not say of which in": func(h *peerpb.Hello) { h.Incarnation = 0 },
	} {
		h := right()
		change(h)
		if err := a.checkHello(h); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "(and accepts 7", "accepts 7"), part) {
			t.Errorf("%v does not contain %q", err, part)
		}
	}
	later := right()
	later.Version = 2 // it still understands version 1
	if err := a.checkHello(later); err != nil {
		t.Error(err)
	}
}

// Once the log uses a version, a member whose program does not know it is refused, and greetings say so.
func TestProgramOlderThanTheVersionInUseIsRefused(t *testing.T) {
	g := newCluster(t, 1, 2)
	var inUse atomic.Uint32 // links read it as well
	a := g.start(1, func(c *Config, _ *member) { c.InUse = func() gate.Version { return gate.Version(inUse.Load()) } })
	old := &peerpb.Hello{Version: 1, Oldest: 1, ClusterId: testCluster, From: 2, To: 1, Incarnation: 5}
	for _, v := range []gate.Version{0, gate.Marks} {
		inUse.Store(uint32(v))
		if err := a.checkHello(old); err != nil {
			t.Errorf("version %d is in use: %v", v, err)
		}
	}
	before := a.link(2).greeting()
	inUse.Store(uint32(gate.Newest))
	if err := a.checkHello(old); err == nil || !strings.Contains(err.Error(), "start the newer program on both") {
		t.Errorf("version %d is in use: %v", gate.Newest, err)
	}
	if after := a.link(2).greeting(); before.oldest != 1 || after.oldest != uint32(gate.Newest) || after.text[0] == before.text[0] {
		t.Errorf("the greeting named %d and names %d", before.oldest, after.oldest)
	}
}

func TestServerThatIsNoMemberIsRecognised(t *testing.T) {
	g := newCluster(t, 1, 2)
	other := grpc.NewServer()
	done := make(chan error, 1)
	go func() { done <- other.Serve(g.listeners[2]) }()
	g.start(1, nil).awaitRefusal(2, "not a member of a cluster", "correct the address")
	other.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// asked is a service that other members call.
type asked struct {
	healthpb.UnimplementedHealthServer
	from    chan [2]uint64
	release chan struct{}
}

func (s *asked) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	member, incarnation, ok := From(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "who asks?")
	}
	s.from <- [2]uint64{member, incarnation}
	if s.release != nil {
		select {
		case <-s.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func (g *cluster) startServing(id uint64, s *asked) *Transport {
	g.t.Helper()
	s.from = make(chan [2]uint64, 10)
	m, err := New(Config{
		Self: id, ClusterID: testCluster, Incarnation: id * 100, Members: g.members, Listener: g.listeners[id],
		Receive: func(uint64, uint64, []byte) {}, ReceiveState: (&member{}).receiveNothing,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	healthpb.RegisterHealthServer(m, s)
	if err := m.Start(); err != nil {
		g.t.Fatal(err)
	}
	return m
}

func TestClientCallsReachOtherMember(t *testing.T) {
	g := newCluster(t, 1, 2)
	p := g.behind(2)
	s := new(asked)
	b := g.startServing(2, s)
	a := g.start(1, nil)
	client := healthpb.NewHealthClient(a.Conn(2))
	ctx := metadata.AppendToOutgoingContext(within(t), "key", "value")
	for range 2 {
		if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		if from := <-s.from; from != [2]uint64{1, 100} {
			t.Errorf("the call is of %v", from)
		}
	}
	// An unknown peer without a Hello.
	conn := must[*grpc.ClientConn](t)(grpc.NewClient(p.target, grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer conn.Close()
	_, err := healthpb.NewHealthClient(conn).Check(within(t), &healthpb.HealthCheckRequest{})
	if status.Code(err) != codes.FailedPrecondition || len(s.from) > 0 {
		t.Errorf("an unknown peer got %v", err)
	}
	if err := b.Close(within(t)); err != nil {
		t.Error(err)
	}
	if _, err = client.Check(within(t), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a member that has gone answers %v", err)
	}
}

func TestCloseWaitsForCalls(t *testing.T) {
	g := newCluster(t, 1, 2)
	s := &asked{release: make(chan struct{})}
	b := g.startServing(2, s)
	a := g.start(1, nil)
	client := healthpb.NewHealthClient(a.Conn(2))
	answered := make(chan error, 1)
	go func() {
		_, err := client.Check(within(t), &healthpb.HealthCheckRequest{})
		answered <- err
	}()
	<-s.from
	closed := make(chan error, 1)
	b.streams.Add(1) // one that is still open: without it, the port may be closed before the next call
	go func() { closed <- b.Close(within(t)) }()
	<-b.draining.Done()
	var trailer metadata.MD
	if _, err := client.Check(within(t), &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer)); status.Code(err) != codes.Unavailable || !Refused(trailer) {
		t.Errorf("a member that is closing answers %v with the trailer %v", err, trailer)
	}
	b.streams.Done()
	close(s.release)
	if err := <-answered; err != nil {
		t.Errorf("the call that was under way: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestCloseCancelsCallsWhenItsContextEnds(t *testing.T) {
	g := newCluster(t, 1, 2)
	s := &asked{release: make(chan struct{})}
	b := g.startServing(2, s)
	a := g.start(1, nil)
	answered := make(chan error, 1)
	go func() {
		_, err := healthpb.NewHealthClient(a.Conn(2)).Check(within(t), &healthpb.HealthCheckRequest{})
		answered <- err
	}()
	<-s.from
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Close(ctx); err != context.Canceled {
		t.Errorf("got %v", err)
	}
	if err := <-answered; err == nil {
		t.Error("the call was answered")
	}
	if err := b.Close(within(t)); err != nil {
		t.Error(err)
	}
}

func TestCloseClosesListener(t *testing.T) {
	g := newCluster(t, 1)
	a := g.start(1, nil)
	a.stop()
	if conn, err := net.Dial("tcp", g.members[1]); err == nil {
		conn.Close()
		t.Error("the address is still in use")
	}
}
