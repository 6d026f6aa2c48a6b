package leasekeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keepalive"
)

// This file ends tenures early: at their longest time, when a health check fails, or by Transfer. One rule stands over all of it: a name
// is never released while the function that runs under it still runs. The context of the lease ends first. If the
// function then returns, the name is released. If it does not, the lease is no longer renewed, and runs out.

// HealthCheck reports whether the process can do its work. It must return soon after its context has ended.
type HealthCheck func(ctx context.Context) error

// WithHealth ends a tenure early when the process can no longer do its work. The keeper calls the check as soon as it holds
// the name, and then three times in each TTL. If the check returns an error, or does not return within a third of the
// TTL, the context of the lease ends with that cause, and the lease is no longer renewed. [Keeper.Run] and
// [Keeper.Campaign] then wait for their function and release the name. If the function does not return, the lease runs
// out, at most a TTL later. A caller of [Keeper.Acquire] releases the lease itself.
//
// A check that hangs keeps its goroutine, and is not called again for this lease.
func WithHealth(check HealthCheck) Option {
	return leaseOptionFunc(func(l *leaseOptions) { l.health = check })
}

// HoldAtMost ends a tenure d after the name was acquired or resumed, in the same way as [WithHealth]. The clock that
// measures d stops while the machine sleeps; a lease does not survive a sleep that is longer than its TTL.
func HoldAtMost(d time.Duration) Option {
	return leaseOptionFunc(func(l *leaseOptions) { l.most = d; l.limited = true })
}

// limit starts the goroutine that ends the tenure of l early, if the options ask for that. The keeper owns the goroutine,
// which ends with the lease, whether or not the lease's context has ended before: the function may run on.
func (k *Keeper) limit(l *Lease, o leaseOptions) {
	if !o.limited && o.health == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.isHeld && k.working.Err() == nil {
		ctx, cancel := context.WithCancel(leaseParent{k.working, l}) // with l in it, for waitsForItself
		l.endWatch = cancel
		k.own.Go(func() { l.endEarly(ctx, cancel, o) })
	}
}

// endEarly retires the lease when its longest time is over, or when its health check fails. ctx ends with the lease.
func (l *Lease) endEarly(ctx context.Context, cancel context.CancelFunc, o leaseOptions) {
	var longest <-chan time.Time
	if o.limited {
		timer := time.NewTimer(o.most)
		defer timer.Stop()
		longest = timer.C
	}
	failed := make(chan error, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	if o.health != nil {
		watching.Go(func() { failed <- watchHealth(ctx, o.health, l.TTL()/3) })
	}
	select {
	case <-ctx.Done():
	case <-longest:
		l.retire(fmt.Sprintf("it was held for %v, the longest time that is allowed", o.most))
	case err := <-failed:
		if err != nil {
			l.retire("its health check failed: " + err.Error())
		}
	}
}

// errHangs is the error of a health check that does not return.
var errHangs = errors.New("it did not return in time")

// watchHealth calls check once in each period until it fails. It returns nil when ctx ends.
func watchHealth(ctx context.Context, check HealthCheck, period time.Duration) error {
	result := make(chan error, 1)
	for {
		limited, cancel := context.WithTimeout(ctx, period)
		began := time.Now()
		go func() { result <- check(limited) }() // stays if check hangs
		err := awaitCheck(ctx, result, period)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !pause(ctx, period-time.Since(began)):
			return nil
		}
	}
}

// awaitCheck returns the result of a check, or errHangs if there is none in time.
func awaitCheck(ctx context.Context, result <-chan error, within time.Duration) error {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-timer.C:
		return errHangs
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retire ends the context of the lease and its renewals. The lease stays valid until its deadline, or until it is released.
func (l *Lease) retire(why string) {
	k := l.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if !l.isHeld {
		return
	}
	l.retired = &ending{name: l.name, token: l.token, why: why, early: true}
	k.log(slog.LevelWarn, "tenure ends early", l, slog.String("why", why))
	if k.reports != nil {
		k.reports.add(EndedEarly{l.asSubject(), l.retired})
	}
	l.endContext(l.retired)
	k.step(keepalive.Retire{Lease: l.handle})
}
