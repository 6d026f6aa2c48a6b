package leasekeeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/backoff"
	"github.com/leasekeeper/leasekeeper/internal/keepalive"
)

// Acquire waits until the name is free, and returns the lease on it. It survives a store that fails for up to the TTL. If
// ctx ends first, the keeper releases whatever may have reached the store.
//
// Goroutines that wait for one name through one keeper get it one after another, in the order of their calls, each with a
// token of its own. They have one place in the store's queue, so several keepers that wait for a name get it in turns,
// however many goroutines each has. If ctx descends from the context of a lease of this keeper on this very name, Acquire
// returns a [*HeldError] with Self at once: it would wait for its own caller.
func (k *Keeper) Acquire(ctx context.Context, name string, o ...Option) (*Lease, error) {
	options, err := k.forOne(o)
	if err != nil {
		return nil, err
	}
	return k.claimUntilHeld(ctx, name, options, false)
}

// TryAcquire returns the lease on the name if the name is free, else a [*HeldError]. It does not wait.
func (k *Keeper) TryAcquire(ctx context.Context, name string, o ...Option) (*Lease, error) {
	return k.Acquire(ctx, name, append(o[:len(o):len(o)], NoWait())...)
}

// errPlaceLost means that the claim lost its place in the queue and must be made again.
var errPlaceLost = fmt.Errorf("%w: the lease ended before it was its turn", ErrUnavailable)

// errNoAnswer means that the store did not answer, so there is no better reason.
var errNoAnswer = fmt.Errorf("%w: no answer", ErrUnavailable)

// claim makes one claim, or goes on with one that another call has left. It returns when the claim holds the name or is
// over. If ctx ends while something of the claim may be at the store, it leaves the claim to other calls: then p.left is
// true, and the caller must drop the claim if no other call goes on with it.
func (k *Keeper) claim(ctx context.Context, p *place, o leaseOptions) error {
	if p.left {
		return k.goOn(ctx, p)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.claim = backend.Claim{Name: p.l.name, Holder: k.identity(o.text), TTL: o.ttl, Wait: !o.noWait, Priority: o.priority}
	_, _ = rand.Read(p.claim.ID[:]) // never fails
	if err := k.start(p); err != nil {
		return err
	}
	raw, grant, err := k.attempt(ctx, p)
	if err == nil && grant.Held {
		p.queued = true
		return k.granted(ctx, p, raw, grant)
	}
	ctx, done := k.bound(ctx)
	defer done()
	return k.pursue(ctx, p, raw, grant, err)
}

// attempt sends the claim. An answer after the end of the lease is useless, so each attempt takes a third of the time that
// is left. The next attempt may use another endpoint.
func (k *Keeper) attempt(ctx context.Context, p *place) (backend.Lease, backend.Grant, error) {
	attempt := backend.NewRequest(ctx, k.calling, patience(p.claim.TTL-k.clock.Now().Elapsed(p.asked)))
	defer attempt.End()
	return k.backend.Claim(attempt, p.claim)
}

// pursue continues claim after an attempt.
func (k *Keeper) pursue(ctx context.Context, p *place, raw backend.Lease, grant backend.Grant, err error) error {
	for {
		l := p.l
		switch {
		case err == nil && !grant.Held && !p.claim.Wait:
			k.drop(l, raw)
			return &HeldError{Name: l.name}
		case err == nil:
			p.queued = true
			return k.granted(ctx, p, raw, grant)
		case errors.Is(err, ErrUnknownOutcome) && raw != nil, l.raw != nil && inconclusive(err):
			// An earlier attempt may have taken effect, whatever became of this one.
			if raw == nil {
				raw = l.raw
			}
			if err := k.settle(ctx, p, raw, err); err != nil {
				return err
			}
		default:
			return k.refused(ctx, l, err)
		}
		raw, grant, err = k.attempt(ctx, p)
	}
}

// goOn continues a claim that another call has left.
func (k *Keeper) goOn(ctx context.Context, p *place) error {
	p.left = false
	ctx, done := k.bound(ctx)
	defer done()
	switch unknown := p.unknown; {
	case unknown != nil:
		if err := k.settle(ctx, p, p.l.raw, unknown); err != nil {
			return err
		}
		raw, grant, err := k.attempt(ctx, p)
		return k.pursue(ctx, p, raw, grant, err)
	case p.l.token != 0:
		k.mu.Lock()
		return k.settled(ctx, p)
	}
	return k.awaitTurn(ctx, p)
}

// leaveTo leaves the claim to other calls, because its own call has ended.
func (p *place) leaveTo(ended error) error {
	p.left = true
	return ended
}

// start registers a claim that is about to be sent with the renewer. A claim that does not wait is refused if this keeper
// holds the name.
func (k *Keeper) start(p *place) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return errKeeperClosed
	}
	p.asked = k.clock.Now()
	p.since = p.asked
	k.stepAt(p.asked, keepalive.Wake{}) // what is past its deadline is not held
	if other := k.held[p.l.name]; other != nil && !p.claim.Wait {
		return k.heldByItself(other)
	}
	handle, err := k.core.Claim(p.asked, p.l.TTL())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p.l.handle = handle
	k.remember(p.l)
	return nil
}

// inconclusive reports whether an error leaves the outcome of earlier attempts open.
func inconclusive(err error) bool {
	return transient(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// refused ends a claim that the store has refused for good.
func (k *Keeper) refused(ctx context.Context, l *Lease, err error) error {
	if l.raw != nil {
		// An earlier attempt may have taken effect, or may do so yet.
		k.drop(l, l.raw)
		if errors.Is(err, ErrLost) {
			return errPlaceLost
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.raw == nil {
		k.step(keepalive.Refused{Lease: l.handle})
		k.forget(l)
	}
	if held, ok := errors.AsType[*HeldError](err); ok {
		if other := k.held[l.name]; other != nil && other.token == held.Token {
			mine := *held
			mine.Self = true
			return &mine
		}
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%w to a claim to %s in time (%s)", errNoAnswer, l.name, err.Error())
	}
	return err
}

// settle waits until a claim with an unknown outcome must be repeated with the same id.
func (k *Keeper) settle(ctx context.Context, p *place, raw backend.Lease, unknown error) error {
	l := p.l
	k.mu.Lock()
	l.raw, p.unknown = raw, unknown
	k.step(keepalive.Unknown{Lease: l.handle})
	k.mu.Unlock()
	again, err := k.awaitRepeat(ctx, l)
	switch {
	case again:
		p.unknown = nil
		return nil
	case err != nil:
		return p.leaveTo(err)
	}
	k.drop(l, raw)
	return fmt.Errorf("leasekeeper: claim to %s: %w: it was not answered in time (%s), and what may have become of it is released",
		l.name, ErrUnknownOutcome, unknown.Error())
}

// granted records that the claim holds the name, or that the store has queued it; then it waits for the turn.
func (k *Keeper) granted(ctx context.Context, p *place, raw backend.Lease, grant backend.Grant) error {
	l := p.l
	k.mu.Lock()
	l.raw = raw
	l.ttl.Store(int64(grant.TTL))
	if grant.Held {
		l.token = grant.Token
		k.step(keepalive.Granted{Lease: l.handle, TTL: grant.TTL, Until: grant.Until})
		return k.settled(ctx, p)
	}
	l.listen()
	if p.waiter != nil {
		k.callOn(k.waiters.Placed(p.waiter))
	}
	k.step(keepalive.Queued{Lease: l.handle, TTL: grant.TTL, Until: grant.Until})
	k.mu.Unlock()
	return k.awaitTurn(ctx, p)
}

// awaitTurn waits until the store reports the turn of a claim that it has queued.
func (k *Keeper) awaitTurn(ctx context.Context, p *place) error {
	l := p.l
	for fails := 0; ; {
		turn, err := k.await(ctx, l)
		k.mu.Lock()
		switch {
		case l.end.Load() != nil:
		case err == nil:
			l.token = turn.Token
			k.step(keepalive.Granted{Lease: l.handle, TTL: turn.TTL, Until: turn.Until})
			return k.settled(ctx, p)
		case errors.Is(err, ErrLost):
			l.trouble = err
			k.step(keepalive.Ended{Lease: l.handle})
		}
		ended := l.end.Load() != nil
		k.mu.Unlock()
		switch {
		case ended:
			if l.late {
				k.drop(l, l.raw)
			}
			return cmp.Or(ctx.Err(), errPlaceLost)
		case ctx.Err() != nil:
			return p.leaveTo(ctx.Err())
		case err == errAskAgain:
			fails = 0
		case inconclusive(err):
			fails++
			l.idle(ctx, pauseAfter(fails, l.TTL()))
		default:
			k.drop(l, l.raw)
			return err
		}
	}
}

// errAskAgain means that the store has not reported a turn for a TTL.
var errAskAgain = errors.New("no turn yet")

// await asks the store to report the turn of l, for at most the TTL. The caller then asks again, in case the connection
// is dead.
func (k *Keeper) await(ctx context.Context, l *Lease) (backend.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, l.TTL())
	defer cancel()
	k.mu.Lock()
	l.interrupt = cancel
	if l.end.Load() != nil {
		cancel()
	}
	k.mu.Unlock()
	turn, err := k.backend.Await(ctx, l.raw)
	switch {
	case err == nil && !turn.Held:
		return turn, fmt.Errorf("%w: the store reported a turn without the name", ErrUnavailable)
	case err != nil && !errors.Is(err, ErrLost) && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return turn, errAskAgain
	}
	return turn, err
}

// settled unlocks the keeper, and returns nil if the claim holds its name and the caller still wants it.
func (k *Keeper) settled(ctx context.Context, p *place) error {
	l := p.l
	l.interrupt = nil
	holds, closing := l.isHeld, k.closing
	k.mu.Unlock()
	switch {
	case !holds:
		k.drop(l, l.raw)
		return fmt.Errorf("%w: the store takes longer to answer than a TTL of %v allows", ErrUnavailable, l.TTL())
	case closing:
		k.drop(l, l.raw)
		return cmp.Or(ctx.Err(), errKeeperClosed)
	}
	if err := ctx.Err(); err != nil {
		return p.leaveTo(err)
	}
	return nil
}

// idle waits for d, or until l changes.
func (l *Lease) idle(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.signal:
	case <-ctx.Done():
	}
}

// patience is how long one attempt waits for its answer when that much time is left, before another endpoint is tried.
func patience(left time.Duration) time.Duration { return max(left/3, keepalive.MinTTL) }

const (
	leastRetry = 5 * time.Millisecond
	mostRetry  = 5 * time.Second
)

// pauseAfter returns how long to wait before the next attempt, after that many have failed: at most a quarter of the TTL.
func pauseAfter(fails int, ttl time.Duration) time.Duration {
	most := max(leastRetry, min(mostRetry, ttl/4))
	return backoff.Below(backoff.Doubled(leastRetry, most, fails), mathrand.Uint64())
}

// pause returns false if ctx ended before d has passed.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
