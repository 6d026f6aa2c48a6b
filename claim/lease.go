package claim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Lease is one tenure of a name. It is safe for concurrent use.
type Lease struct {
	client *Client
	name   string
	holder string
	id     backend.ID

	mu    sync.Mutex
	token backend.Token
	ttl   time.Duration
	until clock.Instant
	known seen // as the last write of this lease, or the last read, has left it
	// doubt has the ops that unanswered writes of the claim would replace. While the record has one of them,
	// such a write may still land.
	doubt    []Op
	sent     []*Record // renewals that nobody has confirmed, from the oldest: if the record has the op of one, it has succeeded
	lost     error     // is ErrLost: it has ended for good, or is refused all renewals
	absent   bool      // the record is no longer that of this lease
	released bool      // Release was called
}

// Name returns what is leased.
func (l *Lease) Name() string { return l.name }

// Incarnation is the id of the claim.
func (l *Lease) Incarnation() backend.ID { return l.id }

// Holder returns the holder's id.
func (l *Lease) Holder() string { return l.holder }

// Store returns where the lease is kept.
func (l *Lease) Store() Store { return l.client.store }

// Token returns the fencing token; 0 if nobody knows whether the claim succeeded.
func (l *Lease) Token() backend.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Until returns until when the lease may be relied on, on the clocks of [Client.Now]: ask
// [clock.Instant.Before] at each use. It may be past already if the store was slow.
func (l *Lease) Until() clock.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// TTL returns what was granted.
func (l *Lease) TTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl
}

// confirm is told of a write that is known to have happened. Every write promises at least what those before
// it did, so the deadline never moves back, in whichever order the answers come.
func (l *Lease) confirm(r *Record, ttl time.Duration) {
	relied := r.Expiry
	if l.client.judges {
		relied = r.Written.Add(l.client.opts.Drift.RelyRemote(r.TTL))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token != 0 { // else there is none to be kept: the zero instant is one like any other
		relied = later(l.until, relied)
	}
	l.token, l.ttl, l.until = r.Token, ttl, relied
	if l.known.Record.Domain != r.Domain || l.known.Record.Written.Raw <= r.Written.Raw { // else a later renewal has been confirmed
		l.known = seen{Found: Found{Record: *r}, at: l.client.Now()}
	}
	l.sent = slices.DeleteFunc(l.sent, func(sent *Record) bool { return sent.Written.Raw <= r.Written.Raw })
}

// maxSent is how many renewals without an answer are remembered. Of those that are forgotten it is not known that they
// have succeeded, if they have: the lease is renewed once more.
const maxSent = 8

// sending is told of a renewal before it is sent.
func (l *Lease) rememberSent(r *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sent) == maxSent {
		l.sent = slices.Delete(l.sent, 0, 1)
	}
	l.sent = append(l.sent, r)
}

// unanswered returns the renewals that nobody has confirmed.
func (l *Lease) unanswered() []*Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.sent)
}

// learn is told of a read that shows the lease.
func (l *Lease) learn(s *seen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = *s
}

// holds reports whether a record is that of this very tenure.
func (l *Lease) matches(r *Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.Holder == l.holder && r.Incarnation == l.id && (l.token == 0 || r.Token == l.token)
}

// begin returns what is known of the lease's record, or why nothing can be done with it.
func (l *Lease) lastKnown() (*seen, error) {
	if err := l.ended(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == 0 {
		return nil, fmt.Errorf("%w: nobody knows yet whether %s was claimed: claim it again with the same id, or release it", backend.ErrInvalid, l.name)
	}
	known := l.known
	return &known, nil
}

// ended returns an error if the lease was lost or given back.
func (l *Lease) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil && l.released {
		return fmt.Errorf("%w: %s was released", backend.ErrLost, l.name)
	}
	return l.lost
}

// mine returns nil if a record shows this lease and may be changed by its holder. Otherwise it is lost for
// good.
func (l *Lease) checkHeld(s *seen) error {
	r := &s.Record
	if err := l.ended(); err != nil {
		return err
	}
	if l.matches(r) {
		l.learn(s)
		return nil
	}
	l.markAbsent()
	switch {
	case r.Held():
		return l.lose("%s is held by %s (token %d)", l.name, backend.Holder{ID: r.Holder, Card: r.Card}, r.Token)
	case !r.Exists():
		return l.lose("%s no longer has a record", l.name)
	}
	return l.lose("nobody holds %s now", l.name)
}

// left is told that the record is no longer that of this lease.
func (l *Lease) markAbsent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.absent = true
}

// lose remembers for good that the lease has ended, and returns that as an error.
func (l *Lease) lose(format string, args ...any) error {
	err := fmt.Errorf("%w: %s", backend.ErrLost, fmt.Sprintf(format, args...))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = err
	}
	return l.lost
}

// doubts is told which unanswered writes of a claim may still land.
func (l *Lease) setDoubt(open []Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubt = slices.Clone(open)
}

// doubtful returns what the last call of doubts was told.
func (l *Lease) doubtfulOps() []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.doubt)
}

// later returns, on each of the two clocks, the later of two instants.
func later(a, b clock.Instant) clock.Instant {
	return clock.Instant{Raw: max(a.Raw, b.Raw), Boot: max(a.Boot, b.Boot)}
}
