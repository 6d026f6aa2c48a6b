package clientgolease

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper"
)

// ErrStillRunning is returned by the work of [Lock.Run] to say that part of it goes on after it has returned.
var ErrStillRunning = errors.New("clientgolease: part of the leader's work has not ended")

// frame is a call of Run.
type frame struct{ end context.CancelCauseFunc }

// Run calls work, which runs an elector that has this lock, its [Timing], and callbacks of its own. It is for frameworks that make the
// elector themselves. The context of work ends with ctx, and when the lease is lost that the elector took.
//
// The name is released when work has returned, and not before, whatever the elector says. If work returns an
// [ErrStillRunning], Run does not release it: the lease lasts until the process ends, or until the keeper is closed and
// gives up waiting, and then runs out.
//
// Run returns what work returned. If the lease was lost meanwhile, it joins the loss, and if the store has not confirmed
// the release, an [leasekeeper.ErrUnknownOutcome].
func (l *Lock) Run(ctx context.Context, work func(ctx context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(context.Canceled)
	f := &frame{end: end}
	l.mu.Lock()
	if l.guarded || l.within != nil || l.tenure != nil {
		l.mu.Unlock()
		return fmt.Errorf("%w: another elector uses or has used this lock", leasekeeper.ErrInvalid)
	}
	l.within = f
	l.mu.Unlock()
	returned := false
	var err error
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			l.leave(errReleased)
		}
	}()
	err = work(ctx)
	returned = true
	return l.leave(err)
}

// leave ends a call of Run whose work has returned err.
func (l *Lock) leave(err error) error {
	l.mu.Lock()
	l.within = nil
	t := l.tenure
	if t == nil {
		l.mu.Unlock()
		return err
	}
	if errors.Is(err, ErrStillRunning) {
		l.mu.Unlock()
		return err
	}
	l.tenure = nil
	t.running, t.stopped = false, true
	t.end(errReleased)
	l.mu.Unlock()
	<-t.done // Keeper.Run bounds the wait
	return errors.Join(err, t.err)
}
