package server

import (
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
	// pulseInterval is how often the server asks the member whether it serves.
	pulseInterval = 50 * time.Millisecond
	// leaderLostAfter is how long the member must have had no leader before streams that require one end.
	// Shorter gaps are part of an ordinary election and not worth the reconnecting.
	leaderLostAfter = time.Second
)

// pulse remembers whether the member was ready when it was last asked, and wakes those who wait for a change.
type pulse struct {
	mu      sync.Mutex
	ready   bool
	final   bool          // the server is stopping: it will not serve again
	changed chan struct{} // closed at the next change
}

func newPulse() *pulse { return &pulse{changed: make(chan struct{})} }

// get returns whether the member is ready and what is closed when that changes.
func (p *pulse) get() (ready bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready, p.changed
}

func (p *pulse) set(ready bool) (different bool) {
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

// end is set(false) for good.
func (p *pulse) end() {
	p.set(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.final = true
}

// beat asks the member until the server stops or the member has ended; the latter ends all long streams.
func (s *Server) beat() {
	ticker := time.NewTicker(pulseInterval)
	defer ticker.Stop()
	led := time.Now()
	for {
		if s.look() {
			led = time.Now()
		} else if time.Since(led) > leaderLostAfter {
			// And once more later, for streams that are opened until then.
			s.life.LoseLeader()
			led = time.Now()
		}
		select {
		case <-ticker.C:
		case <-s.life.Done():
			return
		case <-s.member.Done():
			s.pulse.end()
			s.log.Error("the member has ended, nothing can be served", "error", s.member.Err())
			s.life.End(node.ErrStopped)
			return
		}
	}
}

// look asks the member once, and returns whether it knows a leader.
func (s *Server) look() (serving bool) {
	if s.leading != nil {
		s.life.Leadership()
	}
	err := s.ready()
	if s.pulse.set(err == nil) {
		if err == nil {
			s.log.Info("ready", "term", s.member.Header().Term)
		} else {
			s.log.Warn("not ready", "error", err)
		}
	}
	return s.serving() == nil
}

// ready returns nil if linearizable reads and renewals work through this member, else why not.
func (s *Server) ready() error {
	if s.life.Err() != nil {
		return s.life.Err()
	}
	return s.member.CheckReady()
}

// serving returns nil if a request would be taken on now, else why not.
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
		if err := s.member.Err(); err != nil {
			return err
		}
		return node.ErrStopped
	default:
		return nil
	}
}

// healthService is gRPC's own health protocol. It knows one service, "", which is the whole server.
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

// Watch sends the present status and then every change. A service it does not know may come to be known
// some day, says the protocol, so the stream stays open.
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
	h.s.look() // the first answer is about now, not about the last pulse
	ready, changed := h.s.pulse.get()
	for last := !ready; ; ready, changed = h.s.pulse.get() {
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
