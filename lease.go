package leasekeeper

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keepalive"
)

// Lease is the right to act under a name, until it is released or lost. Its keeper renews it all the time.
// It is safe for concurrent use.
type Lease struct {
	k       *Keeper
	handle  keepalive.Lease
	name    string
	raw     backend.Lease
	token   Token
	managed bool // by Run or Campaign, which release it
	context atomic.Pointer[leaseContext]

	ttl  atomic.Int64
	rely [2]atomic.Int64 // the deadline's raw and boot readings: read without a lock
	end  atomic.Pointer[ending]

	// Guarded by the keeper's lock.
	text      string          // of the card
	parent    context.Context // of its own
	over      error           // why its own has ended; nil if it has not
	trouble   error           // of the last attempt to renew it
	isHeld    bool
	late      bool // it ended without the store's having said so
	resumed   bool // it was lost, and this keeper resumes it: it is not released
	givenUp   bool // it was lost, and is being released: it is not resumed
	resolve   bool // the holder wants the claim or the release repeated
	interrupt context.CancelFunc
	signal    chan struct{} // has room for one: something above has changed; nil while nobody listens
	released  release
}

// release is the giving back of a lease.
type release struct {
	begun bool // otherwise the rest says nothing
	over  bool
	err   error         // when over
	done  chan struct{} // closed then; nil unless somebody waits for that
}

// end says that it is over. The keeper's lock is held.
func (r *release) end(err error) {
	r.over, r.err = true, err
	if r.done != nil {
		close(r.done)
	}
}

// leaseContext is the context of a lease. Most leases that are held for a moment only are never asked for it.
type leaseContext struct {
	context.Context
	cancel context.CancelCauseFunc
}

// newLease returns a lease that is still to be claimed or resumed, for a call with that context.
func (k *Keeper) newLease(ctx context.Context, name string, o leaseOptions, managed bool) *Lease {
	l := &Lease{k: k, name: name, text: o.text, parent: ctx, managed: managed}
	l.ttl.Store(int64(o.ttl))
	return l
}

// who returns this keeper as a holder, with a text on its card.
func (k *Keeper) who(text string) Holder {
	who := k.options.holder
	who.Card.Text = text
	return who
}

// Name returns the name that is held.
func (l *Lease) Name() string { return l.name }

// Token returns the fencing token. Send it along with whatever is done under the lease, and let the resource
// refuse a smaller one than it has seen.
func (l *Lease) Token() Token { return l.token }

// TTL returns how long the lease lives without renewal, as it was granted: it may differ from what was
// asked for.
func (l *Lease) TTL() time.Duration { return time.Duration(l.ttl.Load()) }

// Holder returns who holds it: this keeper, with the card as it was last announced.
func (l *Lease) Holder() Holder {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	return l.k.who(l.text)
}

// Context returns a context that ends when the lease is released or lost, before anyone else can hold the
// name, unless this process is not running at that moment. [context.Cause] then returns an [ErrLost] that
// says why. In [Keeper.Run] and [Keeper.Campaign] it also ends with the context that these were given.
func (l *Lease) Context() context.Context {
	if c := l.context.Load(); c != nil {
		return c.Context
	}
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	c := l.context.Load()
	if c == nil {
		parent := l.parent
		if !l.managed {
			parent = context.WithoutCancel(parent)
		}
		c = new(leaseContext)
		c.Context, c.cancel = context.WithCancelCause(parent)
		if l.over != nil {
			c.cancel(l.over)
		}
		l.context.Store(c)
	}
	return c.Context
}

// endContext ends the context of the lease. The keeper's lock is held.
func (l *Lease) endContext(why error) {
	if l.over == nil {
		l.over = why
	}
	if c := l.context.Load(); c != nil {
		c.cancel(l.over)
	}
}

// Remaining returns for how long the lease lasts if it is not renewed. It is zero or less once the lease has
// been lost or released.
func (l *Lease) Remaining() time.Duration {
	for l.Check() == nil {
		if left := l.k.clock.Now().Remaining(l.deadline()); left > 0 {
			return left
		}
	}
	return 0
}

// Check returns nil if one may act under the lease at this moment, else an [ErrLost] that says why not. It is
// the only test for that: it asks the machine's clocks, not a timer that may be late.
func (l *Lease) Check() error {
	if e := l.end.Load(); e != nil {
		return e
	}
	if l.k.clock.Now().Before(l.deadline()) {
		return nil
	}
	// Past the deadline as it was just now. The holder has the last word, so that nobody who asks after
	// this hears otherwise.
	l.k.handle(keepalive.Wake{})
	if e := l.end.Load(); e != nil {
		return e
	}
	if l.k.clock.Now().Before(l.deadline()) {
		return nil // renewed in between
	}
	return &ending{name: l.name, token: l.token, why: keepalive.Deadline.String()}
}

// Announce replaces the text on the holder's card, which everybody who looks at the name can see.
func (l *Lease) Announce(ctx context.Context, card string) error {
	if err := backend.CheckCardText(card); err != nil {
		return err
	}
	announcer, err := backend.Can[backend.Announcer](l.k.backend)
	if err != nil {
		return err
	}
	if err := l.Check(); err != nil {
		return err
	}
	err = announcer.Announce(ctx, l.raw, card)
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	switch {
	case err == nil:
		l.text = card
	case errors.Is(err, ErrLost) && l.isHeld:
		l.trouble = err
		l.k.step(keepalive.Ended{Lease: l.handle})
	}
	return err
}

// Release gives the name back. It first ends the lease's context, so stop acting before. A nil error says
// that the store has confirmed it; [ErrLost], that the lease was lost before. When ctx ends first the keeper
// goes on trying until the lease has run out, but what became of it is unknown. To release twice is as good
// as once.
func (l *Lease) Release(ctx context.Context) error {
	k := l.k
	k.mu.Lock()
	now := k.clock.Now()
	k.stepAt(now, keepalive.Wake{}) // a lease that is past its deadline is lost, not released
	ours := l.end.Load() == nil && k.takeBack(now, l, &ending{name: l.name, token: l.token, why: "it was released", released: true})
	r := &l.released
	begun := r.begun
	k.mu.Unlock()
	switch {
	case ours && k.releaseNow(ctx, l, now):
		return nil
	case !begun:
		return l.end.Load()
	}
	k.mu.Lock()
	if !r.over && r.done == nil {
		r.done = make(chan struct{})
	}
	over, err, done := r.over, r.err, r.done
	k.mu.Unlock()
	if over {
		return err
	}
	select {
	case <-done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("leasekeeper: release of %s: %w: %w", l.name, ErrUnknownOutcome, ctx.Err())
	}
}

// Raw returns the backend's own reference, for the functions of the backend's package.
func (l *Lease) Raw() backend.Lease { return l.raw }

// String is for logs.
func (l *Lease) String() string { return fmt.Sprintf("%s (token %d)", l.name, l.token) }

// deadline may be read while it is written. It is then made of an old and a new reading, and a caller that relies on
// it needs both, so it is never later than the later of the two deadlines allows.
func (l *Lease) deadline() clock.Instant {
	return clock.Instant{Raw: l.rely[0].Load(), Boot: l.rely[1].Load()}
}

func (l *Lease) setDeadline(i clock.Instant) {
	l.rely[0].Store(i.Raw)
	l.rely[1].Store(i.Boot)
}

// listen is before the caller looks at what notify tells the change of. The keeper's lock is held.
func (l *Lease) listen() {
	if l.signal == nil {
		l.signal = make(chan struct{}, 1)
	}
}

// notify wakes the goroutine that claims or releases the lease, if it listens. The keeper's lock is held.
func (l *Lease) notify() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// troubled tells about the last attempt to renew the lease, if that failed.
func (l *Lease) troubled() string {
	if l.trouble == nil {
		return ""
	}
	return l.trouble.Error()
}
