package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

const (
	// pulseInterval is how often the server asks the member whether it serves.
	pulseInterval = 50 * time.Millisecond
	// leaderLostAfter is how long the member must have had no leader before streams that require one end.
	// Shorter gaps are part of an ordinary election and not worth the reconnecting.
	leaderLostAfter = time.Second
)

// errStopping is why long streams end when the server is stopped.
var errStopping = fmt.Errorf("the server is stopping: %w", replica.ErrStopped)

// pulse remembers whether the member was ready when it was last asked, and wakes those who wait for a change.
type pulse struct {
	mu       sync.Mutex
	ready    bool
	final    bool          // the server is stopping: it will not serve again
	changed  chan struct{} // closed at the next change
	leading  context.Context
	lostLead context.CancelCauseFunc // ends leading

	reign    reign
	endReign context.CancelCauseFunc
	reigns   uint64          // that were seen to begin
	over     context.Context // has ended
}

// reign is the time during which one member leads.
type reign struct {
	leader, term uint64
	ctx          context.Context // ends when another member is seen to lead, or the same one in another term
}

// errLeaderChanged is why streams end that only the leader carries out.
var errLeaderChanged = errors.New("another member leads from now on: try again")

func newPulse() *pulse {
	p := &pulse{changed: make(chan struct{})}
	p.leading, p.lostLead = context.WithCancelCause(context.Background())
	p.reign.ctx, p.endReign = context.WithCancelCause(context.Background())
	over, end := context.WithCancelCause(context.Background())
	end(errLeaderChanged)
	p.over = over
	return p
}

// follow takes note of who leads, and returns the newest reign that is known. That nobody leads does not end one:
// the same member may go on.
func (p *pulse) follow(leader, term uint64) reign {
	p.mu.Lock()
	defer p.mu.Unlock()
	if leader != 0 && (term > p.reign.term || p.reign.leader == 0 || term == p.reign.term && leader != p.reign.leader) {
		p.endReign(errLeaderChanged)
		p.reign.leader, p.reign.term = leader, term
		p.reign.ctx, p.endReign = context.WithCancelCause(context.Background())
		p.reigns++
	}
	return p.reign
}

// reignsSeen returns how often somebody was seen to begin to lead.
func (p *pulse) reignsSeen() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reigns
}

// reign looks who leads.
func (s *Server) reign() reign { return s.pulse.follow(s.leading.Leader()) }

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

// led returns a context that ends when the leader has been lost.
func (p *pulse) led() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leading
}

// lose ends what led returned until now.
func (p *pulse) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lostLead(replica.ErrNoLeader)
	p.leading, p.lostLead = context.WithCancelCause(context.Background())
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
			s.pulse.lose()
			led = time.Now()
		}
		select {
		case <-ticker.C:
		case <-s.base.Done():
			return
		case <-s.member.Done():
			s.pulse.end()
			s.log.Error("the member has ended, nothing can be served", "error", s.member.Err())
			s.endBase(replica.ErrStopped)
			return
		}
	}
}

// look asks the member once, and returns whether it knows a leader.
func (s *Server) look() (serving bool) {
	if s.leading != nil {
		s.reign()
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
	if s.base.Err() != nil {
		return context.Cause(s.base)
	}
	return s.member.CheckReady()
}

// serving returns nil if a request would be taken on now, else why not.
func (s *Server) serving() error {
	if s.base.Err() != nil {
		return context.Cause(s.base)
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
		return replica.ErrStopped
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
	ctx, end := h.s.longStream(stream, whoeverLeads)
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
