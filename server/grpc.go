package server

import (
	"context"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

// Keepalive of connections, with etcd's values. Clients may ping every 5 s, also between requests; etcd's Go client
// does not ping more often. The server pings silent connections every two hours.
const (
	minPingInterval    = 5 * time.Second
	serverPingInterval = 2 * time.Hour
	serverPingTimeout  = 20 * time.Second
)

// requestWorkers is the number of reused goroutines for requests, whose stacks have already grown. When long streams
// occupy all of them, a request gets a new goroutine.
const requestWorkers = 512

// streamWindow bounds the unread bytes of one stream, and connWindow those of one connection. They are fixed, because a
// growing window is unbounded memory. To measure its best size, both sides would also answer each message with a ping
// and a pong.
const (
	streamWindow = 64 << 10
	connWindow   = 1 << 20
)

func (s *Server) newGRPC() (*grpc.Server, error) {
	var secure *onlyTLS
	if s.certs != nil {
		secure = newOnlyTLS(s.certs, s.plainConnectionRefused)
	}
	protocols, err := newProtocols(secure, s.cfg.MaxStreams, s.handed, s.life)
	if err != nil {
		return nil, err
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(s.cfg.MaxRequestBytes + requestOverhead),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(uint32(s.cfg.MaxStreams)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPingInterval, Timeout: serverPingTimeout}),
		grpc.UnaryInterceptor(s.interceptClientUnary),
		grpc.StreamInterceptor(s.interceptClientStream),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.InTapHandle(s.admitHeaders),
		// Stop must not return before the last handler, or the caller could stop the node while a handler uses it.
		grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(handshakeLimit),
		grpc.NumStreamWorkers(requestWorkers),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.Creds(protocols),
	}
	g := grpc.NewServer(options...)
	for _, svc := range s.services() {
		g.RegisterService(svc.desc, svc.impl)
	}
	healthpb.RegisterHealthServer(g, &healthService{s: s})
	registerReflection(g)
	return g, nil
}

// unary runs a unary request of a client, and turns its error into a status.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	resp, err := s.limited(ctx, req, info.FullMethod, handle)
	err = s.toStatus(ctx, info.FullMethod, err)
	s.metrics.countResult(info.FullMethod, err)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// limited runs a unary request within its limits, here or at the leader.
func (s *Server) limited(ctx context.Context, req any, method string, handle grpc.UnaryHandler) (any, error) {
	handle = s.guard.Unary(method, handle)
	if s.forwarder != nil {
		here := handle
		handle = func(ctx context.Context, req any) (any, error) { return s.forwarder.Unary(ctx, method, req, here) }
	}
	if etcdapi.Waits(method) {
		return s.runWaiting(ctx, req, handle)
	}
	began := time.Now()
	resp, err := s.runBounded(ctx, req, s.timeLimit(method), handle)
	if took := time.Since(began); took >= s.slow.after {
		s.logSlow(tracing.IDOf(ctx), method, took, err)
	}
	return resp, err
}

func (s *Server) runBounded(ctx context.Context, req any, limit time.Duration, handle grpc.UnaryHandler) (any, error) {
	if lifetime.RequiresLeader(ctx) && s.serving() != nil {
		return nil, replica.ErrNoLeader
	}
	// A client that opens requests and resets them causes no more work than this.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	user := admission.UserOf(ctx)
	if err := s.limits.requests.Begin(user); err != nil {
		return nil, err
	}
	defer s.limits.requests.End(user, 1)
	if r, ok := req.(*pb.CompactionRequest); ok && r.Physical {
		return handle(ctx, req) // takes as long as there are revisions to remove
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return handle(ctx, req)
}

// refused returns the status of a request that has not begun, and counts it.
func (s *Server) refused(ctx context.Context, method string, err error) error {
	err = s.toStatus(ctx, method, err)
	s.metrics.countResult(method, err)
	return err
}

// stream runs a long stream of a client, which has no time limit. The stream is counted when it ends.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	user := admission.UserOf(stream.Context())
	if s.limits.streams.Begin(user) != nil {
		return s.refused(stream.Context(), info.FullMethod, admission.ErrNoStreams)
	}
	defer s.limits.streams.End(user, 1)
	err := s.toStatus(stream.Context(), info.FullMethod, s.limitedStream(srv, stream, info.FullMethod, handle))
	s.metrics.countResult(info.FullMethod, err)
	return err
}

// limitedStream runs a stream, here or at the leader.
func (s *Server) limitedStream(srv any, stream grpc.ServerStream, method string, handle grpc.StreamHandler) error {
	if lifetime.RequiresLeader(stream.Context()) && s.serving() != nil {
		return replica.ErrNoLeader
	}
	handle = s.guard.Stream(method, handle)
	if s.forwarder != nil {
		return s.forwarder.Stream(method, srv, stream, handle)
	}
	return handle(srv, stream)
}

// runWaiting runs a request that waits for a lock or an election. It has no time limit, and takes one of the waiting
// places.
func (s *Server) runWaiting(ctx context.Context, req any, handle grpc.UnaryHandler) (any, error) {
	if lifetime.RequiresLeader(ctx) && s.serving() != nil {
		return nil, replica.ErrNoLeader
	}
	share := s.limits.places.Join(admission.IdentityOf(ctx))
	defer share.Leave()
	if err := share.Take(); err != nil {
		return nil, err
	}
	defer share.Release(1)
	return handle(ctx, req)
}

// maintenanceLimit bounds requests whose duration grows with the data. It replaces Config.RequestTimeout for them.
const maintenanceLimit = time.Hour

// maintenanceMethods are the methods whose duration grows with the data.
var maintenanceMethods = map[string]bool{
	pb.Maintenance_Defragment_FullMethodName: true,
	pb.Maintenance_Hash_FullMethodName:       true,
	pb.Maintenance_HashKV_FullMethodName:     true,
}

// timeLimit returns how long a unary request may take.
func (s *Server) timeLimit(method string) time.Duration {
	if maintenanceMethods[method] {
		return maintenanceLimit
	}
	return s.cfg.RequestTimeout
}
