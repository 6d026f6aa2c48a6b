package leasekeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// This file releases leases that leave something behind: a completed tick, or a name that stays held.

// aftermath is what the release of a lease leaves behind, and what the store has said of it. The keeper's lock guards it
// until the release has begun. From then on only the goroutine that releases the lease writes it, with the lock, and reads it
// without.
type aftermath struct {
	tick  Tick          // that is recorded as completed; the zero Tick: none
	least time.Duration // for HoldAtLeast

	unrecorded  error         // why the tick is not recorded
	unheld      error         // why the name is not held on
	refusedHold time.Duration // the least time, while the release tries to record the tick alone
	doubtful    bool          // an attempt may have taken effect; only the goroutine that releases the lease uses it
}

// confirmHold asks a store whose limit for HoldAtLeast only the store knows, so that a call that it would refuse fails before
// its work. A store that does not answer in time has refused nothing.
func (k *Keeper) confirmHold(ctx context.Context, name string, o leaseOptions) error {
	store, ok := k.backend.(backend.HoldConfirmer)
	if !ok || o.least == 0 {
		return nil
	}
	ctx, done := k.bound(ctx)
	defer done()
	ctx, cancel := context.WithTimeout(ctx, patience(o.ttl))
	defer cancel()
	if err := store.ConfirmHold(ctx, name, o.ttl, o.least); errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("HoldAtLeast of %v: %w", o.least, err)
	}
	return nil
}

// recordAtRelease makes the release of the lease record the tick. It returns an error if the release has begun without it.
func (l *Lease) recordAtRelease(t Tick) error {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	switch {
	case !l.released.begun:
		l.after.tick = t
	case l.after.tick != t && l.after.unrecorded == nil:
		return fmt.Errorf("%w: %s was released before, so the tick %v is not recorded", ErrLost, l.name, t)
	}
	return nil
}

// recorded reports whether the store has confirmed that the release recorded the tick.
func (l *Lease) recorded() bool {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	return l.released.begun && l.released.over && l.released.err == nil && !l.after.tick.IsZero()
}

// hasTick reports whether the release had to record a tick.
func (l *Lease) hasTick() bool {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	return !l.after.tick.IsZero() || l.after.unrecorded != nil
}

// releaseAtOnce undoes HoldAtLeast, because no work was done under the lease.
func (l *Lease) releaseAtOnce() {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	l.dropHold()
}

// dropHold undoes HoldAtLeast, unless the release has begun. The keeper's lock is held.
func (l *Lease) dropHold() {
	if !l.released.begun {
		l.after.least = 0
	}
}

// leftBehind returns what the release of the lease leaves behind.
func (l *Lease) leftBehind() backend.Finish {
	f := backend.Finish{Tick: l.after.tick}
	if l.after.least > 0 && l.token != 0 {
		f.Hold = max(0, l.after.least-l.k.clock.Now().Elapsed(l.began))
	}
	return f
}

// finishOnce makes one attempt to release a lease and to leave behind what its options ask for. What the store refuses to
// leave behind, it leaves out: the name is released all the same.
func (k *Keeper) finishOnce(ctx context.Context, l *Lease, left time.Duration) error {
	for {
		f := l.leftBehind()
		if f == (backend.Finish{}) {
			return k.releaseOnce(ctx, l.raw, left)
		}
		finisher, err := backend.Can[backend.Finisher](k.backend)
		if err == nil {
			err = k.releaseBy(ctx, left, func(ctx context.Context) error { return finisher.Finish(ctx, l.raw, f) })
		}
		if err == nil || inconclusive(err) || errors.Is(err, ErrClosed) {
			l.after.doubtful = l.after.doubtful || err != nil
			return err
		}
		k.mu.Lock()
		lost := l.after.leaveOut(f, err)
		k.mu.Unlock()
		if lost {
			return nil
		}
	}
}

// leaveOut makes the next attempt at a release leave less behind, because the store has refused f. It reports whether there
// is nothing left to release. The keeper's lock is held.
func (a *aftermath) leaveOut(f backend.Finish, refused error) (lost bool) {
	lost = errors.Is(refused, ErrLost)
	if lost && a.doubtful {
		refused = fmt.Errorf("%w: an attempt before may have recorded it: %w", ErrUnknownOutcome, refused)
	}
	switch {
	case lost:
		if !f.Tick.IsZero() {
			a.unrecorded = refused
		}
		a.tick, a.least = Tick{}, 0
	case f.Tick.IsZero():
		a.least, a.unheld = 0, refused
	case f.Hold > 0: // try the tick alone
		a.least, a.refusedHold, a.unheld = 0, a.least, refused
	default:
		a.tick, a.unrecorded = Tick{}, refused
		if a.refusedHold > 0 { // the tick was the reason: try to hold the name on alone
			a.least, a.refusedHold, a.unheld = a.refusedHold, 0, nil
		}
	}
	return lost
}

// releaseError returns what the release of a lease says of what it leaves behind. err is the error of the release, or nil if
// the store has confirmed it. The keeper's lock is held.
func (l *Lease) releaseError(err error) error {
	switch {
	case err != nil && !l.after.tick.IsZero():
		return fmt.Errorf("leasekeeper: %s: %w: the tick %v may have been recorded as completed: %w", l.name, ErrUnknownOutcome, l.after.tick, err)
	case l.after.unrecorded != nil:
		return fmt.Errorf("leasekeeper: %s: the tick was not recorded as completed: %w", l.name, l.after.unrecorded)
	case err == nil && l.after.unheld != nil:
		return fmt.Errorf("leasekeeper: %s is free, and not held for its least time: %w", l.name, l.after.unheld)
	}
	return err
}
