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
type standing uint8

const (
	asking  standing = iota // nobody knows yet
	waiting                 // it stands in the line of this process
	holding
	over
)

// tenure is one claim of this process, and what became of it: a [backend.Lease].
type tenure struct {
	backend *Backend
	asked   backend.Claim
	busy    chan struct{} // has room for one: who speaks to the store about it, but for renewals
	signal  chan struct{} // has room for one: Await is to look again

	// What follows is guarded by the lock of the backend.

	standing  standing
	lease     *claim.Lease  // if holding
	place     clock.Instant // if waiting: when its place is lost unless it is renewed
	tried     clock.Instant // before the first attempt whose outcome is not known
	trying    bool          // there is one
	turn      bool          // the attempt under way is made because it is this process's turn in the queue of the store
	news      uint64        // that of the line before the last attempt, or else of the backend
	interrupt context.CancelFunc
	leaving   bool // it is being released
	awaited   int  // calls of Await
}

// Name implements [backend.Lease].
func (t *tenure) Name() string { return t.asked.Name }

// lock makes the caller the only one who speaks to the store about t.
func (t *tenure) lock(ctx context.Context) error {
	select {
	case t.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *tenure) unlock() { <-t.busy }

// wake has Await look again.
func (t *tenure) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// lost is the error for a claim that is over.
func (t *tenure) lost() error {
	return fmt.Errorf("%s: %w: this claim to %s has ended", t.backend.Scheme(), backend.ErrLost, t.asked.Name)
}

// grant is what is answered to a claim that waits or holds.
func (t *tenure) grant(now clock.Instant) backend.Grant {
	if t.standing == holding {
		return backend.Grant{Held: true, Token: t.lease.Token(), TTL: t.lease.TTL(), Until: t.until(now)}
	}
	return backend.Grant{TTL: t.asked.TTL, Until: t.place}
}

// until is when a lease ends, as its holder is told. One that took over a longer promise may last longer than
// was granted, but nobody has asked for that.
func (t *tenure) until(now clock.Instant) clock.Instant {
	granted, until := now.Add(t.lease.TTL()), t.lease.Until()
	return clock.Instant{Raw: min(granted.Raw, until.Raw), Boot: min(granted.Boot, until.Boot)}
}

// line is who waits in this process for one name: the first of them who is awaited asks the store, and the
// others wait for it. A database keeps no line, so that is all there is.
type line struct {
	places []*tenure // in the order of their claims
	look   clock.Instant
	ends   clock.Instant // when the holder's lease is surely over, if known
	known  bool
	token  backend.Token // of the holder who was seen last
	rivals bool          // there are others, elsewhere
	news   uint64        // how often it was woken
	polls  clock.Instant // until then it is asked for without a ticket
}

// first returns who asks the store.
func (q *line) first() *tenure {
	for _, t := range q.places {
		if t.awaited > 0 {
			return t
		}
	}
	return nil
}

// wakeFirst has the first ask at once, or a little later if there are others who are told the same.
func (q *line) wakeFirst(now clock.Instant, others bool) {
	q.news++
	q.look = now
	if others {
		q.look = now.Add(rand.N(spread))
	}
	if t := q.first(); t != nil {
		t.wake()
	}
}

// refused notes who holds the name, and when it is to be asked for again. old says that there was news after
// the store was asked, which its answer may not have shown yet.
func (q *line) refused(now clock.Instant, held *backend.HeldError, poll time.Duration, old bool) {
	if q.token != 0 && held.Token != q.token {
		q.rivals = true
	}
	q.token = held.Token
	if !old {
		q.look = now.Add(about(poll))
	}
	q.known = held.Ends > 0
	q.ends = now.Add(held.Ends)
	if q.rivals {
		q.ends = q.ends.Add(rand.N(spread))
	}
}

// rests returns for how long the store need not be asked.
func (q *line) rests(now clock.Instant) time.Duration {
	rest := now.Remaining(q.look)
	if q.known && !now.After(q.ends) {
		rest = min(rest, now.Until(q.ends)+1) // strictly past the end
	} else if q.known {
		return 0
	}
	return rest
}

// stand puts t at the end of the line, if it stands nowhere. The lock is held.
func (b *Backend) stand(t *tenure) {
	q := b.lines[t.asked.Name]
	if q == nil {
		q = &line{}
		b.lines[t.asked.Name] = q
	}
	if !slices.Contains(q.places, t) {
		q.places = append(q.places, t)
	}
	t.standing = waiting
}

// leave takes t out of the line. The goroutine that awaits it lets the next one ask when it finds that out. The lock
// is held.
func (b *Backend) leave(t *tenure) {
	q := b.lines[t.asked.Name]
	if q == nil {
		return
	}
	q.places = slices.DeleteFunc(q.places, func(other *tenure) bool { return other == t })
	if len(q.places) == 0 {
		delete(b.lines, t.asked.Name)
		b.room.left(t.asked.Name)
	}
}

// end notes that a claim is over. The lock is held.
func (b *Backend) end(t *tenure) {
	if t.standing == over {
		return
	}
	t.standing, t.trying = over, false
	b.leave(t)
	if b.tenures[t.asked.ID] == t {
		delete(b.tenures, t.asked.ID)
	}
	t.wake()
}

// lapse ends the place of t if it has not been renewed. The lock is held.
func (b *Backend) lapse(t *tenure, now clock.Instant) {
	if t.standing == waiting && !t.trying && now.After(t.place) {
		b.end(t)
	}
}

// clear ends the places at the front of a line that have not been renewed. The lock is held.
func (b *Backend) clear(name string, now clock.Instant) {
	for q := b.lines[name]; q != nil && len(q.places) > 0; {
		front := q.places[0]
		if b.lapse(front, now); front.standing != over {
			return
		}
	}
}

// changed takes in that a name may have another owner, or any name if it is empty.
func (b *Backend) changed(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.news++
	if q := b.lines[name]; q != nil {
		q.wakeFirst(now, q.rivals)
	}
	if name == "" {
		for _, q := range b.lines { // order: all are woken
			q.wakeFirst(now, q.rivals)
		}
	}
	for v := range b.views { // order: all are told
		v.note(name)
	}
}
