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
	known seen // as this lease's last write, or the last read, left it
	// doubt has the ops that unanswered writes of the claim would replace. While the record has one of them,
	// such a write may still land.
	doubt    []Op
	sent     []*Record // unconfirmed renewals, oldest first: if the record has the op of one, it succeeded
	lost     error     // is ErrLost: the tenure has ended for good, or all its renewals are refused
	absent   bool      // the record no longer belongs to this lease
	released bool      // Release or Finish was called
	expired  bool      // it was lost because its time had passed, whether or not another client has noticed
	finishes []*Record // unconfirmed writes of Finish, oldest first
	finished bool      // Finish has succeeded
	// These say that RaiseMark, or Finish, ended with an unknown outcome, and has not succeeded since.
	markDoubted, finishDoubted bool
}

// Name returns the leased name.
func (l *Lease) Name() string { return l.name }

// Incarnation returns the id of the claim.
func (l *Lease) Incarnation() backend.ID { return l.id }

// Holder returns the holder's id.
func (l *Lease) Holder() string { return l.holder }

// Store returns the store that keeps the lease.
func (l *Lease) Store() Store { return l.client.store }

// Token returns the fencing token. It is 0 while the outcome of the claim is unknown.
func (l *Lease) Token() backend.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Until returns the instant until which the holder may rely on the lease, on the clocks of [Client.Now]. Ask
// [clock.Instant.Before] at each use. The instant may be past already if the store was slow.
func (l *Lease) Until() clock.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// TTL returns the granted time to live.
func (l *Lease) TTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl
}

// confirm takes in a write that certainly happened before now. Every write promises at least what earlier ones did, so the
// deadline never moves back, in whichever order the answers come.
func (l *Lease) confirm(r *Record, ttl time.Duration, now clock.Instant) {
	relied := r.Expiry
	if l.client.judges {
		relied = r.Written.Add(l.client.opts.Drift.RelyRemote(r.TTL))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token != 0 { // else there is no deadline to keep: the zero instant is one like any other
		relied = later(l.until, relied)
	}
	l.token, l.ttl, l.until = r.Token, ttl, relied
	// Otherwise a later renewal is confirmed.
	if l.known.Record.Domain != r.Domain || l.known.Record.Written.Raw <= r.Written.Raw {
		l.known = seen{Found: Found{Record: *r}, at: now}
	}
	l.sent = slices.DeleteFunc(l.sent, func(sent *Record) bool { return sent.Written.Raw <= r.Written.Raw })
}

// maxSent is how many renewals without an answer are remembered. A forgotten one cannot be recognized if it
// succeeded: the lease is then renewed once more.
const maxSent = 8

// rememberSent remembers a renewal before it is sent.
func (l *Lease) rememberSent(r *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sent) == maxSent {
		l.sent = slices.Delete(l.sent, 0, 1)
	}
	l.sent = append(l.sent, r)
}

// unanswered returns the unconfirmed renewals.
func (l *Lease) unanswered() []*Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.sent)
}

// learn takes in a read that shows the lease.
func (l *Lease) learn(s *seen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = *s
}

// matches reports whether a record is that of this very tenure.
func (l *Lease) matches(r *Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.Holder == l.holder && r.Incarnation == l.id && (l.token == 0 || r.Token == l.token)
}

// lastKnown returns the last known record of the lease, or why nothing can be done with it.
func (l *Lease) lastKnown() (*seen, error) {
	if err := l.ended(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == 0 {
		return nil, fmt.Errorf("%w: it is unknown whether %s was claimed: claim it again with the same id, or release it", backend.ErrInvalid, l.name)
	}
	known := l.known
	return &known, nil
}

// ended returns an error if the lease was lost or released.
func (l *Lease) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil && l.released {
		return fmt.Errorf("%w: %s was released", backend.ErrLost, l.name)
	}
	return l.lost
}

// checkHeld returns nil if a record shows this lease and its holder may change it. Otherwise the lease is lost
// for good.
func (l *Lease) checkHeld(s *seen) error {
	r := &s.Record
	if err := l.ended(); err != nil {
		return err
	}
	if l.matches(r) {
		l.learn(s)
		return nil
	}
	return l.loseTo(r)
}

// loseTo notes that a record no longer belongs to this lease, and returns that as an error.
func (l *Lease) loseTo(r *Record) error {
	l.markAbsent()
	switch {
	case r.Held():
		return l.lose("%s is held by %s (token %d)", l.name, backend.Holder{ID: r.Holder, Card: r.Card}, r.Token)
	case !r.Exists():
		return l.lose("%s no longer has a record", l.name)
	}
	return l.lose("%s has no holder now", l.name)
}

// markAbsent notes that the record no longer belongs to this lease.
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

// expire remembers for good that the lease has expired, and returns that as an error.
func (l *Lease) expire() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expired, l.lost = true, fmt.Errorf("%w: the lease of %s has expired", backend.ErrLost, l.name)
	return l.lost
}

// setDoubt sets the ops that unanswered writes of the claim may still replace.
func (l *Lease) setDoubt(open []Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubt = slices.Clone(open)
}

// doubtfulOps returns the ops of the last setDoubt.
func (l *Lease) doubtfulOps() []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.doubt)
}

// later returns, on each of the two clocks, the later of two instants.
func later(a, b clock.Instant) clock.Instant {
	return clock.Instant{Raw: max(a.Raw, b.Raw), Boot: max(a.Boot, b.Boot)}
}
