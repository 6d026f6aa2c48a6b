package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each wait of a test. No test depends on it to pass.
const patience = 30 * time.Second

// frame is a received frame.
type frame struct {
	from, incarnation uint64
	text              string
}

// member is one side of the tests' connections.
type member struct {
	*Transport
	t           testing.TB
	frames      chan frame
	unreachable chan uint64
	log         *record
	receive     func(ctx context.Context, from, incarnation uint64, frame []byte, state io.Reader) error
}

// record is a log that a test can read.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) count(part string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), part)
}

// cluster is the addresses of members, and listeners for them.
type cluster struct {
	t         testing.TB
	members   map[uint64]string
	listeners map[uint64]net.Listener
}

func newCluster(t testing.TB, ids ...uint64) *cluster {
	t.Helper()
	g := &cluster{t, make(map[uint64]string), make(map[uint64]net.Listener)}
	for _, id := range ids {
		g.listeners[id] = listen(t)
		g.members[id] = g.listeners[id].Addr().String()
	}
	return g
}

// behind puts a proxy in front of a member that is not started yet.
func (g *cluster) behind(id uint64) *proxy {
	p := newProxy(g.t, g.members[id])
	g.members[id] = p.address()
	return p
}

const testCluster = 0xc1

// start starts a member. change may be nil.
func (g *cluster) start(id uint64, change func(*Config, *member)) *member {
	g.t.Helper()
	m := &member{t: g.t, frames: make(chan frame, 1<<16), unreachable: make(chan uint64, 1<<16), log: new(record)}
	cfg := Config{
		Self: id, ClusterID: testCluster, Incarnation: id * 100, Members: g.members, Listener: g.listeners[id],
		Receive: func(from, incarnation uint64, f []byte) { m.frames <- frame{from, incarnation, string(f)} },
		ReceiveState: func(ctx context.Context, from, incarnation uint64, frame []byte, state io.Reader) error {
			if m.receive == nil {
				return errors.New("no state is expected")
			}
			return m.receive(ctx, from, incarnation, frame, state)
		},
		Unreachable: func(id uint64) { m.unreachable <- id },
		Logger:      slog.New(slog.NewTextHandler(m.log, nil)),
		Silence:     patience, // so that a slow machine causes no disconnect
		FrameLife:   patience,
	}
	if change != nil {
		change(&cfg, m)
	}
	var err error
	if m.Transport, err = New(cfg); err != nil {
		g.t.Fatal(err)
	}
	if err := m.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(m.stop)
	return m
}

func (m *member) stop() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		m.t.Errorf("the transport does not close: %v", err)
	}
}

// next returns the next received frame.
func (m *member) next() frame {
	m.t.Helper()
	select {
	case f := <-m.frames:
		return f
	case <-time.After(patience):
		m.t.Fatalf("no frame comes; %+v\n%s", m.Status(), m.log.text.String())
		panic("unreached")
	}
}

func (m *member) wantNext(from uint64, text string) {
	m.t.Helper()
	if f := m.next(); f.from != from || f.text != text {
		m.t.Fatalf("got %q from %x, want %q from %x", f.text, f.from, text, from)
	}
}

func (m *member) peer(id uint64) PeerStatus {
	m.t.Helper()
	for _, s := range m.Status() {
		if s.Member == id {
			return s
		}
	}
	m.t.Fatalf("there is no status of the member %x", id)
	return PeerStatus{}
}

// await waits until a status satisfies is.
func (m *member) await(what string, id uint64, is func(PeerStatus) bool) PeerStatus {
	m.t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s := m.peer(id)
		if is(s) {
			return s
		}
		if time.Now().After(limit) {
			m.t.Fatalf("%s: not so after all this time: %+v\n%s", what, s, m.log.text.String())
		}
	}
}

func (m *member) awaitConnected(id uint64) PeerStatus {
	m.t.Helper()
	return m.await("connected", id, func(s PeerStatus) bool { return s.Connected })
}

// awaitRefusal waits until a member cannot be reached, and checks the reason.
func (m *member) awaitRefusal(id uint64, parts ...string) {
	m.t.Helper()
	s := m.await("not connected", id, func(s PeerStatus) bool { return !s.Connected && s.Err != nil })
	for _, part := range parts {
		if !strings.Contains(s.Err.Error(), part) {
			m.t.Errorf("%q does not contain %q", s.Err, part)
		}
	}
}

func (m *member) awaitUnreachable(id uint64) {
	m.t.Helper()
	select {
	case got := <-m.unreachable:
		if got != id {
			m.t.Fatalf("the member %x is said to be unreachable, not %x", got, id)
		}
	case <-time.After(patience):
		m.t.Fatal("Unreachable was not called")
	}
}

// pair returns two members that are connected in both directions.
func pair(t testing.TB, change func(*Config, *member)) (a, b *member) {
	t.Helper()
	g := newCluster(t, 1, 2)
	a, b = g.start(1, change), g.start(2, change)
	a.awaitConnected(2)
	b.awaitConnected(1)
	return a, b
}

func numbered(kind string, i int) string { return fmt.Sprintf("%s %06d", kind, i) }

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (m *member) receiveNothing(context.Context, uint64, uint64, []byte, io.Reader) error { return nil }
