package lifetime

import (
	"context"
	"errors"
	"sync"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// ErrLeaderChanged is why streams end that only the leader serves.
var ErrLeaderChanged = errors.New("another member leads now: try again")

// Leadership is the time during which one member leads.
type Leadership struct {
	Leader, term uint64
	ctx          context.Context // ends when another member is seen to lead, or the same one in another term
}

// AfterEnd calls f in a goroutine of its own once the leadership has ended. stop reports whether it prevented that.
func (l Leadership) AfterEnd(f func()) (stop func() bool) { return context.AfterFunc(l.ctx, f) }

// Ended returns a leadership that is over.
func Ended() Leadership {
	ctx, end := context.WithCancelCause(context.Background())
	end(ErrLeaderChanged)
	return Leadership{ctx: ctx}
}

// leaders remembers who was seen to lead.
type leaders struct {
	look func() (leader, term uint64) // nil if the member is alone

	mu       sync.Mutex
	led      context.Context // ends when there has been no leader for a while
	lost     context.CancelCauseFunc
	newest   Leadership
	over     context.CancelCauseFunc // ends newest
	observed uint64                  // leaderships that were seen to begin
}

func newLeaders(look func() (uint64, uint64)) *leaders {
	l := &leaders{look: look}
	l.led, l.lost = context.WithCancelCause(context.Background())
	l.newest.ctx, l.over = context.WithCancelCause(context.Background())
	return l
}

// Leadership looks who leads, and returns the newest leadership that is known.
func (l *Lifetime) Leadership() Leadership { return l.leaders.follow(l.leaders.look()) }

// Leaderships returns how often a member was seen to begin to lead.
func (l *Lifetime) Leaderships() uint64 {
	l.leaders.mu.Lock()
	defer l.leaders.mu.Unlock()
	return l.leaders.observed
}

// LoseLeader ends the streams that need a leader, and have been opened until now.
func (l *Lifetime) LoseLeader() {
	l.leaders.mu.Lock()
	defer l.leaders.mu.Unlock()
	l.leaders.lost(replica.ErrNoLeader)
	l.leaders.led, l.leaders.lost = context.WithCancelCause(context.Background())
}

// follow takes note of who leads, and returns the newest leadership that is known. An interval without a leader does not
// end a leadership: the same member may continue it.
func (l *leaders) follow(leader, term uint64) Leadership {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leader != 0 && (term > l.newest.term || l.newest.Leader == 0 || term == l.newest.term && leader != l.newest.Leader) {
		l.over(ErrLeaderChanged)
		l.newest.Leader, l.newest.term = leader, term
		l.newest.ctx, l.over = context.WithCancelCause(context.Background())
		l.observed++
	}
	return l.newest
}

// current returns a context that ends when the leader has been lost.
func (l *leaders) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.led
}
