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
	// granularity is what TTLs are rounded up to.
	granularity = time.Millisecond
	// fewTenures is how many claims there may be before those are forgotten that ended long ago and were
	// never released.
	fewTenures = 1024
)

// Backend is a [backend.Backend] on any [claim.Store], so that keepers work on it. It is safe for concurrent use.
//
// Those who wait in one process form a line of their own, which the store knows nothing of (see [Backend.Await]). If the
// store is a [claim.Queuer], each such line has a ticket in the store's queue of the name, and the processes have their turn in
// the order of their tickets. Otherwise a process asks again and again, and a name goes to the first that asks. Nobody can
// tell how many wait for a name, and it cannot be handed on.
type Backend struct {
	store      claim.Store
	client     *claim.Client
	clock      backend.Clock
	tests      backend.Clock // the same, or nil if it goes by the machine's
	poll       time.Duration
	calls      *calls
	hints      hints
	storeQueue *storeQueue

	mu          sync.Mutex
	tenures     map[backend.ID]*tenure // that are not over
	sweepAt     int                    // with so many, those that ended long ago are forgotten
	localQueues map[string]*localQueue
	watchers    map[*watcher]struct{}
	news        uint64 // how often something may have changed
}

// All that a backend can do. There is nobody whom a name could be handed on to, so it is no Transferrer.
var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Clocked   = (*Backend)(nil)
	_ backend.Watcher   = (*Backend)(nil)
	_ backend.Historian = (*Backend)(nil)
	_ backend.Announcer = (*Backend)(nil)
	_ backend.Resumer   = (*Backend)(nil)
	_ backend.Revoker   = (*Backend)(nil)
	_ backend.Pinner    = (*Backend)(nil)
)

// Option sets up a [Backend].
type Option func(*options)

type options struct {
	poll   time.Duration
	client claim.Options
}

// WithPoll sets how often a name is asked for by who waits for it, and how often a watch looks; the default
// is twice a second. Each time is one small query.
func WithPoll(every time.Duration) Option { return func(o *options) { o.poll = every } }

// WithOptions sets how the backend counts time, and how patient it is. If a Clock is given, keepers go by it
// too.
func WithOptions(c claim.Options) Option { return func(o *options) { o.client = c } }

// New returns a backend on s, which it closes when it is closed.
func New(s claim.Store, o ...Option) (*Backend, error) {
	if s == nil {
		return nil, fmt.Errorf("claim: %w: there is no store", backend.ErrInvalid)
	}
	chosen := options{poll: defaultPoll}
	for _, option := range o {
		option(&chosen)
	}
	if chosen.poll < leastPoll {
		return nil, fmt.Errorf("%s: %w: to ask every %v is too often: the least is %v", s.Scheme(), backend.ErrInvalid, chosen.poll, leastPoll)
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

// Opened returns a backend on what a store's own function has just opened, or failed to. It closes the store if it
// cannot return one.
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

// Scheme is that of the store.
func (b *Backend) Scheme() string { return b.store.Scheme() }

// Limits are those of every store.
func (b *Backend) Limits() backend.Limits {
	s, known := b.store.(claim.Serial)
	serial := known && s.Serial()
	return backend.Limits{MinTTL: claim.MinTTL, MaxTTL: claim.MaxTTL, Granularity: granularity, OneWay: serial}
}

// Clock implements [backend.Clocked]. It is nil if the backend goes by the machine's clocks.
func (b *Backend) Clock() backend.Clock { return b.tests }

// Client returns the client that the backend works by. It does what [backend.Backend] has no word for.
func (b *Backend) Client() *claim.Client { return b.client }

// LeaseOf returns the lease that a backend of this package has made for a keeper, such as [claim.Client.Extend] and
// the gates of the stores take it. [backend.ErrLost] says that it does not hold its name.
func LeaseOf(l backend.Lease) (*claim.Lease, error) {
	t, ok := l.(*tenure)
	if !ok {
		return nil, fmt.Errorf("claim: %w: a lease of another backend (%T)", backend.ErrInvalid, l)
	}
	t.backend.mu.Lock()
	defer t.backend.mu.Unlock()
	if t.phase != holding {
		return nil, t.lost()
	}
	return t.lease, nil
}

// own returns l as one of this backend.
func (b *Backend) ownTenure(l backend.Lease) (*tenure, error) {
	t, ok := l.(*tenure)
	if !ok || t.backend != b {
		return nil, fmt.Errorf("%s: %w: a lease of another backend (%T)", b.Scheme(), backend.ErrInvalid, l)
	}
	return t, nil
}

// ended returns why a call's context has ended.
func (b *Backend) contextErr(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, backend.ErrClosed) {
		return cause
	}
	return ctx.Err()
}

// failed is the error of a call to the store, which may have failed because its context has ended.
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
		return fmt.Errorf("%s: %w: a claim without an id", b.Scheme(), backend.ErrInvalid)
	}
	if c.TTL < claim.MinTTL || c.TTL > claim.MaxTTL {
		return fmt.Errorf("%s: %w: a TTL of %v: it must be from %v to %v", b.Scheme(), backend.ErrInvalid, c.TTL, claim.MinTTL, claim.MaxTTL)
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

// enter finds out whether a claim is new. Where others wait here already it stands behind them; where others surely wait
// elsewhere, it waits for its turn in the queue of the store, before it has asked.
func (b *Backend) register(c backend.Claim) (t *tenure, behind backend.Grant, err error) {
	c.TTL = (c.TTL + granularity - 1) / granularity * granularity
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
		if crowded = c.Wait && b.storeQueue.contended(c.Name, now); crowded || c.Wait && b.localQueues[c.Name] != nil {
			b.enqueue(t)
		}
	case t.request.Name != c.Name:
		return nil, behind, fmt.Errorf("%s: %w: a claim to %s has the id of one to %s", b.Scheme(), backend.ErrInvalid, c.Name, t.request.Name)
	case t.phase == ended:
		return nil, behind, t.lost()
	}
	if q := b.localQueues[c.Name]; t.phase == waiting && !t.inDoubt && (q.waiters[0] != t || crowded) {
		t.placeEnds = now.Add(b.placeDuration(t))
		return t, t.grant(now), nil
	}
	return t, behind, nil
}

// newTenure makes one that is known by the id of its claim. The lock is held.
func (b *Backend) newTenure(c backend.Claim, now clock.Instant) *tenure {
	b.sweep(now)
	t := &tenure{backend: b, request: c, triedAt: now, storeLock: make(chan struct{}, 1), signal: make(chan struct{}, 1)}
	b.tenures[c.ID] = t
	return t
}

// placeLasts is how long a place in line lasts that has been renewed: no longer than a lease would, however the
// store counts.
func (b *Backend) placeDuration(t *tenure) time.Duration {
	return b.client.Options().Drift.RelyRemote(t.request.TTL)
}

// sweep forgets claims that were over long ago and that nobody will release any more. The lock is held.
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

// attempt claims the name in the store. That somebody else holds it is no error for who waits.
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

// begin notes that an attempt begins, unless there is no need of one. alone says that it leaves the name to those who
// wait for it elsewhere.
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

// newsFor counts the news that matter to t. The lock is held.
func (b *Backend) newsFor(t *tenure) uint64 {
	if t.phase == waiting {
		return b.localQueues[t.request.Name].news
	}
	return b.news
}

// conclude takes in what became of an attempt.
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
		return backend.Grant{}, fmt.Errorf("%s: %w: what became of an earlier attempt to claim %s: %w", b.Scheme(), backend.ErrUnknownOutcome, t.request.Name, err)
	default:
		t.inDoubt = false
		if t.leaving {
			return backend.Grant{}, t.lost() // it was interrupted for that
		}
		if t.phase == undecided {
			b.endTenure(t)
		}
		return backend.Grant{}, err
	}
	return t.grant(now), nil
}
