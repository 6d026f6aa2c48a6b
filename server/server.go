package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	// Clients may compress what they send, and are answered in kind, as by etcd. The limits on sizes are of
	// what comes out.
	_ "google.golang.org/grpc/encoding/gzip"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/forwarding"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
)

// Server serves one member to clients. Make one with [New]. Its methods are safe for concurrent use.
type Server struct {
	cfg    Config
	log    *slog.Logger
	member member

	grpc    *grpc.Server
	http    *http.Server // nil if HTTP is off
	gateway *gateway     // likewise
	metrics *metrics
	pulse   *pulse
	certs   *certificates // nil without TLS
	limits  *limits
	budget  *budget
	// arrivalLimit is the constant of that name, but in tests.
	arrivalLimit time.Duration
	names        *namesapi.Service
	etcd         *etcdapi.API
	bulk         *keyspace.Turns // of work that must leave processors to others

	leading   leading               // nil if the member is alone
	forwarder *forwarding.Forwarder // likewise
	incoming  *forwarding.Incoming  // likewise
	peers     *peers                // likewise

	life *lifetime.Lifetime

	mu           sync.Mutex
	phase        phase
	grpcListener net.Listener // nil before Start
	httpListener net.Listener
	failure      error         // of a listener
	done         chan struct{} // closed when everything has ended
}

// phase only grows.
type phase int

const (
	prepared phase = iota
	started
	stopped // or stopping, until done is closed
)

// New checks the configuration and prepares a server for the node, which the caller has started and stops
// after the server. Nothing is bound before [Server.Start].
func New(cfg Config, node *node.Node) (*Server, error) {
	if node == nil {
		return nil, errors.New("server: no node to serve")
	}
	return newServer(cfg, node)
}

func newServer(cfg Config, m member) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Logger, member: m, pulse: newPulse(), limits: newLimits(cfg), budget: newBudget(cfg.MemoryLimit), arrivalLimit: arrivalLimit, bulk: newBulk(), done: make(chan struct{})}
	var err error
	if s.certs, err = newCertificates(cfg); err != nil {
		return nil, err
	}
	var leader func() (id, term uint64)
	if cfg.Cluster != nil {
		s.leading, s.peers, leader = m, newPeers(s), m.Leader
	}
	s.life = lifetime.New(leader)
	if err = s.connect(); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(cfg, m)
	s.names, s.etcd = s.newNames(), s.newEtcd()
	s.grpc = s.newGRPC()
	s.metrics.addMethods(s.grpc.GetServiceInfo())
	if s.leading != nil {
		s.metrics.group = s
	}
	s.limits.register(s.metrics.registry)
	if s.certs != nil {
		s.certs.register(s.metrics.registry)
	}
	if cfg.ListenHTTP != HTTPOff {
		if s.gateway, err = newGateway(s); err != nil {
			return nil, err
		}
		s.http = s.newHTTP()
	}
	s.registerForPeers()
	return s, nil
}

func (s *Server) newNames() *namesapi.Service {
	return namesapi.New(namesapi.Config{
		Member: s.member, Metrics: s.metrics, Log: s.log, Lifetime: s.life,
		Requests: s.limits.requests, Places: s.limits.places, Watchers: s.limits.watchers,
		RequestTimeout: s.cfg.RequestTimeout, MaxTTL: s.cfg.MaxTTL, MaxStreams: s.cfg.MaxStreams,
	})
}

// Start binds the listeners and begins to serve. It returns once both are bound, or with the reason why
// that is not possible; then nothing is left open. It succeeds at most once.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != prepared {
		return errors.New("server: it can be started only once")
	}
	grpcListener, err := listen(s.cfg.ListenClient, "--listen")
	if err != nil {
		return err
	}
	if s.http != nil {
		httpListener, err := listen(s.cfg.ListenHTTP, "--http")
		if err != nil {
			grpcListener.Close()
			return err
		}
		s.httpListener = httpListener
		s.gateway.start(grpcListener.Addr(), httpListener.Addr())
		s.life.Go(func() {
			s.fail("http", s.http.Serve(s.overTLS(s.bound(httpListener, s.cfg.MaxConnectionsHTTP, &s.limits.connections[1]))))
		})
	}
	s.grpcListener = grpcListener
	s.life.Go(func() { s.fail("grpc", s.grpc.Serve(s.boundClients(grpcListener))) })
	s.life.Go(s.beat)
	s.life.Go(s.watchArrivals)
	s.life.Go(s.names.EndLeft)
	if s.peers != nil {
		s.life.Go(s.peers.follow)
	}
	s.phase = started
	s.warnOfOpenAccess()
	s.log.Info("listening", "grpc", address(s.grpcListener), "http", address(s.httpListener))
	return nil
}

// Serve is [Server.Start] followed by [Server.Stop] when ctx ends, or when the server cannot go on; grace
// bounds the latter.
func (s *Server) Serve(ctx context.Context, grace time.Duration) error {
	if err := s.Start(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.life.Done():
	}
	cause := s.life.Err() // before Stop gives its own
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(cause, s.Stop(limit))
}

// fail notes that a listener is of no use any more, unless that is because of Stop.
func (s *Server) fail(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == stopped {
		return
	}
	s.failure = errors.Join(s.failure, fmt.Errorf("server: serving %s: %w", name, err))
	s.log.Error("a listener has failed", "listener", name, "error", err)
	s.pulse.end()
	s.life.End(s.failure)
}

// Stop ends the server: health first says that it is not serving, then long streams are ended, and requests
// that are under way may finish until ctx ends. What is left then is cut off, which the error says. In
// every case all goroutines have ended when Stop returns. Calling it again waits for the first call.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	before := s.phase
	s.phase = stopped
	s.mu.Unlock()
	if before == stopped {
		<-s.done
		return nil
	}
	defer close(s.done)
	s.pulse.end()
	s.life.End(lifetime.ErrStopping)
	err := s.stopGRPC(ctx)
	if s.http != nil {
		if s.http.Shutdown(ctx) != nil {
			s.http.Close()
		}
		s.gateway.stop()
	}
	if s.incoming != nil {
		err = errors.Join(err, s.incoming.Close(ctx))
	}
	s.life.Wait()
	s.log.Info("stopped")
	return err
}

func (s *Server) stopGRPC(ctx context.Context) error {
	graceful := make(chan struct{})
	s.life.Go(func() {
		defer close(graceful)
		s.grpc.GracefulStop()
	})
	select {
	case <-graceful:
		return nil
	case <-ctx.Done():
	}
	s.grpc.Stop()
	<-graceful
	return fmt.Errorf("server: requests were cut off while stopping: %w", context.Cause(ctx))
}

// Done is closed when the server cannot go on, or is being stopped: a listener has failed, the member has
// ended, or Stop was called. The caller must call Stop in any case.
func (s *Server) Done() <-chan struct{} { return s.life.Done() }

// Err returns why a listener failed, nil if none did.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Addr returns the address that gRPC is served on, "" before Start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return address(s.grpcListener)
}

// HTTPAddr returns the address that HTTP is served on, "" before Start and if it is off.
func (s *Server) HTTPAddr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return address(s.httpListener)
}

// clientURLs returns the URLs that clients connect to. It returns none before Start, unless the configuration has some.
func (s *Server) clientURLs() []string {
	if len(s.cfg.Advertise) == 0 {
		addr := s.Addr()
		if addr == "" {
			return nil
		}
		return []string{s.cfg.scheme() + "://" + addr}
	}
	urls := make([]string, len(s.cfg.Advertise))
	for i, entry := range s.cfg.Advertise {
		// Validate has seen each of them.
		urls[i], _ = clientURL(entry, s.cfg.scheme())
	}
	return urls
}

func address(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}
