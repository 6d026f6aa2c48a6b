package server

import (
	"context"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/replica"
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

func (s *Server) newGRPC() *grpc.Server {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(s.cfg.MaxRequestBytes + requestOverhead),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(uint32(s.cfg.MaxStreams)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPingInterval, Timeout: serverPingTimeout}),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		// Stop must not return before the last handler has, or the node could be stopped under it.
		grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(handshakeLimit),
		grpc.NumStreamWorkers(requestWorkers),
	}
	s.limits.watchers = make(map[string]*watchersOf)
	if s.certs != nil {
		options = append(options, grpc.Creds(newOnlyTLS(s.certs.config("h2"), s.refusedPlain)))
	}
	g := grpc.NewServer(options...)
	pb.RegisterKVServer(g, &kvService{s: s})
	pb.RegisterLeaseServer(g, &leaseService{s: s})
	pb.RegisterWatchServer(g, &watchService{s: s})
	pb.RegisterClusterServer(g, &clusterService{s: s})
	pb.RegisterMaintenanceServer(g, &maintenanceService{s: s})
	pb.RegisterAuthServer(g, &authService{s: s})
	healthpb.RegisterHealthServer(g, &healthService{s: s})
	v3lockpb.RegisterLockServer(g, &lockService{s: s})
	v3electionpb.RegisterElectionServer(g, &electionService{s: s})
	leasekeeperv1.RegisterLeasekeeperServer(g, &namesService{s: s})
	registerReflection(g)
	return g
}

// unary stands before every request with one answer.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	var resp any
	var err error
	if waits(info.FullMethod) {
		resp, err = s.wait(ctx, req, handle)
	} else {
		resp, err = s.bounded(ctx, req, s.timeLimit(info.FullMethod), handle)
	}
	err = s.answerTo(info.FullMethod, err)
	s.metrics.count(info.FullMethod, err)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (s *Server) bounded(ctx context.Context, req any, limit time.Duration, handle grpc.UnaryHandler) (any, error) {
	if requiresLeader(ctx) && s.serving() != nil {
		return nil, replica.ErrNoLeader
	}
	end, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	if r, ok := req.(*pb.CompactionRequest); ok && r.Physical {
		return handle(ctx, req) // takes as long as there is to remove
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return handle(ctx, req)
}

// stream stands before every long stream, which has no time limit. It is counted when it ends.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	var err error
	if requiresLeader(stream.Context()) && s.serving() != nil {
		err = replica.ErrNoLeader
	} else {
		err = handle(srv, stream)
	}
	err = s.answerTo(info.FullMethod, err)
	s.metrics.count(info.FullMethod, err)
	return err
}

// requiresLeader says whether a client wants an error rather than to wait for a leader.
func requiresLeader(ctx context.Context) bool {
	values := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	return len(values) > 0 && values[0] == rpctypes.MetadataHasLeader
}

// longStream returns the context of a stream that lives as long as its client wants. It also ends, and its
// cause says why, when the server or the member stops, and, if it is led or its client required it, when
// there has been no leader for a while. The caller must call end.
func (s *Server) longStream(stream grpc.ServerStream, led bool) (ctx context.Context, end context.CancelCauseFunc) {
	return s.long(stream.Context(), led)
}

// longCall is longStream for a request that waits for others.
func (s *Server) longCall(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	return s.long(ctx, false)
}

func (s *Server) long(ctx context.Context, led bool) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	leave := endWith(s.base, cancel)
	if !led && !requiresLeader(ctx) {
		return ctx, func(err error) { leave(); cancel(err) }
	}
	leaveLed := endWith(s.pulse.led(), cancel)
	return ctx, func(err error) { leave(); leaveLed(); cancel(err) }
}

// endWith ends a context for the same reason as parent. It costs no goroutine while nothing happens.
func endWith(parent context.Context, cancel context.CancelCauseFunc) (leave func() bool) {
	return context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
}

func header(h replica.Header) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID, Revision: h.Revision, RaftTerm: h.Term}
}

// headerAt is header for an answer that knows better which revision it is of.
func headerAt(h replica.Header, revision int64) *pb.ResponseHeader {
	if revision > 0 {
		h.Revision = revision
	}
	return header(h)
}
