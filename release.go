package leasekeeper

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keepalive"
)

const (
	dropTries = 8                // attempts to release a lease that has ended here
	mostPause = 30 * time.Second // between two of these attempts
	// TTL/lateParts after a lease was lost here, it has ended in the store too, unless a late renewal prolonged it.
	lateParts = 16
)

// releaseInBackground ends the right to act and starts a goroutine that releases the lease. The lock is held.
func (k *Keeper) releaseInBackground(l *Lease, why *ending) {
	if k.beginRelease(k.clock.Now(), l, why) {
		k.own.Go(func() {
			defer k.own.Done()
			k.release(l)
		})
	}
}

// beginRelease ends the right to act. If it returns true, the caller must release the lease, or let a goroutine do so,
// and call own.Done after that. The lock is held.
func (k *Keeper) beginRelease(now clock.Instant, l *Lease, why *ending) bool {
	k.finish(l, why)
	l.released.begun = true
	l.resolve = false
	if k.working.Err() != nil {
		l.released.end(errKeeperClosed)
		k.free(l)
		return false
	}
	k.stepAt(now, keepalive.Releasing{Lease: l.handle})
	k.busy++
	k.own.Add(1)
	return true
}

// releaseNow makes the first attempt at a release on the goroutine of its caller, until ctx ends. Nearly always that is
// the only attempt. It returns true if the store has confirmed the release.
func (k *Keeper) releaseNow(ctx context.Context, l *Lease, began clock.Instant) bool {
	defer k.own.Done()
	if ctx.Err() == nil {
		err := k.finishOnce(ctx, l, l.TTL())
		if err == nil {
			k.onReleased(began, l, nil)
			return true
		}
		if ctx.Err() == nil {
			k.own.Go(func() { k.releaseAgain(l, began, err) })
			return false
		}
	}
	k.own.Go(func() { k.release(l) })
	return false
}

// release asks the store to release the lease until the store confirms that, or until the lease has run out.
func (k *Keeper) release(l *Lease) {
	began := k.clock.Now()
	k.releaseAgain(l, began, k.finishOnce(k.working, l, l.TTL()))
}

// releaseAgain is release after the first attempt, whose error may be nil.
func (k *Keeper) releaseAgain(l *Lease, began clock.Instant, err error) {
	for err != nil && k.retryRelease(l, err) {
		err = k.finishOnce(k.working, l, l.TTL()-k.clock.Now().Elapsed(began))
	}
	k.onReleased(k.clock.Now(), l, err)
}

// onReleased records the outcome of a release, and logs it. now does not influence the outcome.
func (k *Keeper) onReleased(now clock.Instant, l *Lease, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.leaveLocked()
	outcome := l.releaseError(nil)
	if err == nil {
		k.stepAt(now, keepalive.Released{Lease: l.handle})
		k.forget(l)
		if l.token != 0 {
			k.log(slog.LevelInfo, "lease released", l)
		}
	} else {
		if k.closing {
			k.unconfirmed++
		}
		outcome = l.releaseError(fmt.Errorf("leasekeeper: release of %s: %w: the store has not confirmed it, and the lease ends by itself after %v: %s",
			l.name, ErrUnknownOutcome, l.TTL(), err))
		k.log(slog.LevelWarn, "release not confirmed", l, slog.String("error", err.Error()))
	}
	if k.reports != nil && l.token != 0 {
		k.reports.add(Released{l.asSubject(), l.heldFor(), outcome})
	}
	k.free(l)
	l.released.end(outcome)
}

// releaseOnce makes one attempt, as soon as fewer than maxReleases are in progress. It gives up when ctx ends or the keeper
// stops. left is the time that all attempts together still have.
func (k *Keeper) releaseOnce(ctx context.Context, raw backend.Lease, left time.Duration) error {
	return k.releaseBy(ctx, left, func(ctx context.Context) error { return k.backend.Release(ctx, raw) })
}

// releaseBy is releaseOnce for any request that releases a lease.
func (k *Keeper) releaseBy(ctx context.Context, left time.Duration, request func(context.Context) error) error {
	if err := k.admitRelease(ctx); err != nil {
		return err
	}
	defer func() { <-k.releases }()
	attempt := backend.NewRequest(ctx, k.working, patience(left))
	defer attempt.End()
	return request(attempt)
}

// admitRelease waits until fewer than maxReleases attempts are in progress.
func (k *Keeper) admitRelease(ctx context.Context) error {
	select {
	case k.releases <- struct{}{}:
		return nil
	default:
	}
	select {
	case k.releases <- struct{}{}:
		return nil
	case <-k.working.Done():
		return errKeeperClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryRelease waits until the release must be tried again. It returns false if it is too late for that. Other calls that
// want the name need not wait for that: the store queues their claim until the lease has ended.
func (k *Keeper) retryRelease(l *Lease, failed error) bool {
	k.mu.Lock()
	l.trouble = failed
	k.free(l)
	k.step(keepalive.ReleaseFailed{Lease: l.handle})
	k.mu.Unlock()
	again, _ := k.awaitRepeat(k.working, l)
	return again
}

// drop releases what an unwanted or ended claim may have left in the store.
func (k *Keeper) drop(l *Lease, raw backend.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropLocked(l, raw)
}

// dropLocked is drop for a caller that holds the lock.
func (k *Keeper) dropLocked(l *Lease, raw backend.Lease) {
	if l.end.Load() == nil { // otherwise another goroutine may be releasing it
		l.raw = raw
		l.dropHold() // nothing was done under it
		k.releaseInBackground(l, &ending{name: l.name, token: l.token, why: "it was no longer wanted", released: true})
		return
	}
	// The renewer has forgotten the claim.
	if l.released.begun || k.working.Err() != nil {
		return
	}
	k.busy++
	k.own.Go(func() { k.sweep(raw, l.TTL()) })
}

// releaseLost releases a lease that was lost at its deadline. A renewal whose answer did not come in time may have
// reached the store or may reach it yet, and would keep the name from all waiters for another TTL. The lock is held.
func (k *Keeper) releaseLost(l *Lease) {
	if k.working.Err() != nil || l.released.begun {
		return
	}
	l.released.begun = true
	l.released.end(l.end.Load())
	k.busy++
	k.own.Go(func() { k.releaseLostLater(l) })
}

// releaseLostLater tries to release a lost lease for as long as one that a late renewal has prolonged can last. It begins
// when the lease has ended in the store too, so it never frees the name early. A keeper that is being closed tries once.
func (k *Keeper) releaseLostLater(l *Lease) {
	defer k.leave()
	defer k.forgetLost(l)
	began, wait := k.clock.Now(), l.TTL()/lateParts
	for range dropTries {
		waited := pause(k.calling, wait)
		left := l.TTL() - k.clock.Now().Elapsed(began)
		if left <= 0 || k.releaseLostOnce(l, left) || !waited {
			return
		}
		wait = min(mostPause, l.TTL()/dropTries)
	}
}

// releaseLostOnce releases a lost lease if the name is still held under it, and returns true if nothing is left to do. It
// leaves a tenure alone that another process has resumed, and a pinned one.
func (k *Keeper) releaseLostOnce(l *Lease, left time.Duration) bool {
	attempt := backend.NewRequest(k.working, k.working, patience(left))
	info, err := k.backend.Get(attempt, l.name)
	attempt.End()
	if err != nil {
		return false
	}
	mine, theirs := k.options.holder, info.Holder
	same := theirs.ID == mine.ID && theirs.Card.Host == mine.Card.Host && theirs.Card.PID == mine.Card.PID
	if !info.Held || info.Token != l.token || !same || info.Pinned != "" || !k.forbidResume(l) {
		return true
	}
	return k.releaseOnce(k.working, l.raw, left) == nil
}

// forbidResume decides that this keeper releases a lost lease and never resumes it. It returns false if the keeper has
// begun to resume it: the store may know both by one id, so a release would end the resumed lease as well.
func (k *Keeper) forbidResume(l *Lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.givenUp = !l.resumed
	return l.givenUp
}

// resumable keeps a lost lease of this keeper from being released. It returns an error if the release has begun.
func (k *Keeper) resumable(name string, t Token) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lost[name]
	if l == nil || l.token != t {
		return nil
	}
	if l.givenUp {
		return fmt.Errorf("%w: this keeper has lost %s under token %d and is releasing it", ErrLost, name, t)
	}
	l.resumed = true
	return nil
}

// forgetLost removes l from lost.
func (k *Keeper) forgetLost(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost[l.name] == l {
		delete(k.lost, l.name)
	}
}

// sweep releases a lease that has ended here, so that waiters need not wait until it ends in the store too.
func (k *Keeper) sweep(raw backend.Lease, ttl time.Duration) {
	defer k.leave()
	for range dropTries {
		if k.releaseOnce(k.working, raw, ttl) == nil || !pause(k.working, min(mostPause, ttl/dropTries)) {
			return
		}
	}
}
