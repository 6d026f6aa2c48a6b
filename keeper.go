package leasekeeper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keepalive"
	"github.com/leasekeeper/leasekeeper/internal/waitlist"
)

const (
	maxMessages = 64 // messages of renewals in progress; more than one only if the store fails, and at most two for each lease
	maxReleases = 64 // releases in progress
)

// Keeper acquires leases on one store and renews them until they are released. It is safe for concurrent use. One is
// enough for a program: it renews all its leases together.
type Keeper struct {
	backend backend.Backend
	limits  backend.Limits
	options keeperOptions
	clock   backend.Clock

	calling   context.Context // ends when Close begins
	stopCalls context.CancelCauseFunc
	working   context.Context // ends when Close has waited long enough; bounds the work of all goroutines in own
	stopWork  context.CancelFunc
	own       sync.WaitGroup  // the keeper's goroutines
	wakeUp    chan struct{}   // capacity 1: wakeAt has changed
	releases  chan struct{}   // capacity maxReleases: one element for each attempt to release
	done      chan struct{}   // closed when Close is done
	journal   *outbox[note]   // nil if nothing is logged
	reports   *outbox[Report] // nil without hooks

	mu          sync.Mutex
	core        *keepalive.Renewer
	slots       []*Lease          // by Slot() of their handles; nil if unused
	held        map[string]*Lease // by name
	waiters     waitlist.Lists[waiting]
	lost        map[string]*Lease // by name: leases lost at their deadline, until releaseLostLater is done with them
	messages    map[uint64]context.CancelFunc
	wakeAt      clock.Instant
	waits       bool              // wakeAt is set
	armed       clock.Instant     // when watchTime reads the clock next, at the latest
	isArmed     bool              // armed is set
	after       []keepalive.Event // events that came up while effects were carried out
	one         [1]keepalive.Answer
	closing     bool
	unconfirmed int // leases whose release the store has not confirmed since Close began
	busy        int // calls and releases that Close waits for
	isIdle      bool
	idle        chan struct{} // closed when closing and not busy
}

// enter begins a call that Close waits for. leave ends the call.
func (k *Keeper) enter() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return errKeeperClosed
	}
	k.busy++
	return nil
}

// leave ends a call that enter began.
func (k *Keeper) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leaveLocked()
}

// leaveLocked is leave for a caller that holds the lock.
func (k *Keeper) leaveLocked() {
	if k.busy--; k.busy == 0 && k.closing && !k.isIdle {
		k.isIdle = true
		close(k.idle)
	}
}

// bound returns a context that ends with ctx and when the keeper is closed.
func (k *Keeper) bound(ctx context.Context) (context.Context, func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.calling, func() { cancel(errKeeperClosed) })
	if k.calling.Err() != nil {
		cancel(errKeeperClosed) // at once
	}
	return bounded, func() {
		stop()
		cancel(context.Canceled)
	}
}

// closePatience bounds Close.
const closePatience = 10 * time.Second

// Close is [Keeper.Shutdown] with a bound of its own: it waits for at most ten seconds. So it also works where a signal has
// cancelled the program's context, as in
//
//	defer k.Close()
func (k *Keeper) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	return k.Shutdown(ctx)
}

// Shutdown releases all leases of the keeper and closes its backend. It first ends the contexts of the leases and
// interrupts the calls that wait for one. Each [Keeper.Run] and [Keeper.Campaign] then still waits for its function
// before it releases. So a function that Run or Campaign calls must not close its own keeper, nor must the body of a
// loop over [Keeper.Watch]: Shutdown may wait for both.
//
// If ctx ends first, Shutdown gives up on the leases that are left and returns an error; the store ends them after their
// TTL. So do not pass a context that a signal has already cancelled: [Keeper.Close] has none. When Shutdown returns, no
// goroutine of the keeper is left, except one that is stuck in a logger, a hook or a health check.
func (k *Keeper) Shutdown(ctx context.Context) error {
	if !k.beginClose() {
		select {
		case <-k.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var gaveUp error
	select {
	case <-k.idle:
	case <-ctx.Done():
		select {
		case <-k.idle: // nothing is left to wait for
		default:
			gaveUp = ctx.Err()
		}
	}
	k.mu.Lock() // goroutines start under the lock, and only while working has not ended
	k.stopWork()
	k.mu.Unlock()
	k.own.Wait()
	left := k.endAll()
	err := k.backend.Close(ctx)
	k.endJournals(ctx)
	close(k.done)
	switch {
	case gaveUp != nil:
		return fmt.Errorf("leasekeeper: closed with %d leases not released, which end after their TTL: %w", left, gaveUp)
	case left > 0:
		return fmt.Errorf("leasekeeper: closed with %d leases whose release was not confirmed: %w", left, ErrUnknownOutcome)
	case err != nil:
		return fmt.Errorf("leasekeeper: %w", err)
	}
	return nil
}

// beginClose returns false if the keeper is closed or being closed.
func (k *Keeper) beginClose() bool {
	k.mu.Lock()
	if k.closing {
		k.mu.Unlock()
		return false
	}
	k.closing = true
	k.busy++ // idle must not be closed before leaveLocked below
	for _, l := range append([]*Lease(nil), k.slots...) {
		switch {
		case l == nil || !l.isHeld:
		case l.managed:
			// Its function still runs. Only when it has returned may another process get the name.
			l.endContext(errKeeperClosed)
		default:
			k.releaseInBackground(l, &ending{name: l.name, token: l.token, why: "its keeper was closed", closed: true})
		}
	}
	k.leaveLocked()
	k.mu.Unlock()
	k.stopCalls(errKeeperClosed)
	return true
}

// endAll ends the leases that are left, and returns their number.
func (k *Keeper) endAll() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := k.unconfirmed
	for _, l := range k.slots {
		if l != nil && l.isHeld {
			left++
			k.finish(l, &ending{name: l.name, token: l.token, why: "its keeper was closed", closed: true})
			k.free(l)
		}
	}
	return left
}
