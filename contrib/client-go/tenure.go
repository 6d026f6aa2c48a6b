package clientgolease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper"
)

// errReleased is why the context of the work ends when the elector releases the name.
var errReleased = errors.New("clientgolease: the elector releases the name")

// tenure is one claim of a lock and, once it is granted, the lease. Its lease is held by [leasekeeper.Keeper.Run], whose
// function returns when letGo is closed.
type tenure struct {
	mu      *sync.Mutex        // the lock's
	cancel  context.CancelFunc // ends the claim, or the context of the lease
	granted chan struct{}      // closed when lease is set
	lease   *leasekeeper.Lease
	letGo   chan struct{}
	drop    func()        // closes letGo
	done    chan struct{} // closed when Run has returned err
	err     error

	// Guarded by mu. The work is OnStartedLeading, or the work of Run.
	since   time.Time               // when the elector took the lease
	taken   bool                    // the elector leads, or led
	pending bool                    // OnStartedLeading will be called
	running bool                    // the work runs
	early   bool                    // OnStartedLeading returned before its context ended: it may have left something running
	ending  bool                    // the elector no longer leads, or no longer has the lease
	stopped bool                    // OnStoppedLeading has returned
	isIdle  bool                    // ending, and the work has returned
	endWork context.CancelCauseFunc // ends the context of the work; nil before that begins
}

// claim begins to wait for the name. The claim outlives ctx, unless the caller abandons it.
func (l *Lock) claim(ctx context.Context) *tenure {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := &tenure{
		mu: &l.mu, cancel: cancel, granted: make(chan struct{}), letGo: make(chan struct{}), done: make(chan struct{}),
	}
	t.drop = sync.OnceFunc(func() { close(t.letGo) })
	hold := func(_ context.Context, lease *leasekeeper.Lease) error {
		t.lease = lease
		close(t.granted)
		<-t.letGo
		return nil
	}
	go func() {
		defer close(t.done)
		defer cancel()
		t.err = l.keeper.Run(ctx, l.name, hold, leasekeeper.WithTTL(l.timing.LeaseDuration), leasekeeper.WithCard(l.identity))
	}()
	return t
}

// abandon ends a claim that no elector has taken, or releases its lease.
func (t *tenure) abandon() {
	t.cancel()
	t.drop()
}

// isGranted reports whether the lease was granted.
func (t *tenure) isGranted() bool {
	select {
	case <-t.granted:
		return true
	default:
		return false
	}
}

// wait waits for the end of a release, and returns its error.
func (t *tenure) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return errors.Join(leasekeeper.ErrUnknownOutcome, ctx.Err())
	}
}

// watch ends the tenure when the context of its lease ends.
func (t *tenure) watch() {
	ctx := t.lease.Context()
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.end(context.Cause(ctx))
	})
}

// held reports whether the work may go on. The lock is held.
func (t *tenure) held() bool { return !t.ending && t.lease.Check() == nil }

// end ends the context of the work, because of why. The lock is held.
func (t *tenure) end(why error) {
	t.ending = true
	if t.endWork != nil {
		t.endWork(why)
	}
	t.settle()
}

// settle releases the name if nothing runs under it. The lock is held.
func (t *tenure) settle() {
	if !t.ending || t.pending || t.running {
		return
	}
	t.isIdle = true
	if !t.taken || !t.early || t.stopped {
		t.drop()
	}
}

// begin returns the context of the work, which ends with parent and with the tenure. It returns nil if the tenure is over
// already. The lock is held.
func (t *tenure) begin(parent context.Context) context.Context {
	t.pending = false
	if !t.held() {
		t.ending = true
		t.settle()
		return nil
	}
	ctx, cancel := context.WithCancelCause(parent)
	t.endWork, t.running = cancel, true
	return ctx
}
