package lifetime

import (
	"context"
	"errors"
	"sync"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// ErrLeaderChanged ends streams that only the leader serves when another member leads.
var ErrLeaderChanged = errors.New("another member leads now: try again")

// Leadership is the time during which one member leads in one term.
type Leadership struct {
	Leader, term uint64
	ctx          context.Context // ends when a later leadership is observed
}

// AfterEnd calls f in a new goroutine once the leadership has ended. stop prevents that, and reports whether it was in
// time.
func (l Leadership) AfterEnd(f func()) (stop func() bool) { return context.AfterFunc(l.ctx, f) }

// Ended returns a leadership that has already ended.
func Ended() Leadership {
	ctx, end := context.WithCancelCause(context.Background())
	end(ErrLeaderChanged)
	return Leadership{ctx: ctx}
}

// leaders remembers the newest observed leadership. Its methods are safe for concurrent use.
type leaders struct {
	knownLeader func() (leader, term uint64) // nil if the member is alone

	mu            sync.Mutex
	withLeader    context.Context // ends when there has been no leader for a while
	endWithLeader context.CancelCauseFunc
	newest        Leadership
	endNewest     context.CancelCauseFunc // ends newest
	observed      uint64                  // leaderships that were seen to begin
}

func newLeaders(knownLeader func() (uint64, uint64)) *leaders {
	l := &leaders{knownLeader: knownLeader}
	l.withLeader, l.endWithLeader = context.WithCancelCause(context.Background())
	l.newest.ctx, l.endNewest = context.WithCancelCause(context.Background())
	return l
}

// Leadership looks up the leader, and returns the newest observed leadership.
func (l *Lifetime) Leadership() Leadership { return l.leaders.observe(l.leaders.knownLeader()) }

// Leaderships returns the number of leaderships that this member has observed.
func (l *Lifetime) Leaderships() uint64 {
	l.leaders.mu.Lock()
	defer l.leaders.mu.Unlock()
	return l.leaders.observed
}

// LeaderLost ends all open streams that need a leader. Later streams are not affected.
func (l *Lifetime) LeaderLost() {
	l.leaders.mu.Lock()
	defer l.leaders.mu.Unlock()
	l.leaders.endWithLeader(replica.ErrNoLeader)
	l.leaders.withLeader, l.leaders.endWithLeader = context.WithCancelCause(context.Background())
}

// observe records the present leader, and returns the newest observed leadership. An interval without a leader does not
// end a leadership, because the same member may continue it.
func (l *leaders) observe(leader, term uint64) Leadership {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leader != 0 && (term > l.newest.term || l.newest.Leader == 0 || term == l.newest.term && leader != l.newest.Leader) {
		l.endNewest(ErrLeaderChanged)
		l.newest.Leader, l.newest.term = leader, term
		l.newest.ctx, l.endNewest = context.WithCancelCause(context.Background())
		l.observed++
	}
	return l.newest
}

// untilLost returns a context that ends at the next LeaderLost.
func (l *leaders) untilLost() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.withLeader
}
