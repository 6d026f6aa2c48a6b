package memory

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	maxHistory  = 16    // tenures kept of one name
	maxReleased = 4096  // ended claims that are remembered, to recognize late requests
	maxEvents   = 1024  // events kept for one watcher; with more it gets the present state instead
	maxWaiting  = 65536 // waiting claims for one name
)

// Store keeps leases, as a server would. It is safe for concurrent use.
type Store struct {
	clock  backend.Clock
	limits backend.Limits
	faults faults

	mu       sync.Mutex
	names    map[string]*record
	ordered  []*record // all of names; in the order of their texts unless jumbled
	jumbled  bool
	claims   map[backend.ID]*queuedClaim
	marks    map[string]backend.Mark
	token    backend.Token // the last one granted; all names share the sequence, as with revisions
	soonest  clock.Instant // no claim expires before this instant
	watchers map[*watcher]struct{}
	released map[backend.ID]bool // true: by a Finish
	ring     []backend.ID        // the ids in released, oldest first once it is full
	oldest   int
	ended    chan struct{} // closed when the store is restarted
}

// record is what is known about one name. queue[0] is the holder, and has a token; the others wait, and have
// none.
type record struct {
	name   string
	queue  []*queuedClaim
	last   backend.Token
	pinned bool
	why    string // the reason of its pin
	past   []backend.Tenure
}

// queuedClaim is the claim of the holder or of a waiter.
type queuedClaim struct {
	id      backend.ID
	name    string
	holder  backend.Holder
	ttl     time.Duration
	end     clock.Instant
	token   backend.Token // 0 while it waits
	since   time.Time
	refused bool   // revoked: renewals are refused
	note    string // why it was revoked
	held    bool   // released by a Finish that holds the name on: renewals are refused
	prio    backend.Priority
	// preferred says that Prefer has moved the claim.
	preferred bool
	turn      chan struct{} // closed when it holds the name, or has ended
}

// Option sets up a [Store].
type Option func(*Store)

// WithClock makes the store, and all keepers on it, use a clock that the test moves.
func WithClock(c *Clock) Option { return func(s *Store) { s.clock = c } }

// WithLimits makes the store's backends accept other TTLs than from 10 ms to a year.
func WithLimits(l backend.Limits) Option { return func(s *Store) { s.limits = l } }

// New returns an empty store.
func New(options ...Option) *Store {
	s := &Store{
		clock:    clock.System{},
		limits:   backend.Limits{MinTTL: 10 * time.Millisecond, MaxTTL: 365 * 24 * time.Hour, Granularity: time.Millisecond, Priorities: true},
		names:    make(map[string]*record),
		claims:   make(map[backend.ID]*queuedClaim),
		marks:    make(map[string]backend.Mark),
		soonest:  never,
		watchers: make(map[*watcher]struct{}),
		released: make(map[backend.ID]bool),
		ended:    make(chan struct{}),
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// never is the end of a claim that does not end.
var never = clock.Instant{Raw: math.MaxInt64, Boot: math.MaxInt64}

// Backend returns a new client of the store.
func (s *Store) Backend() *Backend { return &Backend{store: s, closed: make(chan struct{})} }

// Inject puts a fault in force for all clients of the store until remove is called. A client's own faults come
// before those of the store, and older ones before newer ones. At most one fault hits a call.
func (s *Store) Inject(f Fault) (remove func()) { return s.faults.inject(f) }

// Restart is a crash and a new start of the store: calls under way fail, leases stay as they were.
func (s *Store) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ended)
	s.ended = make(chan struct{})
}

// Forget makes the store lose all leases, but not its tokens.
func (s *Store) Forget() {
	now := s.lock()
	defer s.mu.Unlock()
	for _, r := range s.sorted("", "") {
		r.pinned, r.why = false, ""
		// The queue is emptied from behind, so that no waiter gets the name meanwhile.
		for len(r.queue) > 0 {
			s.end(r, len(r.queue)-1, backend.Deleted, now)
		}
	}
}

// Delete removes the holder of a name, as an operator could in a database. The first waiter, if any, gets the
// name.
func (s *Store) Delete(name string) {
	now := s.lock()
	defer s.mu.Unlock()
	if r := s.names[name]; r != nil && len(r.queue) > 0 {
		r.pinned, r.why = false, ""
		s.end(r, 0, backend.Deleted, now)
	}
}

// life returns a channel that is closed when the store is restarted.
func (s *Store) life() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// lock locks the store and ends what has expired.
func (s *Store) lock() clock.Instant {
	s.mu.Lock()
	now := s.clock.Now() // read after the lock: time must not go back from one owner of the lock to the next
	s.expire(now)
	return now
}

// expire ends all claims whose time has passed. Waiters go first, so that no dead one gets a name.
func (s *Store) expire(now clock.Instant) {
	if !now.After(s.soonest) {
		return
	}
	for _, r := range s.sorted("", "") {
		for i := len(r.queue) - 1; i >= 0; i-- {
			if c := r.queue[i]; now.After(c.end) && !(i == 0 && r.pinned) {
				why := backend.Expired
				if c.refused {
					why = backend.Revoked
				}
				s.end(r, i, why, now)
			}
		}
	}
	s.soonest = never
	for _, r := range s.names {
		for i, c := range r.queue {
			if !(i == 0 && r.pinned) {
				s.noteEnd(c.end)
			}
		}
	}
}

// noteEnd makes sure that the store looks again at that end.
func (s *Store) noteEnd(end clock.Instant) {
	s.soonest.Raw = min(s.soonest.Raw, end.Raw)
	s.soonest.Boot = min(s.soonest.Boot, end.Boot)
}

// sorted returns the records whose names begin with prefix and follow after, in order. It sorts only if names were added since,
// so a page of a long list costs no more than its own length. The result is valid until the lock is released.
func (s *Store) sorted(prefix, after string) []*record {
	if s.jumbled {
		slices.SortFunc(s.ordered, func(a, b *record) int { return cmp.Compare(a.name, b.name) })
		s.jumbled = false
	}
	first := sort.Search(len(s.ordered), func(i int) bool { return s.ordered[i].name >= prefix && s.ordered[i].name > after })
	found := s.ordered[first:]
	return found[:sort.Search(len(found), func(i int) bool { return !strings.HasPrefix(found[i].name, prefix) })]
}

// record returns the record of a name.
func (s *Store) record(name string) *record {
	r := s.names[name]
	if r == nil {
		r = &record{name: name}
		s.names[name] = r
		n := len(s.ordered)
		s.jumbled = s.jumbled || n > 0 && name < s.ordered[n-1].name
		s.ordered = append(s.ordered, r)
	}
	return r
}

// extend makes c last for its TTL from now.
func (s *Store) extend(c *queuedClaim, now clock.Instant) {
	c.end = now.Add(c.ttl)
	s.noteEnd(c.end)
}

// end ends the claim at place i of the queue. If it held the name, the first waiter gets it.
func (s *Store) end(r *record, i int, why backend.Reason, now clock.Instant) {
	c := r.queue[i]
	r.queue = slices.Delete(r.queue, i, i+1)
	delete(s.claims, c.id)
	s.remember(c.id, c.held)
	if i > 0 {
		close(c.turn)
		return
	}
	r.past = append(r.past, backend.Tenure{Token: c.token, Holder: c.holder, From: c.since, To: time.Now(), Why: why, Note: c.note})
	if len(r.past) > maxHistory {
		r.past = r.past[1:]
	}
	r.pinned, r.why = false, ""
	if len(r.queue) == 0 {
		s.notify(backend.Vacated, r, why, now)
		return
	}
	s.promoteHead(r)
	s.notify(backend.Acquired, r, why, now)
}

// promoteHead makes the head of the queue the holder.
func (s *Store) promoteHead(r *record) {
	s.token++
	c := r.queue[0]
	c.token, c.since, r.last = s.token, time.Now(), s.token
	close(c.turn)
}

// remember keeps the ids of claims that have ended, so that a late request for one is refused.
func (s *Store) remember(id backend.ID, byFinish bool) {
	if _, known := s.released[id]; known {
		return
	}
	s.released[id] = byFinish
	if len(s.ring) < maxReleased {
		s.ring = append(s.ring, id)
		return
	}
	delete(s.released, s.ring[s.oldest])
	s.ring[s.oldest] = id
	s.oldest = (s.oldest + 1) % maxReleased
}

// info returns the present state of a name.
func (r *record) info(now clock.Instant) backend.Info {
	i := backend.Info{Name: r.name, Token: r.last}
	if len(r.queue) == 0 {
		return i
	}
	c := r.queue[0]
	i.Held, i.Holder, i.TTL, i.Waiting = true, c.holder, c.ttl, len(r.queue)-1
	i.Remaining = max(0, now.Until(c.end))
	if r.pinned {
		i.Pinned = r.why
	}
	return i
}

// place returns the record of c, and its place in the queue.
func (s *Store) place(c *queuedClaim) (*record, int) {
	r := s.names[c.name]
	return r, slices.Index(r.queue, c)
}
