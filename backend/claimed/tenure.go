package claimed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// spread is the time over which waiters spread their attempts when others, elsewhere, learn of the same change.
const spread = 20 * time.Millisecond

// phase is the state of a claim.
type phase uint8

const (
	undecided phase = iota // the outcome is unknown yet
	waiting                // it is in the local queue
	holding
	ended
)

// tenure is one claim of this process with its state: a [backend.Lease].
type tenure struct {
	backend   *Backend
	request   backend.Claim
	storeLock chan struct{} // has room for one: the owner calls the store about this tenure; renewals need not own it
	signal    chan struct{} // has room for one: Await has to look again

	// The lock of the backend guards the fields below.

	phase     phase
	lease     *claim.Lease  // if holding
	placeEnds clock.Instant // if waiting: when its place is lost unless it is renewed
	triedAt   clock.Instant // before the first attempt whose outcome is unknown
	inDoubt   bool          // there is such an attempt
	isTurn    bool          // the attempt under way is made because this process's turn in the store's queue has come
	news      uint64        // the count of the local queue, or else of the backend, before the last attempt
	interrupt context.CancelFunc
	leaving   bool // it is being released
	finished  bool // Finish has ended it
	awaiters  int  // calls of Await
}

// Name implements [backend.Lease].
func (t *tenure) Name() string { return t.request.Name }

// lock makes the caller the only one that calls the store about t.
func (t *tenure) lock(ctx context.Context) error {
	select {
	case t.storeLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *tenure) unlock() { <-t.storeLock }

// wake makes Await look again.
func (t *tenure) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// lost returns the error for a claim that has ended.
func (t *tenure) lost() error {
	return fmt.Errorf("%s: %w: this claim to %s has ended", t.backend.Scheme(), backend.ErrLost, t.request.Name)
}

// grant returns the grant of a claim that waits or holds.
func (t *tenure) grant(now clock.Instant) backend.Grant {
	if t.phase == holding {
		return backend.Grant{Held: true, Token: t.lease.Token(), TTL: t.lease.TTL(), Until: t.until(now)}
	}
	return backend.Grant{TTL: t.request.TTL, Until: t.placeEnds}
}

// until returns the end of a lease for its holder. A lease that took over a longer promise may last longer than
// granted, but no caller has asked for that.
func (t *tenure) until(now clock.Instant) clock.Instant {
	granted, until := now.Add(t.lease.TTL()), t.lease.Until()
	return clock.Instant{Raw: min(granted.Raw, until.Raw), Boot: min(granted.Boot, until.Boot)}
}

// localQueue is the queue of this process's waiters for one name. The first of them that is awaited, the head,
// asks the store, and the others wait for it.
type localQueue struct {
	waiters   []*tenure // by priority, and then in the order of their claims
	nextPoll  clock.Instant
	ends      clock.Instant // when the holder's lease has certainly expired, if known
	known     bool
	token     backend.Token // of the last holder that was seen
	contended bool          // other processes compete for the name
	news      uint64        // how often it was woken
	pollUntil clock.Instant // until then it polls without a ticket
}

// head returns the waiter that asks the store.
func (q *localQueue) head() *tenure {
	for _, t := range q.waiters {
		if t.awaiters > 0 {
			return t
		}
	}
	return nil
}

// wakeHead makes the head ask at once, or a little later if others learn of the same change.
func (q *localQueue) wakeHead(now clock.Instant, others bool) {
	q.news++
	q.nextPoll = now
	if others {
		q.nextPoll = now.Add(rand.N(spread))
	}
	if t := q.head(); t != nil {
		t.wake()
	}
}

// noteRefusal notes who holds the name, and when to ask again. old says that something changed after the
// question, which the answer may not show yet.
func (q *localQueue) noteRefusal(now clock.Instant, held *backend.HeldError, poll time.Duration, old bool) {
	if q.token != 0 && held.Token != q.token {
		q.contended = true
	}
	q.token = held.Token
	if !old {
		q.nextPoll = now.Add(about(poll))
	}
	q.known = held.Ends > 0
	q.ends = now.Add(held.Ends)
	if q.contended {
		q.ends = q.ends.Add(rand.N(spread))
	}
}

// untilPoll returns for how long the store need not be asked.
func (q *localQueue) untilPoll(now clock.Instant) time.Duration {
	rest := now.Remaining(q.nextPoll)
	if q.known && !now.After(q.ends) {
		rest = min(rest, now.Until(q.ends)+1) // strictly past the end
	} else if q.known {
		return 0
	}
	return rest
}

// enqueue adds t to the local queue behind all of the same or a higher priority, if it is in none. The caller holds the
// lock.
func (b *Backend) enqueue(t *tenure) {
	q := b.localQueues[t.request.Name]
	if q == nil {
		q = &localQueue{}
		b.localQueues[t.request.Name] = q
	}
	if !slices.Contains(q.waiters, t) {
		i := len(q.waiters)
		for i > 0 && q.waiters[i-1].request.Priority < t.request.Priority {
			i--
		}
		q.waiters = slices.Insert(q.waiters, i, t)
	}
	t.phase = waiting
}

// dequeue removes t from the local queue. The goroutine that awaits t lets the next waiter ask when it notices
// that. The caller holds the lock.
func (b *Backend) dequeue(t *tenure) {
	q := b.localQueues[t.request.Name]
	if q == nil {
		return
	}
	q.waiters = slices.DeleteFunc(q.waiters, func(other *tenure) bool { return other == t })
	if len(q.waiters) == 0 {
		delete(b.localQueues, t.request.Name)
		b.storeQueue.leave(t.request.Name)
	}
}

// endTenure notes that a claim has ended. The caller holds the lock.
func (b *Backend) endTenure(t *tenure) {
	if t.phase == ended {
		return
	}
	t.phase, t.inDoubt = ended, false
	b.dequeue(t)
	if b.tenures[t.request.ID] == t {
		delete(b.tenures, t.request.ID)
	}
	t.wake()
}

// expirePlace ends the place of t if it was not renewed. The caller holds the lock.
func (b *Backend) expirePlace(t *tenure, now clock.Instant) {
	if t.phase == waiting && !t.inDoubt && now.After(t.placeEnds) {
		b.endTenure(t)
	}
}

// expirePlaces ends the places at the front of a local queue that were not renewed. The caller holds the lock.
func (b *Backend) expirePlaces(name string, now clock.Instant) {
	for q := b.localQueues[name]; q != nil && len(q.waiters) > 0; {
		front := q.waiters[0]
		if b.expirePlace(front, now); front.phase != ended {
			return
		}
	}
}

// ownerChanged takes in that a name, or any name if it is empty, may have another owner.
func (b *Backend) ownerChanged(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.news++
	if q := b.localQueues[name]; q != nil {
		q.wakeHead(now, q.contended)
	}
	if name == "" {
		for _, q := range b.localQueues { // order: all are woken
			q.wakeHead(now, q.contended)
		}
	}
	for v := range b.watchers { // order: all are notified
		v.noteChange(name)
	}
}
