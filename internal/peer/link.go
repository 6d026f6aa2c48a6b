package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/backoff"
	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
)

const (
	// dialLimit bounds the time for a member to accept a connection, and connectLimit the time until the connection
	// can carry calls.
	dialLimit    = time.Second
	connectLimit = 2 * time.Second
	// retryFirst and retryLimit are the shortest and the longest pause before the next attempt to connect.
	retryFirst = 20 * time.Millisecond
	retryLimit = 400 * time.Millisecond
	// stableAfter is the duration after which a connection counts as stable, so that a later failure starts again
	// with retryFirst.
	stableAfter = time.Second
	// hungDial is the age from which an attempt to connect is ended when the member itself connects. A lost packet of
	// the attempt would be resent only after a second.
	hungDial = 50 * time.Millisecond
	// streamWindow is the number of bytes in flight of one stream to a receiver that does not read. It is fixed,
	// because a window that adapts itself would make memory unbounded.
	streamWindow = 1 << 20
	connWindow   = 8 << 20
)

// errSilent ends a connection on which no echo arrives.
var errSilent = errors.New("it does not answer although a connection to it is open")

// link is the connection to one other member at the address that the list of members has for it.
type link struct {
	t            *Transport
	member       uint64
	address      string
	ctx          context.Context // ends with the transport, or when the link is no longer needed
	cancel       context.CancelFunc
	ran          chan struct{}            // closed when the goroutine of run has ended, or will never start
	guest        time.Time                // since when the member is in no list of members; zero: it is. Guarded by Transport.mu.
	lastGreeting atomic.Pointer[greeting] // see greeting
	conn         *grpc.ClientConn         // frames and states
	calls        *grpc.ClientConn         // calls of clients
	client       peerpb.PeerClient

	urgent, bulk *queue
	lost         chan struct{} // capacity one: frames were lost
	wake         chan struct{} // capacity one: try to connect now
	inbound      *inbound

	mu       sync.Mutex
	open     map[*trackedConn]struct{}
	dialling context.CancelFunc // cancels the current attempt to connect conn, begun at dialled; nil if there is none
	dialled  time.Time
	connErr  error  // why the last attempt to connect failed
	other    string // where the member says that it is; "" if that is address
	proven   bool   // the member also was at address, by its certificate, when it said other
	useOther bool   // dial other, and not address
	reached  bool   // since the last attempt to connect conn, a session was established
	state    linkState
}

// newLink makes the link to a member. in is the inbound state of the member's former link, nil if there is none.
func (t *Transport) newLink(member uint64, address string, in *inbound) (*link, error) {
	cfg := &t.cfg
	if in == nil {
		in = &inbound{shipping: make(chan struct{}, 1)}
	}
	l := &link{
		t: t, member: member, address: address, ran: make(chan struct{}),
		urgent: newQueue(cfg.UrgentFrames, cfg.UrgentBytes, true, cfg.FrameLife),
		bulk:   newQueue(cfg.BulkFrames, cfg.BulkBytes, false, 0),
		lost:   make(chan struct{}, 1), wake: make(chan struct{}, 1),
		open:    make(map[*trackedConn]struct{}),
		inbound: in,
	}
	l.ctx, l.cancel = context.WithCancel(t.ctx)
	l.state.since = time.Now()
	var err error
	if l.conn, err = l.newClient(l.dialFrames); err != nil {
		l.cancel()
		return nil, err
	}
	if l.calls, err = l.newClient(l.dialCalls); err != nil {
		l.cancel()
		return nil, errors.Join(err, l.conn.Close())
	}
	l.client = peerpb.NewPeerClient(l.conn)
	return l, nil
}

func (l *link) newClient(dial func(context.Context, string) (net.Conn, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+l.address,
		grpc.WithTransportCredentials(credentialsFor(l.t.certs, l.connFailed)),
		grpc.WithContextDialer(dial),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: retryFirst, Multiplier: 2, Jitter: 0.2, MaxDelay: l.t.cfg.retryLimit},
			MinConnectTimeout: connectLimit,
		}),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(l.t.maxMessage()), grpc.MaxCallSendMsgSize(l.t.maxMessage())),
		grpc.WithChainUnaryInterceptor(l.greet),
		grpc.WithChainStreamInterceptor(l.greetStream),
	)
}

// trackedConn is a connection that the link can close.
type trackedConn struct {
	*net.TCPConn
	l       *link
	address string // that was dialled
}

func (c *trackedConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.open, c)
	c.l.mu.Unlock()
	return c.TCPConn.Close()
}

// dialFrames is the dial function of conn. heard can cancel it.
func (l *link) dialFrames(ctx context.Context, _ string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	l.dialling, l.dialled = cancel, time.Now()
	l.turn()
	address := l.target()
	l.mu.Unlock()
	conn, err := l.dialTo(ctx, address)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dialling = nil
	return conn, err
}

// dialCalls is the dial function of calls.
func (l *link) dialCalls(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	address := l.callsTarget()
	l.mu.Unlock()
	return l.dialTo(ctx, address)
}

func (l *link) dialTo(ctx context.Context, address string) (net.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(limited, "tcp", address)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil { // otherwise this member cancelled the attempt
			l.connErr = err
		}
		return nil, err
	}
	l.connErr = nil
	limitUnsent(raw.(*net.TCPConn))
	conn := &trackedConn{raw.(*net.TCPConn), l, address}
	l.open[conn] = struct{}{}
	return conn, nil
}

// connFailed stores the reason why an attempt to connect failed.
func (l *link) connFailed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connErr = err
}

// hangUp closes all connections to the member, except those to the addresses kept. Unsent bytes are discarded, also those
// in the operating system's buffer.
func (l *link) hangUp(kept ...string) {
	l.mu.Lock()
	conns := make([]*trackedConn, 0, len(l.open))
	for conn := range l.open {
		if !slices.Contains(kept, conn.address) {
			conns = append(conns, conn)
		}
	}
	l.mu.Unlock()
	for _, conn := range conns {
		conn.SetLinger(0)
		conn.Close()
	}
}

// close closes the connections. The link's goroutines have ended.
func (l *link) close() error {
	l.cancel()
	l.hangUp() // otherwise gRPC would say goodbye, and wait seconds for that to be sent
	return errors.Join(l.conn.Close(), l.calls.Close())
}

// heard records that the member called this one. It cancels an attempt to connect that hangs, and triggers a new one.
func (l *link) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.heard = time.Now()
	if l.state.connected {
		return
	}
	if l.dialling != nil && time.Since(l.dialled) > hungDial {
		l.dialling()
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// send queues a frame for the member.
func (l *link) send(urgent bool, frame []byte) {
	if len(frame) > l.t.cfg.MaxFrame {
		l.oversized(len(frame))
		return
	}
	q := l.bulk
	if urgent {
		q = l.urgent
	}
	if !q.push(frame, time.Now()) {
		l.markLost()
	}
}

// markLost makes reportLost report lost frames.
func (l *link) markLost() {
	select {
	case l.lost <- struct{}{}:
	default:
	}
}

// reportLost calls Unreachable on a goroutine of its own: the goroutine that sends may be the one that must handle
// the report.
func (l *link) reportLost(ctx context.Context) {
	for {
		select {
		case <-l.lost:
			l.t.cfg.Unreachable(l.member)
		case <-ctx.Done():
			return
		}
	}
}

// run keeps the streams to the member open until ctx ends, or the transport is drained.
func (l *link) run(ctx context.Context) {
	failures := 0
	for {
		began := time.Now()
		connected, err := l.session(ctx)
		if ctx.Err() != nil || l.t.isDraining() {
			return
		}
		if connected && time.Since(began) > stableAfter {
			failures = 0
		}
		l.disconnected(l.explain(err))
		if !connected && l.hasOther() {
			l.hangUp() // another server may be there, and gRPC only dials without a connection
		}
		l.pause(ctx, failures)
		failures++
		if l.t.isDraining() {
			return
		}
	}
}

// pause waits before the next attempt to connect. It ends when the connection is ready, when the member calls this
// one, or after a time that grows with failures.
func (l *link) pause(ctx context.Context, failures int) {
	limit := l.t.cfg.retryLimit
	if failures < 5 {
		limit = backoff.Doubled(retryFirst, limit, failures)
	}
	ctx, cancel := context.WithTimeout(ctx, backoff.Below(limit, rand.Uint64()))
	defer cancel()
	if l.conn.GetState() == connectivity.TransientFailure {
		stands := make(chan struct{})
		go func() {
			defer close(stands)
			l.conn.WaitForStateChange(ctx, connectivity.TransientFailure)
			cancel()
		}()
		defer func() { <-stands }()
		defer cancel()
	}
	select {
	case <-l.wake:
	case <-l.t.draining.Done():
	case <-ctx.Done():
	}
	retryNow(l.conn)
	retryNow(l.calls)
}

// retryNow ends the backoff of a connection. gRPC only has one after a failure; before that, resetting it would race with
// gRPC's own first attempt to connect.
func retryNow(conn *grpc.ClientConn) {
	if conn.GetState() == connectivity.TransientFailure {
		conn.ResetConnectBackoff()
	}
}

// explain returns the reason for a missing connection in words for operators.
func (l *link) explain(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := status.FromError(err)
	switch {
	case !ok:
		return err
	case s.Code() == codes.Unimplemented:
		return fmt.Errorf("the server at %s is not a member of a cluster: correct the address of the member (%s)", l.address, s.Message())
	case s.Code() == codes.Unavailable && strings.Contains(s.Message(), "HTTP/1.1 header"):
		return errTLSThere
	case s.Code() == codes.Unavailable && l.connErr != nil:
		return l.connErr
	}
	return errors.New(s.Message())
}
