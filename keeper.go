package leasekeeper

import (
	"context"
	"fmt"
	"sync"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keepalive"
)

const (
	maxMessages = 64 // renewals under way; more than one only in trouble, and at most two for each lease
	maxReleases = 64 // leases that are given back at the same time
)

// Keeper acquires leases on one store and keeps them. It is safe for concurrent use, and one is enough for a
// program: all its leases are renewed together.
type Keeper struct {
	backend backend.Backend
	limits  backend.Limits
	options keeperOptions
	clock   backend.Clock

	calling   context.Context // ends when Close begins
	stopCalls context.CancelCauseFunc
	working   context.Context // ends when Close has waited long enough; bounds all that own does
	stopWork  context.CancelFunc
	own       sync.WaitGroup // the keeper's goroutines
	wakeUp    chan struct{}  // has room for one: look at wakeAt again
	releases  chan struct{}  // has room for maxReleases
	done      chan struct{}  // closed when Close is done
	journal   *journal       // nil if nothing is logged

	mu          sync.Mutex
	core        *keepalive.Renewer
	slots       []*Lease          // by the slots of their handles
	held        map[string]*Lease // by name
	lost        map[string]*Lease // by name: those that ended at their deadline, until they are settled
	messages    map[uint64]context.CancelFunc
	wakeAt      clock.Instant
	waits       bool              // wakeAt is set
	armed       clock.Instant     // when the goroutine that watches the time looks at it, at the latest
	isArmed     bool              // armed is set
	after       []keepalive.Event // what happened while effects were carried out
	one         [1]keepalive.Answer
	closing     bool
	unconfirmed int // leases whose release nobody has confirmed since Close began
	busy        int // calls and releases that Close waits for
	isIdle      bool
	idle        chan struct{} // closed when closing and not busy
}

// enter begins a call that Close waits for.
func (k *Keeper) enter() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return errClosed
	}
	k.busy++
	return nil
}

// leave ends it.
func (k *Keeper) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left()
}

// left is leave with the lock held.
func (k *Keeper) left() {
	if k.busy--; k.busy == 0 && k.closing && !k.isIdle {
		k.isIdle = true
		close(k.idle)
	}
}

// bound returns a context that ends with ctx and when the keeper is closed.
func (k *Keeper) bound(ctx context.Context) (context.Context, func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.calling, func() { cancel(errClosed) })
	if k.calling.Err() != nil {
		cancel(errClosed) // at once
	}
	return bounded, func() {
		stop()
		cancel(context.Canceled)
	}
}

// Close releases all leases of the keeper and closes its backend. It first ends the contexts of leases and
// interrupts those who wait for one; each [Keeper.Run] and [Keeper.Campaign] then still waits for its
// function before it releases. So a function that is run must not close its own keeper, nor must the body of
// a loop over [Keeper.Watch], which Close may have to wait for.
//
// When ctx ends first, Close gives up on what is left, which the store ends after its TTL, and says so. In
// any case no goroutine of the keeper is left when it returns, but for one that is stuck in a logger.
func (k *Keeper) Close(ctx context.Context) error {
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
		gaveUp = ctx.Err()
	}
	k.mu.Lock() // a goroutine starts only after a look at working under the lock
	k.stopWork()
	k.mu.Unlock()
	k.own.Wait()
	left := k.endAll()
	err := k.backend.Close(ctx)
	if k.journal != nil {
		k.journal.end(ctx)
	}
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
	k.busy++ // so that idle is closed here at the earliest
	for _, l := range append([]*Lease(nil), k.slots...) {
		switch {
		case l == nil || !l.isHeld:
		case l.managed:
			// Its function is still running, and only when it has returned the name may go to somebody else.
			l.endContext(errClosed)
		default:
			k.giveBack(l, &ending{name: l.name, token: l.token, why: "its keeper was closed", closed: true})
		}
	}
	k.left()
	k.mu.Unlock()
	k.stopCalls(errClosed)
	return true
}

// endAll ends what is left, and returns how much that is.
func (k *Keeper) endAll() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := k.unconfirmed
	for _, l := range k.slots {
		if l != nil && l.isHeld {
			left++
			k.finish(l, &ending{name: l.name, token: l.token, why: "its keeper was closed", closed: true})
		}
	}
	return left
}
