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
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/backoff"
	"github.com/leasekeeper/leasekeeper/internal/keepalive"
)

// Acquire waits until the name is free, and returns the lease on it. It survives a store that fails for up to the TTL. If
// ctx ends first, the keeper releases whatever may have reached the store. If this keeper holds the name already, Acquire
// returns a [*HeldError] with Self at once.
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

// claimUntilHeld makes claims until one holds the name.
func (k *Keeper) claimUntilHeld(ctx context.Context, name string, o leaseOptions, managed bool) (*Lease, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	if err := k.enter(); err != nil {
		return nil, err
	}
	defer k.leave()
	l := k.newLease(ctx, name, o, managed)
	began, queued, err := k.claim(ctx, l, o)
	if err == nil {
		return l, nil
	}
	return k.claimAgain(ctx, name, o, managed, began, queued, err)
}

// claimAgain continues claimUntilHeld after the first claim has failed with err. began is when that claim was first sent,
// queued whether the store had queued it.
func (k *Keeper) claimAgain(caller context.Context, name string, o leaseOptions, managed bool, began clock.Instant, queued bool, err error) (*Lease, error) {
	ctx, done := k.bound(caller)
	defer done()
	var cause error // the newest reason that the store gave; a missing answer does not replace a reason
	for tries := 0; ; tries++ {
		if errors.Is(err, ErrUnavailable) && (cause == nil || !errors.Is(err, errNoAnswer)) {
			cause = err
		}
		switch {
		case ctx.Err() != nil:
			return nil, endedAfter(ctx, cause)
		case o.noWait || !transient(err):
			return nil, err
		}
		if now := k.clock.Now(); queued {
			tries, began = 0, now
		} else if now.Elapsed(began) > o.ttl {
			return nil, err
		}
		if !pause(ctx, pauseAfter(tries, o.ttl)) {
			return nil, endedAfter(ctx, cause)
		}
		l := k.newLease(caller, name, o, managed)
		if _, queued, err = k.claim(ctx, l, o); err == nil {
			return l, nil
		}
	}
}

// claim makes one claim, and returns when it holds the name or is over. It returns when it first sent the claim, and
// whether the store has queued it.
func (k *Keeper) claim(ctx context.Context, l *Lease, o leaseOptions) (asked clock.Instant, queued bool, err error) {
	if err := ctx.Err(); err != nil {
		return asked, false, err
	}
	claim := backend.Claim{Name: l.name, Holder: k.identity(o.text), TTL: o.ttl, Wait: !o.noWait}
	_, _ = rand.Read(claim.ID[:]) // never fails
	if asked, err = k.start(l); err != nil {
		return asked, false, err
	}
	// An answer after the end of the lease is useless, so each attempt takes a third of the time that is left. The next
	// attempt may use another endpoint.
	attempt := backend.NewRequest(ctx, k.calling, patience(o.ttl))
	raw, grant, err := k.backend.Claim(attempt, claim)
	attempt.End()
	if err == nil && grant.Held {
		return asked, true, k.granted(ctx, l, raw, grant)
	}
	ctx, done := k.bound(ctx)
	defer done()
	for {
		switch {
		case err == nil && !grant.Held && o.noWait:
			k.drop(l, raw)
			return asked, true, &HeldError{Name: l.name}
		case err == nil:
			return asked, true, k.granted(ctx, l, raw, grant)
		case errors.Is(err, ErrUnknownOutcome) && raw != nil, l.raw != nil && inconclusive(err):
			// An earlier attempt may have taken effect, whatever became of this one.
			if raw == nil {
				raw = l.raw
			}
			if err := k.settle(ctx, l, raw, err); err != nil {
				return asked, false, err
			}
		default:
			return asked, false, k.refused(ctx, l, err)
		}
		attempt := backend.NewRequest(ctx, k.calling, patience(o.ttl-k.clock.Now().Elapsed(asked)))
		raw, grant, err = k.backend.Claim(attempt, claim)
		attempt.End()
	}
}

// start registers a claim that is about to be sent with the renewer, and returns the time.
func (k *Keeper) start(l *Lease) (now clock.Instant, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return now, errKeeperClosed
	}
	now = k.clock.Now()
	k.stepAt(now, keepalive.Wake{}) // what is past its deadline is not held
	if other := k.held[l.name]; other != nil {
		return now, &HeldError{Name: l.name, Holder: k.options.holder, Token: other.token, Ends: other.TTL(), Self: true}
	}
	handle, err := k.core.Claim(now, l.TTL())
	if err != nil {
		return now, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	l.handle = handle
	k.remember(l)
	return now, nil
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
func (k *Keeper) settle(ctx context.Context, l *Lease, raw backend.Lease, unknown error) error {
	k.mu.Lock()
	l.raw = raw
	k.step(keepalive.Unknown{Lease: l.handle})
	k.mu.Unlock()
	again, err := k.again(ctx, l)
	if again {
		return nil
	}
	k.drop(l, raw)
	if err != nil {
		return err
	}
	return fmt.Errorf("leasekeeper: claim to %s: %w: it was not answered in time (%s), and what may have become of it is released",
		l.name, ErrUnknownOutcome, unknown.Error())
}

// granted records that the claim holds the name, or that the store has queued it; then it waits for the turn.
func (k *Keeper) granted(ctx context.Context, l *Lease, raw backend.Lease, grant backend.Grant) error {
	k.mu.Lock()
	l.raw = raw
	l.ttl.Store(int64(grant.TTL))
	if grant.Held {
		l.token = grant.Token
		k.step(keepalive.Granted{Lease: l.handle, TTL: grant.TTL, Until: grant.Until})
		return k.settled(ctx, l)
	}
	l.listen()
	k.step(keepalive.Queued{Lease: l.handle, TTL: grant.TTL, Until: grant.Until})
	k.mu.Unlock()
	for fails := 0; ; {
		turn, err := k.await(ctx, l)
		k.mu.Lock()
		switch {
		case l.end.Load() != nil:
		case err == nil:
			l.token = turn.Token
			k.step(keepalive.Granted{Lease: l.handle, TTL: turn.TTL, Until: turn.Until})
			return k.settled(ctx, l)
		case errors.Is(err, ErrLost):
			l.trouble = err
			k.step(keepalive.Ended{Lease: l.handle})
		}
		ended := l.end.Load() != nil
		k.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			k.drop(l, raw)
			return ctx.Err()
		case ended:
			if l.late {
				k.drop(l, raw)
			}
			return errPlaceLost
		case err == errAskAgain:
			fails = 0
		case inconclusive(err):
			fails++
			l.idle(ctx, pauseAfter(fails, l.TTL()))
		default:
			k.drop(l, raw)
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

// settled unlocks the keeper, and returns nil if l holds its name and the caller still wants it.
func (k *Keeper) settled(ctx context.Context, l *Lease) error {
	l.interrupt = nil
	holds, closing := l.isHeld, k.closing
	k.mu.Unlock()
	switch {
	case !holds:
		k.drop(l, l.raw)
		return fmt.Errorf("%w: the store takes longer to answer than a TTL of %v allows", ErrUnavailable, l.TTL())
	case closing, ctx.Err() != nil:
		k.drop(l, l.raw)
		return cmp.Or(ctx.Err(), errKeeperClosed)
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
