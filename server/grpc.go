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
)

// How connections are kept, as etcd does it: clients may ping every 5 s, also between requests, which is
// what its Go client is set to at most; the server looks after silent connections every two hours.
const (
	minPingInterval    = 5 * time.Second
	serverPingInterval = 2 * time.Hour
	serverPingTimeout  = 20 * time.Second
)

// requestWorkers is how many goroutines take requests in turn, so that their stacks have grown already. When
// all are busy, which long streams keep them for as long as they last, a request gets one of its own.
const requestWorkers = 512

// streamWindow is how much of one stream a client may send that is not read yet, and connWindow of all on one
// connection. They are fixed: one that grew by itself would be memory that nobody has bounded, and, to measure how large
// it should be, either side would answer each message with a ping and a pong beside it.
const (
	streamWindow = 64 << 10
	connWindow   = 1 << 20
)

func (s *Server) newGRPC() *grpc.Server {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(s.cfg.MaxRequestBytes + requestOverhead),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(uint32(s.cfg.MaxStreams)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPingInterval, Timeout: serverPingTimeout}),
		grpc.UnaryInterceptor(s.unaryOfClient),
		grpc.StreamInterceptor(s.streamOfClient),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.InTapHandle(s.atHeaders),
		// Stop must not return before the last handler has, or the node could be stopped under it.
		grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(handshakeLimit),
		grpc.NumStreamWorkers(requestWorkers),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ForceServerCodecV2(newCodec()),
	}
	if s.certs != nil {
		options = append(options, grpc.Creds(newOnlyTLS(s.certs.config("h2"), s.refusedPlain)))
	}
	g := grpc.NewServer(options...)
	for _, svc := range s.services() {
		g.RegisterService(svc.desc, svc.impl)
	}
	healthpb.RegisterHealthServer(g, &healthService{s: s})
	registerReflection(g)
	return g
}

// unary stands before every request of a client with one answer.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	resp, err := s.limited(ctx, req, info.FullMethod, handle)
	err = s.answerTo(info.FullMethod, err)
	s.metrics.count(info.FullMethod, err)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// limited carries a request out within its limits, here or where the leader is.
func (s *Server) limited(ctx context.Context, req any, method string, handle grpc.UnaryHandler) (any, error) {
	if s.forwarder != nil {
		here := handle
		handle = func(ctx context.Context, req any) (any, error) { return s.forwarder.Unary(ctx, method, req, here) }
	}
	if etcdapi.Waits(method) {
		return s.wait(ctx, req, handle)
	}
	return s.bounded(ctx, req, s.timeLimit(method), handle)
}

func (s *Server) bounded(ctx context.Context, req any, limit time.Duration, handle grpc.UnaryHandler) (any, error) {
	if lifetime.RequiresLeader(ctx) && s.serving() != nil {
		return nil, replica.ErrNoLeader
	}
	// A client that opens requests and resets them costs no more than this.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.limits.requests.Begin(); err != nil {
		return nil, err
	}
	defer s.limits.requests.End(1)
	if r, ok := req.(*pb.CompactionRequest); ok && r.Physical {
		return handle(ctx, req) // takes as long as there is to remove
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return handle(ctx, req)
}

// stream stands before every long stream of a client, which has no time limit. It is counted when it ends.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	err := s.answerTo(info.FullMethod, s.limitedStream(srv, stream, info.FullMethod, handle))
	s.metrics.count(info.FullMethod, err)
	return err
}

// limitedStream carries a stream out, here or where the leader is.
func (s *Server) limitedStream(srv any, stream grpc.ServerStream, method string, handle grpc.StreamHandler) error {
	if lifetime.RequiresLeader(stream.Context()) && s.serving() != nil {
		return replica.ErrNoLeader
	}
	if s.forwarder != nil {
		return s.forwarder.Stream(method, srv, stream, handle)
	}
	return handle(srv, stream)
}

// wait is bounded for requests that wait.
func (s *Server) wait(ctx context.Context, req any, handle grpc.UnaryHandler) (any, error) {
	if lifetime.RequiresLeader(ctx) && s.serving() != nil {
		return nil, replica.ErrNoLeader
	}
	share := s.limits.places.Join(admission.IdentityOf(ctx))
	defer share.Leave()
	if err := share.Take(); err != nil {
		return nil, err
	}
	defer share.Give(1)
	return handle(ctx, req)
}

// maintenanceLimit bounds the requests whose duration grows with the data, instead of Config.RequestTimeout.
const maintenanceLimit = time.Hour

// maintenanceMethods are those requests.
var maintenanceMethods = map[string]bool{
	pb.Maintenance_Defragment_FullMethodName: true,
	pb.Maintenance_Hash_FullMethodName:       true,
	pb.Maintenance_HashKV_FullMethodName:     true,
}

// timeLimit is how long a request with one answer may take.
func (s *Server) timeLimit(method string) time.Duration {
	if maintenanceMethods[method] {
		return maintenanceLimit
	}
	return s.cfg.RequestTimeout
}
