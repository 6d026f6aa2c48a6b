package server

import (
	"cmp"
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

const (
	// readinessInterval is the time between two readiness checks.
	readinessInterval = 50 * time.Millisecond
	// leaderLostAfter is how long the member must have been without a leader before streams that require one end.
	// Shorter gaps belong to an ordinary election, and are not worth a reconnection.
	leaderLostAfter = time.Second
)

// readiness is the result of the last readiness check. It wakes goroutines that wait for a change.
type readiness struct {
	mu      sync.Mutex
	ready   bool
	final   bool          // the server is about to stop: it will not become ready again
	changed chan struct{} // closed at the next change
}

func newReadiness() *readiness { return &readiness{changed: make(chan struct{})} }

// get returns whether the member is ready, and a channel that is closed when that changes.
func (p *readiness) get() (ready bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready, p.changed
}

func (p *readiness) set(ready bool) (different bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready == ready || p.final {
		return false
	}
	p.ready = ready
	close(p.changed)
	p.changed = make(chan struct{})
	return true
}

// end sets readiness to false permanently.
func (p *readiness) end() {
	p.set(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.final = true
}

// ended reports whether end was called.
func (p *readiness) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.final
}

// pollReadiness checks readiness until the server stops, or the member has ended or was removed. In the last two cases
// all long streams end, and so does the server.
func (s *Server) pollReadiness() {
	ticker := time.NewTicker(readinessInterval)
	defer ticker.Stop()
	led := time.Now()
	for {
		if s.checkReadiness() {
			led = time.Now()
		} else if time.Since(led) > leaderLostAfter {
			// Repeat this later for streams that open in the meantime.
			s.life.LeaderLost()
			led = time.Now()
		}
		select {
		case <-ticker.C:
		case <-s.life.Done():
			return
		case <-s.member.Removed():
			s.endRemoved()
			return
		case <-s.member.Done():
			s.endWithMember()
			return
		}
	}
}

// endRemoved ends the server of a removed member. Requests that other members have received may still be answered.
func (s *Server) endRemoved() {
	s.readiness.end()
	s.log.Warn("this member was removed from the cluster, so the server finishes the open requests and stops")
	s.life.End(lifetime.ErrRemoved)
}

// endWithMember ends the server of a member that has ended.
func (s *Server) endWithMember() {
	select {
	case <-s.member.Removed(): // because of that
		s.endRemoved()
		return
	default:
	}
	s.readiness.end()
	s.log.Error("the member has ended, so the server stops", "error", s.member.Err())
	s.life.End(node.ErrStopped)
}

// checkReadiness checks once, and reports whether the member knows a leader.
func (s *Server) checkReadiness() (serving bool) {
	if s.clusterNode != nil {
		s.life.Leadership()
	}
	if err := s.guard.Exposed(); err != nil { // the log may enable access after the start
		s.listenerFailed("members", err)
	}
	err := s.ready()
	if s.readiness.set(err == nil) {
		if err == nil {
			s.log.Info("ready", "term", s.member.Header().Term)
		} else {
			s.log.Warn("not ready", "error", err)
		}
	}
	return s.serving() == nil
}

// ready returns nil if linearizable reads and renewals work through this member, else the reason.
func (s *Server) ready() error {
	switch {
	case s.life.Err() != nil:
		return s.life.Err()
	case s.readiness.ended():
		return lifetime.ErrStopping
	}
	return s.member.CheckReady()
}

// serving returns nil if the member would accept a request now, else the reason.
func (s *Server) serving() error {
	if s.life.Err() != nil {
		return s.life.Err()
	}
	return s.member.Serving()
}

// alive returns nil unless only a restart of the process can help.
func (s *Server) alive() error {
	select {
	case <-s.member.Done():
		return cmp.Or(s.member.Err(), node.ErrStopped)
	default:
		return nil
	}
}

// healthService is gRPC's health protocol. It knows one service, "", which is the whole server.
type healthService struct {
	healthpb.UnimplementedHealthServer
	s *Server
}

func (h *healthService) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if r.Service != "" {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return healthResponse(h.s.ready() == nil), nil
}

func (h *healthService) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	return &healthpb.HealthListResponse{
		Statuses: map[string]*healthpb.HealthCheckResponse{"": healthResponse(h.s.ready() == nil)},
	}, nil
}

// Watch sends the present status and then every change. For an unknown service the stream stays open, because the
// protocol allows that the service becomes known later.
func (h *healthService) Watch(r *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx, end := h.s.life.Stream(stream.Context(), lifetime.AnyLeader)
	defer end(nil)
	if r.Service != "" {
		unknown := &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVICE_UNKNOWN}
		if err := stream.Send(unknown); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	h.s.checkReadiness() // the first answer reports the present state, not the last check
	ready, changed := h.s.readiness.get()
	for last := !ready; ; ready, changed = h.s.readiness.get() {
		if ready != last {
			if err := stream.Send(healthResponse(ready)); err != nil {
				return err
			}
			last = ready
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func healthResponse(ready bool) *healthpb.HealthCheckResponse {
	if ready {
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}
}
