package endpoints

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/leasekeeper/leasekeeper/backend"
)

// DefaultRequestTimeout is how long one endpoint may take for one request while there is time to ask another.
const DefaultRequestTimeout = 3 * time.Second

// How a dead connection is noticed while nothing is asked on it, and how soon another is tried. gRPC pings
// no more often than every ten seconds.
const (
	pingInterval   = 10 * time.Second
	pingTimeout    = 3 * time.Second
	connectTimeout = 3 * time.Second
	maxReconnect   = time.Second
)

// defaultPort is the port of an endpoint without one: the port of etcd and of our server.
const defaultPort = "2379"

// Config says how to connect. Endpoints is required.
type Config struct {
	// Endpoints are members of one cluster, as host, host:port, or any target that gRPC's resolvers understand.
	Endpoints []string
	// TLS encrypts connections; nil means plain text.
	TLS *tls.Config
	// RequestTimeout is how long one endpoint may take for one request while there is time to ask another. 0 means
	// [DefaultRequestTimeout].
	RequestTimeout time.Duration
	// DialOptions follow the options of this package, and override them.
	DialOptions []grpc.DialOption
}

// Validate returns an error if a configuration is wrong.
func (s *Store) Validate(c Config) error {
	if len(c.Endpoints) == 0 {
		return fmt.Errorf("%w: no endpoint of %s is given: give at least one, as in %s://host:2379", backend.ErrInvalid, s.Indefinite, s.Scheme)
	}
	for _, e := range c.Endpoints {
		if strings.TrimSpace(e) == "" {
			return fmt.Errorf("%w: one of the endpoints of %s is empty", backend.ErrInvalid, s.Name)
		}
		if !portExists(e) {
			return fmt.Errorf("%w: the endpoint %q of %s has no possible port: ports are 1 to 65535", backend.ErrInvalid, e, s.Name)
		}
	}
	if c.RequestTimeout < 0 {
		return fmt.Errorf("%w: the request timeout is negative: give a positive one, or 0 for the default", backend.ErrInvalid)
	}
	return nil
}

// Set has the connections of one backend. W is what the backend keeps for each: its gRPC stubs. All methods are safe for
// concurrent use.
type Set[W any] struct {
	// Closed is the error of calls that Close ends, or that come after it.
	Closed error
	// Base ends when Close closes the connections.
	Base context.Context

	store     *Store
	patience  time.Duration // for one request at one endpoint
	endpoints []W
	conns     []*grpc.ClientConn
	preferred atomic.Int64 // increments when a request leaves an endpoint; modulo the number of endpoints
	endBase   context.CancelCauseFunc
	spawned   sync.WaitGroup // goroutines that may outlive the call that started them
	renewals  renewals

	mu     sync.Mutex
	calls  int
	closed bool
	idle   chan struct{} // closed when the set is closed and no call is under way
	hung   sync.Once     // closes the connections
}

// Open returns the endpoints of a store. They connect at the first request.
func Open[W any](store *Store, cfg Config, stubs func(*grpc.ClientConn) W) (*Set[W], error) {
	s := &Set[W]{
		Closed: fmt.Errorf("%w: the connections to %s are closed", backend.ErrClosed, store.Name),
		store:  store, patience: cfg.RequestTimeout, idle: make(chan struct{}),
	}
	if s.patience == 0 {
		s.patience = DefaultRequestTimeout
	}
	s.Base, s.endBase = context.WithCancelCause(context.Background())
	endpoints := cfg.Endpoints
	if len(endpoints) == 1 {
		// A single endpoint has two connections: the second one serves if the first is dead.
		endpoints = []string{endpoints[0], endpoints[0]}
	}
	for _, endpoint := range endpoints {
		conn, err := connect(WithPort(endpoint), cfg)
		if err != nil {
			s.endBase(s.Closed)
			s.hangUp()
			return nil, fmt.Errorf("%w: the endpoint %q of %s: %w", backend.ErrInvalid, endpoint, store.Name, err)
		}
		s.conns, s.endpoints = append(s.conns, conn), append(s.endpoints, stubs(conn))
	}
	return s, nil
}

// streamWindow is how many unread bytes the server may send on one stream, and connWindow on one connection. They are fixed:
// gRPC measures a size of its own with a ping for each message.
const (
	streamWindow = 1 << 20
	connWindow   = 8 << 20
)

func connect(endpoint string, cfg Config) (*grpc.ClientConn, error) {
	secured := insecure.NewCredentials()
	if cfg.TLS != nil {
		secured = credentials.NewTLS(cfg.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secured),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 2, Jitter: 0.2, MaxDelay: maxReconnect},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		// This package decides what is sent again, and when. The environment cannot set a proxy.
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	}
	options = append(options, tracing()...)
	return grpc.NewClient(endpoint, append(options, cfg.DialOptions...)...)
}

// WithPort adds the default port to a host without one. It returns other targets of gRPC as they are.
func WithPort(endpoint string) string {
	if strings.Contains(endpoint, "://") || strings.HasPrefix(endpoint, "unix:") {
		return endpoint
	}
	if _, _, err := net.SplitHostPort(endpoint); err == nil {
		return endpoint
	}
	return net.JoinHostPort(strings.Trim(endpoint, "[]"), defaultPort)
}

// portExists returns false if an endpoint has a port whose number no port can have. The resolvers of gRPC judge all else.
func portExists(endpoint string) bool {
	_, port, err := net.SplitHostPort(WithPort(endpoint))
	if err != nil {
		return true
	}
	n, err := strconv.Atoi(port)
	if errors.Is(err, strconv.ErrSyntax) {
		return true // the name of a service
	}
	return err == nil && n > 0 && n <= math.MaxUint16
}

// All returns every endpoint.
func (s *Set[W]) All() []W { return s.endpoints }

// Patience is how long one endpoint may take for one request while there is time to ask another.
func (s *Set[W]) Patience() time.Duration { return s.patience }

// Endpoint returns the preferred endpoint, and its number for Leave.
func (s *Set[W]) Endpoint() (W, int64) {
	n := s.preferred.Load()
	return s.endpoints[n%int64(len(s.endpoints))], n
}

// Leave makes the next request take another endpoint, unless another request has left this one already.
func (s *Set[W]) Leave(n int64) { s.preferred.CompareAndSwap(n, n+1) }

// Begin notes that a call begins, and end that it ends. The context that Begin returns also ends when Base does.
func (s *Set[W]) Begin(ctx context.Context) (inner context.Context, end func(), err error) {
	if err := s.Enter(); err != nil {
		return nil, nil, err
	}
	inner, unbind := s.Bind(ctx)
	return inner, func() { unbind(); s.Exit() }, nil
}

// Bind returns a context that also ends when Base does.
func (s *Set[W]) Bind(ctx context.Context) (bound context.Context, unbind func()) {
	bound, cancel := context.WithCancelCause(ctx)
	leave := context.AfterFunc(s.Base, func() { cancel(s.Closed) })
	return bound, func() { leave(); cancel(nil) }
}

// Enter is Begin for calls that watch Base themselves. Exit ends them.
func (s *Set[W]) Enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.Closed
	}
	s.calls++
	return nil
}

// Exit ends a call that [Set.Enter] began.
func (s *Set[W]) Exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls--; s.calls == 0 && s.closed {
		close(s.idle)
	}
}

// Spawn starts a goroutine that Close waits for. The goroutine must end soon after Base. Spawn returns false if the set is
// closed.
func (s *Set[W]) Spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.spawned.Go(f)
	return true
}

// Close closes the connections. Calls under way end with [Set.Closed], or with [backend.ErrUnknownOutcome] if they may have
// had an effect. Close waits for them until ctx ends.
func (s *Set[W]) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		if s.calls == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	s.endBase(s.Closed)
	var err error
	select {
	case <-s.idle:
	case <-ctx.Done():
		err = fmt.Errorf("closing the connections to %s: calls are still under way: %w", s.store.Name, context.Cause(ctx))
	}
	s.hangUp()
	s.spawned.Wait() // soon: their streams have ended
	return err
}

func (s *Set[W]) hangUp() {
	s.hung.Do(func() {
		for _, conn := range s.conns {
			conn.Close()
		}
	})
}
