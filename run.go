package leasekeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Func is the work that is done under a lease. It must return soon after its context has ended. Its writes must carry the
// token of the lease, because a paused process may write late all the same.
type Func func(ctx context.Context, l *Lease) error

// Run waits until it holds the name, runs fn once, and releases the name when fn has returned. The context of fn ends
// when the lease is lost, when ctx ends, or when the keeper is closed. Run always waits for fn, and keeps the lease as
// long as fn runs, unless [HoldAtMost] or [WithHealth] ends the tenure.
//
// Run returns what fn returned. If the lease was lost while fn ran, Run returns the loss joined with what fn returned. If
// fn panics, Run releases the name, because fn has ended, and the panic goes on. If the store does not confirm the release
// within ten seconds, or within the TTL if that is less, Run joins an [ErrUnknownOutcome] to what fn returned, and the
// keeper goes on trying.
func (k *Keeper) Run(ctx context.Context, name string, fn Func, o ...Option) error {
	options, err := k.forOne(o)
	if err != nil {
		return err
	}
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	l, err := k.claimUntilHeld(ctx, name, options, true)
	if err != nil {
		return err
	}
	return l.run(fn).joined()
}

// releasePatience is how long Run waits for the confirmation of a release.
const releasePatience = 10 * time.Second

// tenureOutcome is the outcome of one run of a function.
type tenureOutcome struct {
	err   error // what the function returned
	after error // what went wrong besides: the loss, an early end, or a release without confirmation; nil if nothing did
	lost  bool  // the lease was lost, or its tenure ended early
}

// joined returns all that went wrong, as one error.
func (t tenureOutcome) joined() error {
	if t.after == nil || errors.Is(t.err, t.after) {
		return t.err
	}
	return errors.Join(t.after, t.err)
}

// run runs fn, and releases the lease unless it was lost before fn returned.
func (l *Lease) run(fn Func) tenureOutcome {
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_, _ = l.leave()
		}
	}()
	err := fn(l.Context(), l)
	returned = true
	after, lost := l.leave()
	return tenureOutcome{err, after, lost}
}

// leave ends the tenure of a managed lease. It returns what went wrong besides the function, and whether the lease was lost
// or its tenure ended early.
func (l *Lease) leave() (after error, lost bool) {
	defer l.leaveContext()
	after, lost = l.giveUpName()
	if early := l.earlyEnd(); early != nil {
		if after == nil {
			return early, true
		}
		return errors.Join(early, after), true
	}
	return after, lost
}

// giveUpName releases the name, unless the lease is lost.
func (l *Lease) giveUpName() (after error, lost bool) {
	if loss := l.loss(); loss != nil {
		l.k.mu.Lock()
		defer l.k.mu.Unlock()
		if l.late {
			l.k.releaseLost(l)
		}
		return loss, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(releasePatience, l.TTL()))
	defer cancel()
	err := l.Release(ctx)
	if errors.Is(err, ErrLost) && !l.hasTick() {
		err = nil // fn had returned before that
	}
	return err, false
}

// earlyEnd returns why the tenure ended early, or nil if it did not.
func (l *Lease) earlyEnd() error {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	if l.retired == nil {
		return nil
	}
	return l.retired
}

// loss returns how the lease was lost, or nil if it is held, or was released.
func (l *Lease) loss() error {
	err := l.Check()
	if e := l.end.Load(); e != nil && e.released {
		return nil
	}
	return err
}

// Campaign runs fn each time that it holds the name, again and again until ctx ends: the process in fn is the leader.
// When fn returns nil, Campaign releases the name, so that other waiters get their turn, and waits again. When the lease
// is lost, Campaign waits for fn to return and then waits for the name again. A store that fails for a while does not end
// it.
//
// Campaign returns
//
//   - when ctx has ended: with the error of fn, if there is one, else with that of ctx;
//   - when fn returned an error while it held the name;
//   - when the keeper was closed, or the store refused the claim for good.
//
// [Keeper.Watch] observes the leader. [Lease.Announce] publishes what the leader wants others to know.
func (k *Keeper) Campaign(ctx context.Context, name string, fn Func, o ...Option) error {
	options, err := k.forOne(o)
	if err != nil {
		return err
	}
	if options.noWait {
		return fmt.Errorf("%w: a campaign waits", ErrInvalid)
	}
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	waiting, done := k.bound(ctx)
	defer done()
	for brief := 0; ; {
		began := k.clock.Now()
		l, err := k.claimUntilHeld(ctx, name, options, true)
		if err == nil {
			began = k.clock.Now()
			t := l.run(fn)
			if over, err := k.campaignOver(ctx, l, t); over {
				return err
			}
		} else if !transient(err) {
			return err
		}
		// This pause keeps the loop from spinning, however fn or the store behave.
		brief = k.countBrief(brief, began, options.ttl)
		if !pause(waiting, pauseAfter(brief, options.ttl)) {
			return endedBy(waiting)
		}
	}
}

// campaignOver reports whether a campaign ends with this tenure, and what it then returns.
func (k *Keeper) campaignOver(ctx context.Context, l *Lease, t tenureOutcome) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return true, cmp.Or(t.err, ctx.Err())
	case k.calling.Err() != nil:
		return true, errors.Join(errKeeperClosed, t.err)
	case t.lost && t.err != nil:
		k.log(slog.LevelWarn, "the function returned an error after its lease was lost", l, slog.String("error", t.err.Error()))
		return false, nil
	}
	return t.err != nil, t.err
}

// countBrief returns how many tenures, or failures, in a row were shorter than the TTL.
func (k *Keeper) countBrief(brief int, began clock.Instant, ttl time.Duration) int {
	if k.clock.Now().Elapsed(began) >= ttl {
		return 0
	}
	return brief + 1
}
