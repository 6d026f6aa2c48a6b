package clientgolease

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// Config returns what an elector of client-go needs to lead under this lock, with ReleaseOnCancel. Callbacks needs
// OnStartedLeading and OnStoppedLeading. A program may set Name and WatchDog, and ReleaseOnCancel to false. It must leave
// Lock, Callbacks and the durations as they are: the promises of this package follow from them.
//
// RenewDeadline is 0.6 of LeaseDuration less RetryPeriod, which is shorter than client-go's default. It does not limit how
// long the store may take: the keeper renews the lease. It limits how long the elector goes on without a renewal.
func (l *Lock) Config(callbacks leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig {
	l.mu.Lock()
	l.guarded = true
	l.mu.Unlock()
	started, stopped := callbacks.OnStartedLeading, callbacks.OnStoppedLeading
	if started != nil { // else NewLeaderElector returns an error
		callbacks.OnStartedLeading = func(ctx context.Context) { l.lead(ctx, started) }
	}
	if stopped != nil {
		callbacks.OnStoppedLeading = func() {
			defer l.conclude()
			stopped()
		}
	}
	return leaderelection.LeaderElectionConfig{
		Lock: l, Name: l.name, Callbacks: callbacks, ReleaseOnCancel: true,
		LeaseDuration: l.timing.LeaseDuration, RenewDeadline: l.timing.RenewDeadline, RetryPeriod: l.timing.RetryPeriod,
	}
}

// lead calls OnStartedLeading, unless the lease is over before it could begin.
func (l *Lock) lead(ctx context.Context, started func(context.Context)) {
	t, ctx := l.begin(ctx)
	if ctx == nil {
		return
	}
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		t.running, t.early = false, ctx.Err() == nil
		t.settle()
	}()
	started(ctx)
}

// begin returns the tenure whose work begins, and the context of the work. The context is nil if no work may begin.
func (l *Lock) begin(ctx context.Context) (*tenure, context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenure
	if t == nil || !t.pending {
		return nil, nil
	}
	return t, t.begin(ctx)
}

// conclude ends a leadership after OnStoppedLeading.
func (l *Lock) conclude() {
	l.mu.Lock()
	t := l.tenure
	if t == nil {
		l.mu.Unlock()
		return
	}
	t.stopped = true
	linger := t.taken && t.held() // without ReleaseOnCancel the elector has not released it
	if linger {
		go l.linger(t)
	} else {
		t.end(errReleased)
	}
	idle := t.isIdle
	l.mu.Unlock()
	if !linger && idle {
		ctx, cancel := context.WithTimeout(context.Background(), l.timing.RenewDeadline)
		defer cancel()
		_ = t.wait(ctx) // the keeper logs a release that was not confirmed, and goes on
	}
}

// linger ends a tenure after a LeaseDuration.
func (l *Lock) linger(t *tenure) {
	timer := time.NewTimer(l.timing.LeaseDuration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.lease.Context().Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.end(errReleased)
}
