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
	// gzip lets clients compress their requests. The server compresses its answers in the same way, as etcd does. Size
	// limits apply to the decompressed message.
	_ "google.golang.org/grpc/encoding/gzip"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server/internal/backup"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/forwarding"
	"github.com/leasekeeper/leasekeeper/server/internal/guard"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
	"github.com/leasekeeper/leasekeeper/server/internal/opening"
	"github.com/leasekeeper/leasekeeper/server/internal/pages"
)

// Server serves one member to clients. Make one with [New]. Its methods are safe for concurrent use.
type Server struct {
	cfg    Config
	log    *slog.Logger
	member member

	grpc       *grpc.Server
	http       *http.Server    // of the port for HTTP; nil if that is off
	clientHTTP *http.Server    // of the client port
	handed     *opening.Handed // of clientHTTP
	gateway    *gateway
	etcdJSON   *etcdJSON
	console    *pages.Pages // nil if it is off
	metrics    *metrics
	readiness  *readiness
	certs      *certificates // nil without TLS
	limits     *limits
	budget     *budget
	// arrivalLimit is the constant of that name, except in tests.
	arrivalLimit time.Duration
	slow         slowLog
	guard        *guard.Guard
	names        *namesapi.Service
	etcd         *etcdapi.API
	bulk         *keyspace.Turns // of work that must leave processors free for other work

	clusterNode clusterNode           // nil if the member is alone
	forwarder   *forwarding.Forwarder // nil if the member is alone
	incoming    *forwarding.Incoming  // nil if the member is alone
	reports     *reports              // nil if the member is alone
	backups     *backup.Schedule      // nil if none are made

	life *lifetime.Lifetime

	mu           sync.Mutex
	phase        phase
	grpcListener net.Listener // nil before Start
	httpListener net.Listener
	failure      error         // why a listener failed; nil if none did
	done         chan struct{} // closed when everything has ended
}

// phase is how far a Server is in its life. It only increases.
type phase int

const (
	prepared phase = iota
	started
	stopped // or stopping, until done is closed
)

// New checks the configuration and prepares a server for the node. The caller starts the node before New, and stops it
// after the server. Nothing listens before [Server.Start].
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
	s := &Server{cfg: cfg, log: cfg.Logger, member: clientNaming{m}, readiness: newReadiness(), limits: newLimits(cfg), budget: newBudget(cfg.MemoryLimit), arrivalLimit: arrivalLimit, slow: slowLog{after: slowRequest}, bulk: newBulk(), done: make(chan struct{})}
	var err error
	if s.certs, err = newCertificates(cfg); err != nil {
		return nil, err
	}
	if s.backups, err = newBackups(cfg, m); err != nil {
		return nil, err
	}
	var leader func() (id, term uint64)
	if cfg.Cluster != nil {
		s.clusterNode, s.reports, leader = m, newReports(s), m.Leader
	}
	s.life = lifetime.New(leader)
	if err = s.newGuard(); err != nil {
		return nil, err
	}
	if err = s.connectForwarding(); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(cfg, m)
	s.metrics.backups = s.backups
	s.names, s.etcd = s.newNames(), s.newEtcd()
	s.handed = opening.NewHanded()
	if s.grpc, err = s.newGRPC(); err != nil {
		return nil, err
	}
	s.metrics.addMethods(s.grpc.GetServiceInfo())
	if s.clusterNode != nil {
		s.metrics.cluster = s
	}
	s.limits.register(s.metrics.registry)
	if s.certs != nil {
		s.certs.register(s.metrics.registry)
	}
	if s.gateway, err = newGateway(s); err != nil {
		return nil, err
	}
	if s.etcdJSON, err = newEtcdJSON(s, s.gateway.conn); err != nil {
		return nil, err
	}
	operations := s.operations()
	s.clientHTTP = s.newClientHTTP(operations)
	if cfg.ListenHTTP != HTTPOff {
		if !cfg.ConsoleOff {
			if s.console, err = s.newConsole(); err != nil {
				return nil, err
			}
		}
		s.http = s.newHTTP(operations)
	}
	s.registerForPeers()
	return s, nil
}

func (s *Server) newNames() *namesapi.Service {
	return namesapi.New(namesapi.Config{
		Member: guard.Names{Member: s.member, Guard: s.guard}, Rights: s.guard, Metrics: s.metrics, Log: s.log, Lifetime: s.life,
		Requests: s.limits.requests, Places: s.limits.places, Watchers: s.limits.watchers, LogSlow: s.logSlow,
		RequestTimeout: s.cfg.RequestTimeout, MaxTTL: s.cfg.MaxTTL, MaxStreams: s.cfg.MaxStreams,
	})
}

// Start binds the listeners and begins to serve. It returns nil once both are bound. If that fails, it returns the
// reason, and nothing listens. It succeeds at most once.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != prepared {
		return errors.New("server: Start was called twice: make a new server")
	}
	grpcListener, err := listen(s.cfg.ListenClient, "--listen")
	if err != nil {
		return err
	}
	if s.http != nil {
		if s.httpListener, err = listen(s.cfg.ListenHTTP, "--http"); err != nil {
			grpcListener.Close()
			return err
		}
		s.startConsole(grpcListener.Addr(), s.httpListener.Addr())
	}
	s.grpcListener = grpcListener
	s.handed.Address = grpcListener.Addr()
	// What requests read is set before the first goroutine serves any.
	s.gateway.start(grpcListener.Addr(), listenAddr(s.httpListener))
	if s.http != nil {
		s.life.Go(func() {
			s.listenerFailed("http", s.http.Serve(s.withTLS(s.bound(s.httpListener, s.limits.connections[1], nil))))
		})
	}
	s.life.Go(func() { s.listenerFailed("http of clients", s.clientHTTP.Serve(s.handed)) })
	s.life.Go(func() {
		s.listenerFailed("grpc", s.grpc.Serve(s.bound(grpcListener, s.limits.connections[0], s.budget)))
	})
	s.life.Go(s.pollReadiness)
	s.life.Go(s.watchArrivals)
	s.life.Go(s.names.EndAbandoned)
	if s.certs != nil {
		s.life.Go(func() { s.certs.source.EndRevoked(s.life.Context()) })
	}
	if s.reports != nil {
		s.life.Go(s.reports.refresh)
	}
	if s.backups != nil {
		s.life.Go(func() { s.backups.Run(s.life.Context()) })
	}
	s.phase = started
	s.warnOfOpenAccess()
	s.log.Info("listening", "grpc", address(s.grpcListener), "http", address(s.httpListener))
	return nil
}

// Serve starts the server, and stops it when ctx ends or the server can no longer serve. grace bounds how long stopping
// waits for open requests.
func (s *Server) Serve(ctx context.Context, grace time.Duration) error {
	if err := s.Start(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.life.Done():
	}
	cause := s.life.Err() // before Stop sets its own
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(cause, s.Stop(limit))
}

// listenerFailed ends the server because of a failed listener, unless Stop has closed the listener.
func (s *Server) listenerFailed(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == stopped {
		return
	}
	s.failure = errors.Join(s.failure, fmt.Errorf("server: serving %s: %w", name, err))
	s.log.Error("a listener has failed", "listener", name, "error", err)
	s.readiness.end()
	s.life.End(s.failure)
}

// AnnounceStop reports over health that the server is not ready, from now on until it has stopped. The server still
// serves. Call it before a leader hands over, so that nobody sends new clients to a member that is about to stop.
func (s *Server) AnnounceStop() { s.readiness.end() }

// Stop ends the server. It reports over health that the server is not serving, and ends long streams. Open unary
// requests may finish until ctx ends. Stop then cuts off the rest, and its error says so. All goroutines have ended
// when it returns. A second call waits for the first.
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
	s.readiness.end()
	s.life.End(lifetime.ErrStopping)
	err := s.stopGRPC(ctx)
	if s.console != nil {
		err = errors.Join(err, s.console.Close())
	}
	for _, h := range []*http.Server{s.http, s.clientHTTP} {
		if h != nil && h.Shutdown(ctx) != nil {
			h.Close()
		}
	}
	s.handed.Close() // if Start was never called, clientHTTP does not know it
	s.gateway.stop()
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

// Done is closed when the server can no longer serve, or when Stop is called. The first happens when a listener fails,
// the member ends, or it was removed from its cluster. The caller must call Stop in any case.
func (s *Server) Done() <-chan struct{} { return s.life.Done() }

// Err returns why a listener failed, nil if none did.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Addr returns the address of the gRPC listener, "" before Start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return address(s.grpcListener)
}

// HTTPAddr returns the address of the HTTP listener, "" before Start or if HTTP is off.
func (s *Server) HTTPAddr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return address(s.httpListener)
}

// clientURLs returns the URLs at which clients reach this server. Before Start it returns only configured ones.
func (s *Server) clientURLs() []string {
	return s.cfg.clientURLs(s.Addr())
}

// listenAddr returns the address of a listener, nil for nil.
func listenAddr(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

func address(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}
