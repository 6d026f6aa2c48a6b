package leasekeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// This file runs recurring work once for each tick: the store keeps a mark beside the name, which is the highest tick that
// was completed.

// TickAt returns the tick of a time, such as the one for which a run of a schedule is planned. Its time zone makes no
// difference, and no clock is compared with it. Times before 1678 or after 2261 are not valid.
func TickAt(t time.Time) Tick { return backend.TickAt(t) }

// TickNumber returns the tick of a counter.
func TickNumber(n int64) Tick { return backend.TickNumber(n) }

// ParseTick returns the tick of a decimal number, or of a time in RFC 3339.
func ParseTick(text string) (Tick, error) { return backend.ParseTick(text) }

// Once runs fn if the tick has not been completed, and returns [ErrDone] if it has been, or if a later one has been. It
// waits for the name first, as [Keeper.Run] does, so at most one process runs fn at a time. When fn has returned nil, the
// store records the tick as completed, in one step with the release of the name. So over all processes each tick is
// completed at most once. If fn returns an error, or if its process dies or loses the lease before that, the tick is
// left to the next process that calls Once for it: fn may then have run more than once. [AtMostOnce] makes that impossible.
//
// The ticks of a name are all times or all numbers, and come from the callers: no clocks are compared. A tick that was
// never completed is passed over once a later one is.
//
// Once returns nil if it has recorded the tick, and otherwise what [Keeper.Run] would. An [ErrUnknownOutcome] in its error
// says that the tick may have been recorded. Without [AtMostOnce], any other error says that this call has not recorded it. The mark stays for as long as the store: no release, expiry or
// cleaning of unused names removes it. [Keeper.Mark] shows it, and [Keeper.ReplaceMark] corrects it.
func (k *Keeper) Once(ctx context.Context, name string, tick Tick, fn Func, o ...Option) error {
	options, err := k.forOne(o)
	if err != nil {
		return err
	}
	marker, err := able[backend.Marker](k, name)
	if err != nil {
		return err
	}
	if _, err := able[backend.Finisher](k, name); err != nil {
		return err
	}
	if err := backend.CheckTick(tick); err != nil {
		return err
	}
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	run := &tickRun{marker: marker, tick: tick, fn: fn, before: options.atMostOnce}
	if err := run.checkEarly(ctx, k, name, options.ttl); err != nil {
		return err
	}
	l, err := k.claimUntilHeld(ctx, name, options, true)
	if err != nil {
		return err
	}
	t := l.run(run.work)
	if t.err == nil && l.recorded() {
		return nil // also if the tenure ended early: the work is done, and the tick is recorded
	}
	return t.joined()
}

// AtMostOnce makes [Keeper.Once] record the tick as completed before fn begins instead of after it. So fn runs at most once
// for each tick, and a process that dies in fn leaves its tick undone. Other calls ignore it.
func AtMostOnce() Option {
	return leaseOptionFunc(func(l *leaseOptions) { l.atMostOnce = true })
}

// HoldAtLeast keeps the name taken until d after it was acquired, even if it is released earlier. The store does that: the
// process may have ended by then. A holder that dies, or loses the lease, frees the name when its TTL has passed, as
// without HoldAtLeast. d is limited by the longest TTL of the store, and on etcd by the TTL of the lease; for a longer one
// there the error is [ErrUnsupported], and elsewhere [ErrInvalid]. The call returns that error before it claims the name.
func HoldAtLeast(d time.Duration) Option {
	return leaseOptionFunc(func(l *leaseOptions) { l.least = d })
}

// DoneError says which completed tick makes another one unnecessary. It is [ErrDone] for [errors.Is].
type DoneError struct {
	Name string
	Tick Tick // that was asked for
	Mark Mark // of the name
}

func (e *DoneError) Error() string {
	text := fmt.Sprintf("%s: the tick %v is done", e.Name, e.Tick)
	if e.Mark.Tick != e.Tick {
		text += fmt.Sprintf(": %v, which is later, has been completed", e.Mark.Tick)
	}
	return backend.Printable(text)
}

// Is makes a DoneError [ErrDone].
func (e *DoneError) Is(target error) bool { return target == ErrDone }

// Mark returns the highest completed tick of a name, as the store knows it with authority.
func (k *Keeper) Mark(ctx context.Context, name string) (Mark, error) {
	marker, err := able[backend.Marker](k, name)
	if err != nil {
		return Mark{}, err
	}
	return marker.Mark(ctx, name)
}

// ReplaceMark replaces the mark of a name if it still is the old one, and reports whether it did. It is for operators: for
// example if a mark was set too far ahead by a wrong tick, so that the work does not run any more. The zero Mark removes
// the mark; the next tick may then be of the other kind.
func (k *Keeper) ReplaceMark(ctx context.Context, name string, old, replacement Mark) (bool, error) {
	marker, err := able[backend.Marker](k, name)
	if err != nil {
		return false, err
	}
	if old.IsZero() {
		old = Mark{}
	}
	if replacement.IsZero() {
		replacement = Mark{}
	}
	return marker.ReplaceMark(ctx, name, old, replacement)
}

// tickRun is one call of [Keeper.Once].
type tickRun struct {
	marker backend.Marker
	tick   Tick
	fn     Func
	before bool // the tick is recorded before fn
}

// checkEarly is check before the name is held, which saves the wait for the name. It makes one attempt.
func (r *tickRun) checkEarly(ctx context.Context, k *Keeper, name string, ttl time.Duration) error {
	attempt := backend.NewRequest(ctx, k.calling, patience(ttl))
	defer attempt.End()
	err := r.check(attempt, name)
	if err != nil && inconclusive(err) {
		return nil
	}
	return err
}

// check returns a *DoneError if the tick needs no run, and an [ErrInvalid] if its kind is not that of the mark.
func (r *tickRun) check(ctx context.Context, name string) error {
	m, err := r.marker.Mark(ctx, name)
	if err != nil {
		return err
	}
	if done, err := m.Includes(r.tick); !done {
		return err
	}
	return &DoneError{Name: name, Tick: r.tick, Mark: m}
}

// work runs the function under the lease.
func (r *tickRun) work(ctx context.Context, l *Lease) error {
	err := r.checkHeld(ctx, l)
	if err == nil && r.before {
		err = l.insist(ctx, func(ctx context.Context) error { return r.marker.RaiseMark(ctx, l.raw, r.tick) })
	}
	if err != nil {
		l.releaseAtOnce()
		return err
	}
	if err := r.fn(ctx, l); err != nil || r.before {
		return err
	}
	return l.recordAtRelease(r.tick)
}

// CheckTick returns a [*DoneError] if the tick, or a later one, is completed: then there is nothing to do under this lease, and
// [HoldAtLeast] does not apply to it. Any other error means that the store did not say so while the lease was held.
func (l *Lease) CheckTick(ctx context.Context, tick Tick) error {
	marker, err := able[backend.Marker](l.k, l.name)
	if err != nil {
		return err
	}
	if err := backend.CheckTick(tick); err != nil {
		return err
	}
	if err := l.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })()
	err = (&tickRun{marker: marker, tick: tick}).checkHeld(ctx, l)
	if errors.Is(err, ErrDone) {
		l.releaseAtOnce()
	}
	return err
}

// Complete releases the name and records the tick as completed, in one step. It is for programs that use [Keeper.Acquire]
// in place of [Keeper.Once]. They call [Lease.CheckTick] first: a tick that was completed before stays so, and Complete
// returns nil for it. The errors are those of [Lease.Release]. [ErrLost] says that this call has not recorded the tick, and
// [ErrUnknownOutcome] that it may have. Repeating the call with the same tick returns the same.
func (l *Lease) Complete(ctx context.Context, tick Tick) error {
	if _, err := able[backend.Finisher](l.k, l.name); err != nil {
		return err
	}
	if err := backend.CheckTick(tick); err != nil {
		return err
	}
	if err := l.recordAtRelease(tick); err != nil {
		return err
	}
	return l.Release(ctx)
}

// checkHeld is check for the holder of the name. It repeats the request until the store answers.
func (r *tickRun) checkHeld(ctx context.Context, l *Lease) error {
	return l.insist(ctx, func(ctx context.Context) error { return r.check(ctx, l.name) })
}

// insist repeats a request to the store until it is answered for good, until ctx ends, or until the store has failed for a
// TTL. If an attempt may have taken effect, an error of a later one is of unknown outcome.
func (l *Lease) insist(ctx context.Context, request func(context.Context) error) error {
	began := l.k.clock.Now()
	var unknown error
	for fails := 0; ; fails++ {
		attempt := backend.NewRequest(ctx, l.k.calling, patience(l.TTL()))
		err := request(attempt)
		attempt.End()
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrUnknownOutcome) {
			unknown = err
		} else if unknown != nil {
			err = fmt.Errorf("%w: an attempt before may have taken effect: %w", ErrUnknownOutcome, err)
		}
		switch {
		case unknown == nil && !inconclusive(err), errors.Is(err, ErrLost), errors.Is(err, ErrInvalid):
			return err
		case ctx.Err() != nil || !pause(ctx, pauseAfter(fails, l.TTL())):
			return errors.Join(context.Cause(ctx), err)
		case l.k.clock.Now().Elapsed(began) > l.TTL():
			return err
		}
	}
}
