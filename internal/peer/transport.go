package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/leasekeeper/leasekeeper/internal/certificate"
	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

const (
	// messageOverhead bounds the bytes of a message besides its frames.
	messageOverhead = 64 << 10
	// maxRequests bounds the concurrent calls on one connection of another member.
	maxRequests = 1 << 16
	// keepaliveAfter is the time after which a silent connection is probed, and keepaliveLimit the time after which a
	// probed connection is closed.
	keepaliveAfter = time.Second
	keepaliveLimit = 2 * time.Second
	// drainLimit bounds the time for which a closing transport sends queued frames.
	drainLimit = 500 * time.Millisecond
)

// A Transport connects one member with all others. [Transport.SetMembers] changes which those are. Its methods are safe for concurrent use.
type Transport struct {
	cfg      Config
	certs    *certificate.Source // nil without TLS
	known    atomic.Pointer[directory]
	follows  atomic.Bool // SetMembers was called, so addresses come from a list that changes
	server   *grpc.Server
	refusals refusals
	created  time.Time // pings count from here

	ctx      context.Context // ends when the transport is closed
	cancel   context.CancelFunc
	draining context.Context // ends when only queued frames may still be sent
	drain    context.CancelFunc

	streams  sync.WaitGroup // the links' goroutines
	serving  sync.WaitGroup // the server's
	requests sync.WaitGroup // calls of other members, and states in transfer

	mu              sync.Mutex // also guards replacements of known
	started, closed bool
	list            []roster.Member // the members that SetMembers received last, for members that join; nil before
	ended           chan struct{}   // closed when all goroutines have ended
	served          error           // why the listener failed
}

// New makes a transport and reads the certificate files. The transport does nothing before Start.
func New(cfg Config) (*Transport, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	t := &Transport{cfg: cfg, created: time.Now(), ended: make(chan struct{})}
	t.known.Store(new(directory))
	var err error
	if t.certs, err = openCertificates(&t.cfg); err != nil {
		return nil, err
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.draining, t.drain = context.WithCancel(t.ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.connectTo(cfg.Members); err != nil {
		t.cancel()
		return nil, errors.Join(err, t.closeLinks())
	}
	t.server = t.newServer()
	peerpb.RegisterPeerServer(t.server, &service{t: t})
	return t, nil
}

func (t *Transport) newServer() *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(credentialsFor(t.certs, nil)),
		grpc.MaxRecvMsgSize(t.maxMessage()),
		grpc.MaxSendMsgSize(math.MaxInt32), // answers to clients, which this member made itself
		grpc.MaxConcurrentStreams(maxRequests),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveAfter, Timeout: keepaliveLimit}),
		grpc.ConnectionTimeout(connectLimit),
		grpc.UnaryInterceptor(t.unary),
		grpc.StreamInterceptor(t.stream),
		grpc.WaitForHandlers(true),
	)
}

// maxMessage returns the size of the largest message.
func (t *Transport) maxMessage() int {
	return max(t.cfg.MaxFrame, maxBatch) + chunkSize + messageOverhead
}

// RegisterService implements [grpc.ServiceRegistrar]: it offers a service to the other members, for the calls of
// clients that they forward. It may only be called before Start.
func (t *Transport) RegisterService(desc *grpc.ServiceDesc, impl any) {
	t.server.RegisterService(desc, impl)
}

// Start begins to listen and to connect.
func (t *Transport) Start() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started || t.closed {
		return errors.New("peer: a transport is started once, and not after it was closed")
	}
	t.started = true
	if t.Open() {
		t.cfg.Logger.Warn("members are connected without TLS: anyone who reaches the port can act as a member; see --peer-cert, "+
			"--peer-key and --peer-ca", "address", t.cfg.Listener.Addr().String())
	}
	t.serving.Go(t.serve)
	t.serving.Go(t.endIdleGuests)
	if t.certs != nil {
		t.serving.Go(func() { t.certs.EndRevoked(t.ctx) })
	}
	for _, l := range t.known.Load().links {
		t.startLink(l)
	}
	return nil
}

func (t *Transport) serve() {
	err := t.server.Serve(&boundedListener{Listener: t.cfg.Listener, limit: t.cfg.MaxConnections, log: t.cfg.Logger})
	if t.isDraining() {
		return
	}
	t.cfg.Logger.Error("the listener for members has failed: members can no longer connect to this one", "error", err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.served = err
}

// Open reports whether programs on other machines can act as a member without proof: TLS is off, and the listener is
// reachable from other machines.
func (t *Transport) Open() bool { return t.certs == nil && beyondLoopback(t.cfg.Listener.Addr()) }

// beyondLoopback reports whether programs on other machines can connect to an address.
func beyondLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

func memberID(id uint64) slog.Value { return slog.StringValue(fmt.Sprintf("%x", id)) }

func (t *Transport) isDraining() bool { return t.draining.Err() != nil }

// Send queues a frame for another member. It never waits, and the frame may be lost. The caller must not change the
// frame afterwards. Frames for unknown members are dropped.
func (t *Transport) Send(to uint64, urgent bool, frame []byte) {
	if l := t.link(to); l != nil && !t.isDraining() {
		l.send(urgent, frame)
	}
}

// Conn returns the connection for clients' calls that another member must answer, or nil if there is no such member. It
// may be closed if the address of the member changes, so callers do not keep it.
func (t *Transport) Conn(to uint64) grpc.ClientConnInterface {
	if l := t.link(to); l != nil {
		return l.calls
	}
	return nil
}

// Status returns the states of the connections with the other members, in the order of their IDs.
func (t *Transport) Status() []PeerStatus {
	known := t.known.Load()
	list := make([]PeerStatus, 0, len(known.links))
	for _, member := range slices.Sorted(maps.Keys(known.addresses)) {
		if l := known.links[member]; l != nil {
			list = append(list, l.status())
		}
	}
	return list
}

// ships registers a state in transfer, in or out. It reports false if the transport is closing.
func (t *Transport) ships(in bool) bool {
	if !in {
		t.requests.Done()
		return true
	}
	_, err := t.begin()
	return err == nil
}

// Close ends all connections, and waits for every goroutine. It first sends queued frames to connected members, for
// up to drainLimit. Calls of other members may finish until ctx ends; then Close cuts them off and returns ctx's
// error. The caller of Close must first end whatever those calls wait for.
func (t *Transport) Close(ctx context.Context) error {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	t.mu.Unlock()
	if first {
		t.drain()
		go t.end(ctx)
	}
	select {
	case <-t.ended:
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.served
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *Transport) end(ctx context.Context) {
	defer close(t.ended)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		t.streams.Wait()
	}()
	timer := time.NewTimer(drainLimit)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	case <-ctx.Done():
	}
	t.cancel() // also ends incoming frames, and states in both directions
	<-drained
	t.stopServing(ctx)
	t.closeLinks()
	t.serving.Wait()
}

// stopServing lets calls of other members finish until ctx ends, and sends their answers.
func (t *Transport) stopServing(ctx context.Context) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		t.server.GracefulStop()
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.requests.Wait()
	}()
	select {
	case <-ended:
		timer := time.NewTimer(drainLimit) // do not wait for a member that reads nothing
		defer timer.Stop()
		select {
		case <-stopped:
		case <-timer.C:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	t.server.Stop()
	<-stopped
	<-ended
}

func (t *Transport) closeLinks() error {
	var errs []error
	for _, l := range t.known.Load().links {
		errs = append(errs, l.close())
	}
	return errors.Join(errs...)
}
