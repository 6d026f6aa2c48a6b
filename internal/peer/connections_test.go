package peer

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// visitor is a connection from an address. It notices when it is closed.
type visitor struct {
	net.Conn
	from   string
	closed bool
}

func (v *visitor) Close() error {
	v.closed = true
	return nil
}

func (v *visitor) RemoteAddr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", v.from) // an address in figures: it asks nobody
	if err != nil {
		panic(err)
	}
	return addr
}

// queueListener accepts the visitors in the queue, and then fails.
type queueListener struct {
	net.Listener
	queue []*visitor
}

func (l *queueListener) Accept() (net.Conn, error) {
	if len(l.queue) == 0 {
		return nil, io.EOF
	}
	v := l.queue[0]
	l.queue = l.queue[1:]
	return v, nil
}

// gatekeeper is a bounded listener for visitors.
type gatekeeper struct {
	t       *testing.T
	queue   *queueListener
	bounded *boundedListener
	log     *record
}

func newGatekeeper(t *testing.T, limit int) *gatekeeper {
	g := &gatekeeper{t: t, queue: new(queueListener), log: new(record)}
	g.bounded = &boundedListener{Listener: g.queue, limit: limit, log: slog.New(slog.NewTextHandler(g.log, nil))}
	return g
}

// visit connects from an address. The connection is nil if it was refused.
func (g *gatekeeper) visit(from string) (*visitor, *acceptedConn) {
	g.t.Helper()
	v := &visitor{from: from}
	g.queue.queue = append(g.queue.queue, v)
	conn, err := g.bounded.Accept()
	if err != nil {
		if !errors.Is(err, io.EOF) || !v.closed {
			g.t.Fatalf("accepting a connection from %s: %v; closed: %v", from, err, v.closed)
		}
		return v, nil
	}
	return v, conn.(*acceptedConn)
}

func TestFloodReplacesItsOwnConnections(t *testing.T) {
	for name, flood := range map[string][]string{
		"one address":            {"192.0.2.66:1", "192.0.2.66:2", "192.0.2.66:3", "192.0.2.66:4", "192.0.2.66:5", "192.0.2.66:6"},
		"one machine's network":  {"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "[2001:db8::4]:1", "[2001:db8::5]:1", "[2001:db8::6]:1"},
		"one address, mapped":    {"[::ffff:192.0.2.66]:1", "192.0.2.66:2", "[::ffff:192.0.2.66]:3", "192.0.2.66:4", "192.0.2.66:5", "192.0.2.66:6"},
		"interfaces of one host": {"[fe80::1]:1", "[fe80::2]:1", "[fe80::3]:1", "[fe80::4]:1", "[fe80::5]:1", "[fe80::6]:1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGatekeeper(t, 4)
			member, conn := g.visit("192.0.2.1:7")
			var visitors []*visitor
			for _, from := range flood {
				v, accepted := g.visit(from)
				if accepted == nil {
					t.Errorf("the connection from %s was refused", from)
				}
				visitors = append(visitors, v)
			}
			if member.closed {
				t.Error("the connection from another source was closed")
			}
			for i, v := range visitors {
				if v.closed != (i < 3) {
					t.Errorf("connection %d of the flood: closed %v; the oldest ones must be", i, v.closed)
				}
			}
			if conn.prove(); g.bounded.proven != 1 || len(g.bounded.unproven) != 3 {
				t.Errorf("%d are proven and %d are not", g.bounded.proven, len(g.bounded.unproven))
			}
		})
	}
}

func TestFloodFromManySourcesReplacesTheOldest(t *testing.T) {
	g := newGatekeeper(t, 2)
	first, _ := g.visit("192.0.2.1:1")
	second, _ := g.visit("192.0.2.2:1")
	third, _ := g.visit("192.0.2.3:1")
	if !first.closed || second.closed || third.closed {
		t.Errorf("closed: %v, %v, %v", first.closed, second.closed, third.closed)
	}
	if n := g.log.count("let only members reach this port"); n != 1 {
		t.Errorf("warned %d times", n)
	}
	g.visit("192.0.2.4:1")
	if n := g.log.count("let only members reach this port"); n != 1 {
		t.Errorf("warned %d times within a minute", n)
	}
}

func TestConnectionsOfMembersAreNotReplaced(t *testing.T) {
	g := newGatekeeper(t, 2)
	first, one := g.visit("192.0.2.1:1")
	one.prove()
	second, two := g.visit("192.0.2.2:1")
	two.prove()
	two.prove() // each call of a member does that
	if third, conn := g.visit("192.0.2.3:1"); conn != nil || first.closed || second.closed {
		t.Errorf("accepted %v; closed: %v, %v, %v", conn != nil, first.closed, second.closed, third.closed)
	}
	two.Close()
	two.Close() // the transport and the handshake may both do that
	fourth, four := g.visit("192.0.2.4:1")
	if four == nil || fourth.closed {
		t.Fatal("an ended connection leaves no room")
	}
	four.Close()
	four.prove() // its call was under way
	if g.bounded.proven != 1 || len(g.bounded.unproven) != 0 {
		t.Errorf("%d are proven and %d are not", g.bounded.proven, len(g.bounded.unproven))
	}
}

// crowd is connections that call nothing.
type crowd struct {
	ended atomic.Int64 // those that the other side has closed
}

// gather opens n connections to an address. With greet they begin HTTP/2 and answer pings, as a program would that is no
// member. Otherwise they send nothing.
func gather(t *testing.T, address string, n int, greet bool) *crowd {
	t.Helper()
	c := new(crowd)
	for range n {
		conn := must[net.Conn](t)(net.Dial("tcp", address))
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := idle(conn, greet); !errors.Is(err, net.ErrClosed) {
				c.ended.Add(1)
			}
		}()
		t.Cleanup(func() {
			conn.Close()
			<-done
		})
	}
	return c
}

// idle keeps a connection open, and returns why it has ended.
func idle(conn net.Conn, greet bool) error {
	if !greet {
		_, err := io.Copy(io.Discard, conn)
		return err
	}
	framer := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		if ping, ok := frame.(*http2.PingFrame); ok && !ping.IsAck() {
			if err := framer.WritePing(true, ping.Data); err != nil {
				return err
			}
		}
	}
}

// peakListener counts the connections that are open at a time.
type peakListener struct {
	net.Listener
	mu         sync.Mutex
	open, most int
}

func (l *peakListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.most = max(l.most, l.open)
	return &peakConn{Conn: conn, l: l}, nil
}

type peakConn struct {
	net.Conn
	l    *peakListener
	once sync.Once
}

func (c *peakConn) Close() error {
	c.once.Do(func() {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		c.l.open--
	})
	return c.Conn.Close()
}

// Programs that are no members open more connections than the port may have, and call nothing. A member connects all the
// same, and stays connected.
func TestIdleConnectionsKeepNoMemberOut(t *testing.T) {
	const limit = 8
	ca := authority.New(t, "authority")
	for name, files := range map[string]func() CertificateFiles{
		"plain": func() CertificateFiles { return CertificateFiles{} },
		"TLS":   func() CertificateFiles { return filesOf(t, ca, here, ca) },
	} {
		t.Run(name, func(t *testing.T) {
			var streams atomic.Int64
			g := newCluster(t, 1, 2)
			port := &peakListener{Listener: g.listeners[1]}
			a := g.start(1, func(c *Config, _ *member) {
				c.Listener, c.MaxConnections, c.Files = port, limit, files()
				c.Connected = func(uint64, uint64) { streams.Add(1) }
			})
			flood := func() {
				c := gather(t, g.members[1], 3*limit, name == "plain")
				a.await("the flood is bounded", 2, func(PeerStatus) bool { return c.ended.Load() >= 2*limit })
			}
			flood()
			b := g.start(2, func(c *Config, _ *member) { c.Files = files() })
			b.awaitConnected(1)
			a.awaitConnected(2)
			before := streams.Load()
			flood()
			b.Send(1, true, []byte("still here"))
			a.wantNext(2, "still here")
			if streams.Load() != before {
				t.Error("the flood has cut off a connected member")
			}
			port.mu.Lock()
			defer port.mu.Unlock()
			if port.most > limit+1 { // the listener accepts one before it closes another
				t.Errorf("%d connections were open at a time", port.most)
			}
		})
	}
}

// A connection that sends nothing is closed although there is room for it.
func TestSilentHandshakeEnds(t *testing.T) {
	g := newCluster(t, 1)
	g.start(1, nil)
	conn := must[net.Conn](t)(net.Dial("tcp", g.members[1]))
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
}
