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

// spread is over how long those are spread who know that others wait elsewhere, when all learn of the same.
const spread = 20 * time.Millisecond

// standing is what became of a claim.
type phase uint8

const (
	undecided phase = iota // nobody knows yet
	waiting                // it stands in the line of this process
	holding
	ended
)

// tenure is one claim of this process, and what became of it: a [backend.Lease].
type tenure struct {
	backend   *Backend
	request   backend.Claim
	storeLock chan struct{} // has room for one: who speaks to the store about it, but for renewals
	signal    chan struct{} // has room for one: Await is to look again

	// What follows is guarded by the lock of the backend.

	phase     phase
	lease     *claim.Lease  // if holding
	placeEnds clock.Instant // if waiting: when its place is lost unless it is renewed
	triedAt   clock.Instant // before the first attempt whose outcome is not known
	inDoubt   bool          // there is one
	isTurn    bool          // the attempt under way is made because it is this process's turn in the queue of the store
	news      uint64        // that of the line before the last attempt, or else of the backend
	interrupt context.CancelFunc
	leaving   bool // it is being released
	awaiters  int  // calls of Await
}

// Name implements [backend.Lease].
func (t *tenure) Name() string { return t.request.Name }

// lock makes the caller the only one who speaks to the store about t.
func (t *tenure) lock(ctx context.Context) error {
	select {
	case t.storeLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *tenure) unlock() { <-t.storeLock }

// wake has Await look again.
func (t *tenure) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// lost is the error for a claim that is over.
func (t *tenure) lost() error {
	return fmt.Errorf("%s: %w: this claim to %s has ended", t.backend.Scheme(), backend.ErrLost, t.request.Name)
}

// grant is what is answered to a claim that waits or holds.
func (t *tenure) grant(now clock.Instant) backend.Grant {
	if t.phase == holding {
		return backend.Grant{Held: true, Token: t.lease.Token(), TTL: t.lease.TTL(), Until: t.until(now)}
	}
	return backend.Grant{TTL: t.request.TTL, Until: t.placeEnds}
}

// until is when a lease ends, as its holder is told. One that took over a longer promise may last longer than
// was granted, but nobody has asked for that.
func (t *tenure) until(now clock.Instant) clock.Instant {
	granted, until := now.Add(t.lease.TTL()), t.lease.Until()
	return clock.Instant{Raw: min(granted.Raw, until.Raw), Boot: min(granted.Boot, until.Boot)}
}

// line is who waits in this process for one name: the first of them who is awaited asks the store, and the
// others wait for it. A database keeps no line, so that is all there is.
type localQueue struct {
	waiters   []*tenure // in the order of their claims
	nextPoll  clock.Instant
	ends      clock.Instant // when the holder's lease is surely over, if known
	known     bool
	token     backend.Token // of the holder who was seen last
	contended bool          // there are others, elsewhere
	news      uint64        // how often it was woken
	pollUntil clock.Instant // until then it is asked for without a ticket
}

// first returns who asks the store.
func (q *localQueue) head() *tenure {
	for _, t := range q.waiters {
		if t.awaiters > 0 {
			return t
		}
	}
	return nil
}

// wakeFirst has the first ask at once, or a little later if there are others who are told the same.
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

// refused notes who holds the name, and when it is to be asked for again. old says that there was news after
// the store was asked, which its answer may not have shown yet.
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

// rests returns for how long the store need not be asked.
func (q *localQueue) untilPoll(now clock.Instant) time.Duration {
	rest := now.Remaining(q.nextPoll)
	if q.known && !now.After(q.ends) {
		rest = min(rest, now.Until(q.ends)+1) // strictly past the end
	} else if q.known {
		return 0
	}
	return rest
}

// stand puts t at the end of the line, if it stands nowhere. The lock is held.
func (b *Backend) enqueue(t *tenure) {
	q := b.localQueues[t.request.Name]
	if q == nil {
		q = &localQueue{}
		b.localQueues[t.request.Name] = q
	}
	if !slices.Contains(q.waiters, t) {
		q.waiters = append(q.waiters, t)
	}
	t.phase = waiting
}

// leave takes t out of the line. The goroutine that awaits it lets the next one ask when it finds that out. The lock
// is held.
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

// end notes that a claim is over. The lock is held.
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

// lapse ends the place of t if it has not been renewed. The lock is held.
func (b *Backend) expirePlace(t *tenure, now clock.Instant) {
	if t.phase == waiting && !t.inDoubt && now.After(t.placeEnds) {
		b.endTenure(t)
	}
}

// clear ends the places at the front of a line that have not been renewed. The lock is held.
func (b *Backend) expirePlaces(name string, now clock.Instant) {
	for q := b.localQueues[name]; q != nil && len(q.waiters) > 0; {
		front := q.waiters[0]
		if b.expirePlace(front, now); front.phase != ended {
			return
		}
	}
}

// changed takes in that a name may have another owner, or any name if it is empty.
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
	for v := range b.watchers { // order: all are told
		v.noteChange(name)
	}
}
