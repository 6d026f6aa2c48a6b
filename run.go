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

// Func is what is done under a lease. It must return soon after its context has ended, and what it does
// must carry the token of the lease, because it may be late all the same.
type Func func(ctx context.Context, l *Lease) error

// Run waits until it holds the name, runs fn once, and releases the name when fn has returned. The context
// of fn ends when the lease is lost, when ctx ends, or when the keeper is closed; Run waits for fn in any
// case, and the lease is kept as long as fn runs.
//
// It returns what fn returned. If the lease was lost while fn ran, Run returns the loss joined with what fn
// returned; then a renewal that has come too late is undone, and nothing else is released. If fn panics the name is released, because fn has ended, and the panic
// goes on. If nobody confirms the release within ten seconds, or the TTL if that is less, an
// [ErrUnknownOutcome] is joined to what fn returned, while the keeper goes on trying.
func (k *Keeper) Run(ctx context.Context, name string, fn Func, o ...Option) error {
	options, err := k.forOne(o)
	if err != nil {
		return err
	}
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	l, err := k.acquire(ctx, name, options, true)
	if err != nil {
		return err
	}
	t := l.run(fn)
	if t.after == nil || errors.Is(t.err, t.after) {
		return t.err
	}
	return errors.Join(t.after, t.err)
}

// releasePatience is how long Run waits for the confirmation of a release.
const releasePatience = 10 * time.Second

// tenure is what became of one run of a function.
type tenure struct {
	err   error // what it returned
	after error // what went wrong besides: the loss, or a release that was not confirmed
	lost  bool
}

// run runs fn, and releases the lease unless it was lost before fn returned.
func (l *Lease) run(fn Func) tenure {
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_, _ = l.leave()
		}
	}()
	err := fn(l.Context(), l)
	returned = true
	after, lost := l.leave()
	return tenure{err, after, lost}
}

// leave ends a tenure.
func (l *Lease) leave() (after error, lost bool) {
	if loss := l.lost(); loss != nil {
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
	if errors.Is(err, ErrLost) {
		return nil, false // fn had returned before that
	}
	return err, false
}

// lost returns how the lease was lost, or nil if it is held, or was released.
func (l *Lease) lost() error {
	err := l.Check()
	if e := l.end.Load(); e != nil && e.released {
		return nil
	}
	return err
}

// Campaign runs fn each time that it holds the name, again and again until ctx ends: the leader is who is in
// fn. When fn returns nil the name is released, so that others get their turn, and Campaign stands in line
// again. When the lease is lost Campaign waits for fn, then does the same. Troubles of the store do not end it.
//
// It returns when ctx has ended, with what fn returned if that is an error, else with the error of ctx; when
// fn returned an error while it held the name; and when the keeper was closed or asking again does not help.
//
// Who wants to observe the leader watches the name with [Keeper.Watch]; what the leader wants to proclaim it
// says with [Lease.Announce].
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
		l, err := k.acquire(ctx, name, options, true)
		if err == nil {
			began = k.clock.Now()
			t := l.run(fn)
			if over, err := k.campaignOver(ctx, l, t); over {
				return err
			}
		} else if !transient(err) {
			return err
		}
		// However fn or the store behave, this does not spin.
		brief = k.pace(brief, began, options.ttl)
		if !pause(waiting, pauseAfter(brief, options.ttl)) {
			return over(waiting)
		}
	}
}

// campaignOver reports whether a campaign ends with this tenure, and what it then returns.
func (k *Keeper) campaignOver(ctx context.Context, l *Lease, t tenure) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return true, cmp.Or(t.err, ctx.Err())
	case k.calling.Err() != nil:
		return true, errors.Join(errClosed, t.err)
	case t.lost && t.err != nil:
		k.log(slog.LevelWarn, "the function returned an error after its lease was lost", l, slog.String("error", t.err.Error()))
		return false, nil
	}
	return t.err != nil, t.err
}

// pace counts how many tenures, or failures, in a row were brief.
func (k *Keeper) pace(brief int, began clock.Instant, ttl time.Duration) int {
	if k.clock.Now().Elapsed(began) >= ttl {
		return 0
	}
	return brief + 1
}
