package claimed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	defaultPoll = 500 * time.Millisecond
	leastPoll   = time.Millisecond
	// granularity is the unit to which TTLs are rounded up.
	granularity = time.Millisecond
	// fewTenures is how many claims there may be before the backend forgets those that ended long ago and were
	// never released.
	fewTenures = 1024
)

// Backend is a [backend.Backend] on any [claim.Store], so that keepers work on it. It is safe for concurrent
// use.
//
// The waiters of one process form a local queue for each name, of which the store knows nothing (see
// [Backend.Await]). If the store is a [claim.Queuer], each local queue has a ticket in the store's queue of the
// name, and processes get their turn in the order of their tickets. Otherwise processes poll, and a name goes
// to the first that asks. The number of all waiters is unknown then. Another
// process can be made the next only in the store's queue (see [Backend.Prefer]).
type Backend struct {
	store      claim.Store
	client     *claim.Client
	clock      backend.Clock
	tests      backend.Clock // the same as clock, or nil if that is the machine's
	poll       time.Duration
	calls      *calls
	hints      hints
	storeQueue *storeQueue

	mu          sync.Mutex
	tenures     map[backend.ID]*tenure // claims that have not ended
	sweepAt     int                    // at this number, claims that ended long ago are forgotten
	localQueues map[string]*localQueue
	watchers    map[*watcher]struct{}
	news        uint64 // how often something may have changed
}

// The abilities of a Backend. It cannot make another process the holder in one step, so it is no Transferrer.
var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Clocked   = (*Backend)(nil)
	_ backend.Watcher   = (*Backend)(nil)
	_ backend.Historian = (*Backend)(nil)
	_ backend.Announcer = (*Backend)(nil)
	_ backend.Resumer   = (*Backend)(nil)
	_ backend.Revoker   = (*Backend)(nil)
	_ backend.Pinner    = (*Backend)(nil)
	_ backend.Marker    = (*Backend)(nil)
	_ backend.Finisher  = (*Backend)(nil)
	_ backend.Preferrer = (*Backend)(nil)

	_ backend.ForeignLister = (*Backend)(nil)
)

// Option sets up a [Backend].
type Option func(*options)

type options struct {
	poll   time.Duration
	client claim.Options
}

// WithPoll sets how often a waiting process asks for a name, and how often a watch looks; the default is twice
// a second. Each time is one small query.
func WithPoll(every time.Duration) Option { return func(o *options) { o.poll = every } }

// WithOptions sets how the backend counts time, and how often it retries. If the options have a Clock, keepers
// use it too.
func WithOptions(c claim.Options) Option { return func(o *options) { o.client = c } }

// New returns a backend on s. Closing the backend closes s.
func New(s claim.Store, o ...Option) (*Backend, error) {
	if s == nil {
		return nil, fmt.Errorf("claim: %w: the store is nil: give one", backend.ErrInvalid)
	}
	chosen := options{poll: defaultPoll}
	for _, option := range o {
		option(&chosen)
	}
	if chosen.poll < leastPoll {
		return nil, fmt.Errorf("%s: %w: the poll interval is %v: it must be at least %v", s.Scheme(), backend.ErrInvalid, chosen.poll, leastPoll)
	}
	client, err := claim.NewClient(s, chosen.client)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		store: s, client: client, clock: client.Options().Clock, tests: chosen.client.Clock, poll: chosen.poll, calls: newCalls(s.Scheme()),
		sweepAt: fewTenures, tenures: make(map[backend.ID]*tenure), localQueues: make(map[string]*localQueue), watchers: make(map[*watcher]struct{}),
	}
	b.hints.listening.calls, b.hints.listening.run, b.hints.changed = b.calls, b.hints.listen, b.ownerChanged
	b.hints.store, _ = s.(claim.Notifier)
	b.storeQueue = newStoreQueue(b)
	return b, nil
}

// Opened returns a backend on the result of a store's own open function. It closes the store if it cannot
// return a backend.
func Opened[S claim.Store](ctx context.Context, s S, err error, o ...Option) (backend.Backend, error) {
	if err != nil {
		return nil, err
	}
	b, err := New(s, o...)
	if err != nil {
		_ = s.Close(ctx)
		return nil, err
	}
	return b, nil
}

// Scheme returns the scheme of the store.
func (b *Backend) Scheme() string { return b.store.Scheme() }

// Limits returns the limits that all stores share.
func (b *Backend) Limits() backend.Limits {
	s, known := b.store.(claim.Serial)
	serial := known && s.Serial()
	return backend.Limits{MinTTL: claim.MinTTL, MaxTTL: claim.MaxTTL, Granularity: granularity, OneWay: serial, Priorities: b.storeQueue.prioritizes()}
}

// Clock implements [backend.Clocked]. It is nil if the backend uses the machine's clocks.
func (b *Backend) Clock() backend.Clock { return b.tests }

// Client returns the backend's client. It offers what [backend.Backend] lacks.
func (b *Backend) Client() *claim.Client { return b.client }

// LeaseOf returns the client's lease of a lease that a backend of this package has made for a keeper.
// [claim.Client.Extend] and the gates of the stores take it. [backend.ErrLost] says that it does not hold its
// name.
func LeaseOf(l backend.Lease) (*claim.Lease, error) {
	t, ok := l.(*tenure)
	if !ok {
		return nil, fmt.Errorf("claim: %w: the lease was made by another backend (%T): use the backend that made it", backend.ErrInvalid, l)
	}
	t.backend.mu.Lock()
	defer t.backend.mu.Unlock()
	if t.phase != holding {
		return nil, t.lost()
	}
	return t.lease, nil
}

// ownTenure returns l as a tenure of this backend.
func (b *Backend) ownTenure(l backend.Lease) (*tenure, error) {
	t, ok := l.(*tenure)
	if !ok || t.backend != b {
		return nil, fmt.Errorf("%s: %w: the lease was made by another backend (%T): use the backend that made it", b.Scheme(), backend.ErrInvalid, l)
	}
	return t, nil
}

// contextErr returns why a call's context has ended.
func (b *Backend) contextErr(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, backend.ErrClosed) {
		return cause
	}
	return ctx.Err()
}

// callError returns the error of a call to the store. If the call may have failed because its context has
// ended, the error says so too.
func (b *Backend) callError(ctx context.Context, err error) error {
	ended := b.contextErr(ctx)
	if ended == nil || err == nil || errors.Is(err, ended) {
		return err
	}
	for _, verdict := range []error{backend.ErrHeld, backend.ErrLost, backend.ErrPinned, backend.ErrInvalid, backend.ErrCorrupt, backend.ErrContention} {
		if errors.Is(err, verdict) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", err, ended)
}

func (b *Backend) check(c backend.Claim) error {
	if err := backend.CheckName(c.Name); err != nil {
		return err
	}
	if err := backend.CheckHolder(c.Holder); err != nil {
		return err
	}
	if c.ID == (backend.ID{}) {
		return fmt.Errorf("%s: %w: the claim has no id: choose one at random", b.Scheme(), backend.ErrInvalid)
	}
	if c.TTL < claim.MinTTL || c.TTL > claim.MaxTTL {
		return fmt.Errorf("%s: %w: the TTL is %v: it must be from %v to %v", b.Scheme(), backend.ErrInvalid, c.TTL, claim.MinTTL, claim.MaxTTL)
	}
	if c.Priority != 0 && !b.storeQueue.prioritizes() {
		return &backend.UnsupportedError{Backend: b.Scheme(), What: "a priority of waiters"}
	}
	return nil
}

// Claim implements [backend.Backend].
func (b *Backend) Claim(ctx context.Context, c backend.Claim) (backend.Lease, backend.Grant, error) {
	if err := b.check(c); err != nil {
		return nil, backend.Grant{}, err
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return nil, backend.Grant{}, err
	}
	defer end()
	t, behind, err := b.register(c)
	if err != nil {
		return nil, backend.Grant{}, err
	}
	if behind != (backend.Grant{}) {
		return t, behind, nil
	}
	g, err := b.attempt(ctx, t)
	switch err = b.callError(ctx, err); {
	case err == nil:
		return t, g, nil
	case errors.Is(err, backend.ErrUnknownOutcome):
		return t, backend.Grant{}, err
	}
	return nil, backend.Grant{}, err
}

// register finds or makes the tenure of a claim. If others already wait here for the name, the claim queues
// behind them. If processes elsewhere certainly wait, it waits for its turn in the store's queue before it
// asks. In both cases behind is its grant.
func (b *Backend) register(c backend.Claim) (t *tenure, behind backend.Grant, err error) {
	c.TTL = roundUp(c.TTL)
	b.mu.Lock()
	defer b.mu.Unlock()
	now, crowded := b.clock.Now(), false
	b.expirePlaces(c.Name, now)
	if t = b.tenures[c.ID]; t != nil {
		b.expirePlace(t, now)
	}
	switch {
	case t == nil:
		t = b.newTenure(c, now)
		if crowded = c.Wait && (b.localQueues[c.Name] != nil || b.storeQueue.contended(c.Name, now)); crowded {
			b.enqueue(t)
		}
	case t.request.Name != c.Name:
		return nil, behind, fmt.Errorf("%s: %w: the claim to %s has the id of a claim to %s: choose a new id", b.Scheme(), backend.ErrInvalid, c.Name, t.request.Name)
	case t.phase == ended:
		return nil, behind, t.lost()
	}
	if q := b.localQueues[c.Name]; t.phase == waiting && !t.inDoubt && (q.waiters[0] != t || crowded) {
		t.placeEnds = now.Add(b.placeDuration(t))
		return t, t.grant(now), nil
	}
	return t, behind, nil
}

// roundUp returns the next multiple of the granularity.
func roundUp(d time.Duration) time.Duration { return (d + granularity - 1) / granularity * granularity }

// newTenure makes a tenure for a claim, which is found by the claim's id. The caller holds the lock.
func (b *Backend) newTenure(c backend.Claim, now clock.Instant) *tenure {
	b.sweep(now)
	t := &tenure{backend: b, request: c, triedAt: now, storeLock: make(chan struct{}, 1), signal: make(chan struct{}, 1)}
	b.tenures[c.ID] = t
	return t
}

// placeDuration returns how long a renewed place in the local queue lasts: no longer than a lease would,
// however the store counts.
func (b *Backend) placeDuration(t *tenure) time.Duration {
	return b.client.Options().Drift.RelyRemote(t.request.TTL)
}

// sweep forgets claims that ended long ago and that no caller will release. The caller holds the lock.
func (b *Backend) sweep(now clock.Instant) {
	if len(b.tenures) < b.sweepAt {
		return
	}
	for _, t := range b.tenures { // order: each is looked at by itself
		ends := t.triedAt.Add(t.request.TTL)
		switch t.phase {
		case waiting:
			b.expirePlace(t, now)
			continue
		case holding:
			ends = t.lease.Until()
		}
		if now.After(ends.Add(t.request.TTL).Add(time.Minute)) && t.awaiters == 0 && len(t.storeLock) == 0 {
			b.endTenure(t)
		}
	}
	b.sweepAt = max(fewTenures, 2*len(b.tenures))
}

// attempt claims the name in the store. For a waiter it is no error that another client holds it.
func (b *Backend) attempt(ctx context.Context, t *tenure) (backend.Grant, error) {
	if err := t.lock(ctx); err != nil {
		return backend.Grant{}, b.contextErr(ctx)
	}
	defer t.unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, alone, done, err := b.beginAttempt(t, cancel)
	if done {
		return g, err
	}
	lease, err := b.client.Claim(ctx, claim.Request{Name: t.request.Name, ID: t.request.ID, Holder: t.request.Holder, TTL: t.request.TTL, Waits: t.request.Wait, Alone: alone})
	return b.endAttempt(t, lease, err)
}

// beginAttempt notes that an attempt begins, unless none is needed. alone says that the attempt leaves the name
// to processes that wait for it elsewhere.
func (b *Backend) beginAttempt(t *tenure, interrupt context.CancelFunc) (g backend.Grant, alone, done bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case t.phase == holding:
		return t.grant(b.clock.Now()), false, true, nil
	case t.phase == ended || t.leaving:
		return backend.Grant{}, false, true, t.lost()
	}
	if q := b.localQueues[t.request.Name]; t.request.Wait && b.storeQueue.usable() {
		now := b.clock.Now()
		t.isTurn = t.phase == waiting && b.storeQueue.attemptBegins(t.request.Name)
		alone = !t.isTurn && (q == nil || !now.Before(q.pollUntil))
	}
	if !t.inDoubt {
		t.inDoubt, t.triedAt = true, b.clock.Now()
	}
	t.interrupt = interrupt
	t.news = b.newsFor(t)
	return backend.Grant{}, alone, false, nil
}

// newsFor returns the number of changes that matter to t. The caller holds the lock.
func (b *Backend) newsFor(t *tenure) uint64 {
	if t.phase == waiting {
		return b.localQueues[t.request.Name].news
	}
	return b.news
}

// endAttempt takes in the result of an attempt.
func (b *Backend) endAttempt(t *tenure, lease *claim.Lease, err error) (backend.Grant, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	t.interrupt = nil
	if t.isTurn {
		t.isTurn = false
		b.storeQueue.attemptEnded(t.request.Name, err == nil)
	}
	held, refused := errors.AsType[*backend.HeldError](err)
	if lease != nil {
		t.lease = lease
	}
	switch {
	case err == nil:
		if q := b.localQueues[t.request.Name]; q != nil {
			q.token = lease.Token()
		}
		t.phase, t.inDoubt = holding, false
		b.dequeue(t)
		t.wake()
	case refused && t.request.Wait:
		old := t.news != b.newsFor(t)
		if t.phase == undecided {
			t.placeEnds = now.Add(b.placeDuration(t))
		}
		b.enqueue(t)
		b.localQueues[t.request.Name].noteRefusal(now, held, b.poll, old)
		t.inDoubt, t.lease = false, nil
	case refused, errors.Is(err, backend.ErrLost):
		b.endTenure(t)
		return backend.Grant{}, err
	case errors.Is(err, backend.ErrUnknownOutcome):
		return backend.Grant{}, err
	case t.lease != nil:
		return backend.Grant{}, fmt.Errorf("%s: %w: an earlier attempt to claim %s may have succeeded: %w", b.Scheme(), backend.ErrUnknownOutcome, t.request.Name, err)
	default:
		t.inDoubt = false
		if t.leaving {
			return backend.Grant{}, t.lost() // the release has interrupted it
		}
		if t.phase == undecided {
			b.endTenure(t)
		}
		return backend.Grant{}, err
	}
	return t.grant(now), nil
}
