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

// Lease is the right to act under a name, until it is released or lost. Its keeper renews it. It is safe for concurrent
// use.
type Lease struct {
	k       *Keeper
	handle  keepalive.Lease
	name    string
	raw     backend.Lease
	token   Token
	managed bool // Run or Campaign made it and releases it
	context atomic.Pointer[leaseContext]

	ttl  atomic.Int64
	rely [2]atomic.Int64 // the deadline's raw and boot readings: read without a lock
	end  atomic.Pointer[ending]

	// Guarded by the keeper's lock.
	text      string          // of the card
	parent    context.Context // of the lease's own context
	over      error           // why the lease's own context has ended; nil if it has not
	trouble   error           // of the last attempt to renew it; nil if that succeeded
	isHeld    bool
	began     clock.Instant      // when the tenure began
	taken     bool               // it keeps the keeper's other claims to the name waiting
	late      bool               // it ended here at its deadline: the store may not have ended it yet
	resumed   bool               // it was lost, and this keeper resumes it: it must not be released
	givenUp   bool               // it was lost, and is being released: it must not be resumed
	resolve   bool               // the renewer wants the claim or the release repeated
	interrupt context.CancelFunc // ends the wait for a turn; nil while there is none
	signal    chan struct{}      // capacity 1: a field above has changed; nil while no goroutine waits for that
	released  release
	after     aftermath
	ended     chan struct{}      // closed when the lease ends; nil unless a Transfer waits for that
	retired   *ending            // why its tenure ends early; nil if it does not
	endWatch  context.CancelFunc // ends the goroutine that may end the tenure early; nil if there is none
	doubt     chan bool          // for InDoubt; nil until the program asks for it
	doubted   bool               // not renewed for half of its time
}

// release is the state of a lease's release.
type release struct {
	begun bool // the other fields mean nothing before that
	over  bool
	err   error         // set with over
	done  chan struct{} // closed with over; nil unless a caller waits for that
}

// end records that the release is over. The keeper's lock is held.
func (r *release) end(err error) {
	r.over, r.err = true, err
	if r.done != nil {
		close(r.done)
	}
}

// leaseContext is the context of a lease. The first call of [Lease.Context] makes it, because many leases are held for a
// moment only, without a context.
//
// The context of the call that acquired the lease is the program's own. Its methods may call the keeper, so nothing calls
// them with the keeper's lock held. A context that can be cancelled calls them when it is made and when it is cancelled.
// So there are two: the outer one descends from the program's, and is made and cancelled without the lock. The inner one
// descends from the outer one, which is of package context, so cancel may be called with the lock held.
type leaseContext struct {
	context.Context                         // the inner one
	cancel          context.CancelCauseFunc // ends the inner one; calls no code of the program
	leave           context.CancelFunc      // ends the outer one; calls code of the program
}

// newContext returns a context with the values of parent. If the lease is managed, it ends with parent.
func (l *Lease) newContext(parent context.Context, managed bool) *leaseContext {
	c := &leaseContext{leave: func() {}}
	outer := context.Context(leaseParent{parent, l})
	if managed {
		outer, c.leave = context.WithCancel(outer)
	} else {
		outer = context.WithoutCancel(outer)
	}
	c.Context, c.cancel = context.WithCancelCause(outer)
	return c
}

// newLease returns a lease that is not claimed or resumed yet. ctx is the context of the call that wants it.
func (k *Keeper) newLease(ctx context.Context, name string, o leaseOptions, managed bool) *Lease {
	l := &Lease{k: k, name: name, text: o.text, parent: ctx, managed: managed, after: aftermath{least: o.least}}
	l.ttl.Store(int64(o.ttl))
	return l
}

// identity returns this keeper as a holder, with a text on its card.
func (k *Keeper) identity(text string) Holder {
	holder := k.options.holder
	holder.Card.Text = text
	return holder
}

// Name returns the name that is held.
func (l *Lease) Name() string { return l.name }

// Token returns the fencing token. Send it with every write under the lease, and let the resource refuse a token smaller
// than the greatest it has seen.
func (l *Lease) Token() Token { return l.token }

// TTL returns how long the lease lasts without renewal. The store grants it, and may grant another TTL than the program
// requested.
func (l *Lease) TTL() time.Duration { return time.Duration(l.ttl.Load()) }

// Holder returns the holder: this keeper, with the card that it last announced.
func (l *Lease) Holder() Holder {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	return l.k.identity(l.text)
}

// Context returns a context that ends when the lease is released or lost. It ends before another process can hold the
// name, unless this process is not running at that moment. [context.Cause] then returns an [ErrLost] that says why. In
// [Keeper.Run] and [Keeper.Campaign] it also ends with the context of the caller.
func (l *Lease) Context() context.Context {
	if c := l.context.Load(); c != nil {
		return c.Context
	}
	l.k.mu.Lock()
	parent, managed := l.parent, l.managed
	l.k.mu.Unlock()
	c := l.newContext(parent, managed)
	if first := l.setContext(c); first != c {
		c.leave()
		return first.Context
	}
	return c.Context
}

// setContext makes c the context of the lease, unless the lease has one, and returns the lease's context.
func (l *Lease) setContext(c *leaseContext) *leaseContext {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	if first := l.context.Load(); first != nil {
		return first
	}
	if l.over != nil {
		c.cancel(l.over)
	}
	l.context.Store(c)
	return c
}

// leaveContext ends the tie between the context of a lease that has ended and the context of its call.
func (l *Lease) leaveContext() {
	if c := l.context.Load(); c != nil {
		c.leave()
	}
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

// Remaining returns how long the lease lasts if it is not renewed. It is zero once the lease has been lost or released.
func (l *Lease) Remaining() time.Duration {
	for l.Check() == nil {
		if left := l.k.clock.Now().Remaining(l.deadline()); left > 0 {
			return left
		}
	}
	return 0
}

// Check returns nil if the program may act under the lease at this moment, else an [ErrLost] with the reason. It is the
// only valid test for that: it reads the machine's clocks, and does not rely on a timer, which may be late.
func (l *Lease) Check() error {
	if e := l.end.Load(); e != nil {
		return e
	}
	if l.k.clock.Now().Before(l.deadline()) {
		return nil
	}
	// The deadline has passed. The renewer decides, so that no later call can return nil again.
	l.k.handle(keepalive.Wake{})
	if e := l.end.Load(); e != nil {
		return e
	}
	if l.k.clock.Now().Before(l.deadline()) {
		return nil // renewed in between
	}
	return &ending{name: l.name, token: l.token, why: keepalive.Deadline.String()}
}

// InDoubt returns a channel that receives true when the lease has not been renewed for half of its time, and false when it
// is renewed again. So a program can stop taking new work before the lease is lost. The lease is valid all the while. The
// channel holds the newest value only, and is closed when the lease ends. If the lease is in doubt already, the channel
// holds true. All calls return the same channel.
func (l *Lease) InDoubt() <-chan bool {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	if l.doubt == nil {
		l.doubt = make(chan bool, 1)
		switch {
		case l.end.Load() != nil:
			close(l.doubt)
		case l.doubted:
			l.doubt <- true
		}
	}
	return l.doubt
}

// setDoubt records whether the lease is in doubt. The keeper's lock is held.
func (l *Lease) setDoubt(doubted bool) {
	l.doubted = doubted
	if l.doubt == nil {
		return
	}
	select {
	case <-l.doubt: // removes an older value that the program has not read
	default:
	}
	l.doubt <- doubted
}

// Announce replaces the text on the holder's card. Every client of the store can read it.
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

// Release releases the name, so that the next waiter can have it. It first ends the lease's context, so stop acting
// before. A nil error means that the store has confirmed the release; [ErrLost] means that the lease was lost before. If
// ctx ends first, the error is [ErrUnknownOutcome], and the keeper goes on trying until the lease has run out. A second
// call returns the same as the first. With [HoldAtLeast] the name may stay taken after that.
func (l *Lease) Release(ctx context.Context) error {
	k := l.k
	k.mu.Lock()
	now := k.clock.Now()
	k.stepAt(now, keepalive.Wake{}) // a lease past its deadline is lost, and cannot be released
	ours := l.end.Load() == nil && k.beginRelease(now, l, &ending{name: l.name, token: l.token, why: "it was released", released: true})
	r := &l.released
	begun := r.begun
	k.mu.Unlock()
	switch {
	case ours && k.releaseNow(ctx, l, now):
		return r.err
	case !begun:
		return l.end.Load()
	}
	return l.awaitRelease(ctx)
}

// awaitRelease waits until the release of the lease is over, and returns its outcome.
func (l *Lease) awaitRelease(ctx context.Context) error {
	k, r := l.k, &l.released
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
		err := fmt.Errorf("leasekeeper: release of %s: %w: %w", l.name, ErrUnknownOutcome, ctx.Err())
		k.mu.Lock()
		defer k.mu.Unlock()
		return l.releaseError(err)
	}
}

// Raw returns the backend's own reference to the lease, for the functions of the backend's package.
func (l *Lease) Raw() backend.Lease { return l.raw }

// String returns the name and the token, for logs.
func (l *Lease) String() string { return fmt.Sprintf("%s (token %d)", l.name, l.token) }

// deadline returns the deadline without a lock. It may return the raw reading of one deadline and the boot reading of
// the next. A caller relies on the lease only before both, so that is never later than the later deadline.
func (l *Lease) deadline() clock.Instant {
	return clock.Instant{Raw: l.rely[0].Load(), Boot: l.rely[1].Load()}
}

func (l *Lease) setDeadline(i clock.Instant) {
	l.rely[0].Store(i.Raw)
	l.rely[1].Store(i.Boot)
}

// listen makes notify signal this lease's changes. Call it before reading the fields. The keeper's lock is held.
func (l *Lease) listen() {
	if l.signal == nil {
		l.signal = make(chan struct{}, 1)
	}
}

// notify wakes the goroutine that claims or releases the lease, if that goroutine called listen. The keeper's lock is held.
func (l *Lease) notify() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// troubled returns the error of the last attempt to renew the lease; empty if the attempt succeeded.
func (l *Lease) troubled() string {
	if l.trouble == nil {
		return ""
	}
	return l.trouble.Error()
}
