package leasekeeper

import (
	"context"
	"errors"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/waitlist"
)

// This file lets the goroutines of one keeper wait for one name. One of them acts for all: it makes the claim. The others
// wait here, in the order that internal/waitlist keeps.

// waiter is a call that wants a name.
type waiter = waitlist.Waiter[waiting]

// waiting is the state of a waiter. The keeper's lock guards it until ready is signalled.
type waiting struct {
	ready  chan struct{} // capacity 1: the waiter acts now, or err is set; nil if the waiter acted from the beginning
	joined clock.Instant
	place  *place // inherited from the actor before; nil if there is none
	err    error  // why the call fails: the store has failed for too long
}

// place is a claim at the store, on its way to the name.
type place struct {
	l      *Lease
	waiter *waiter // the call that claims; nil if it does not wait
	claim  backend.Claim
	asked  clock.Instant // when the claim was first sent
	since  clock.Instant // since when this call has been claiming: asked, or later if it inherited the claim
	queued bool          // the store has put the claim into the queue of the name, or granted it
	// unknown is the error of the last attempt, if its outcome is unknown: the attempt must be repeated.
	unknown error
	// left is true if the call that made the claim has ended and the claim has not. Another call can go on with the claim.
	left bool
}

// newPlace returns a claim that is not made yet.
func (k *Keeper) newPlace(ctx context.Context, name string, o leaseOptions, managed bool) place {
	return place{l: k.newLease(ctx, name, o, managed)}
}

// join adds a call to those that wait for the name. It reports whether the call acts at once.
func (k *Keeper) join(name string, o leaseOptions) (w *waiter, acts bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w, acts = k.waiters.Join(name, waitlist.Terms{TTL: o.ttl, Card: o.text, Priority: int(o.priority)}, waiting{})
	if !acts {
		w.Value.ready, w.Value.joined = make(chan struct{}, 1), k.clock.Now()
	}
	return w, acts
}

// awaitActing waits until the call acts for all that wait for the name.
func (k *Keeper) awaitActing(ctx context.Context, w *waiter) error {
	select {
	case <-w.Value.ready:
		return w.Value.err
	case <-ctx.Done():
		k.leaveWaiters(w, nil)
		return ctx.Err()
	case <-k.calling.Done():
		k.leaveWaiters(w, nil)
		return errKeeperClosed
	}
}

// leaveWaiters ends the wait of a call. p is the claim that it made; nil if it made none.
func (k *Keeper) leaveWaiters(w *waiter, p *place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.Value.err != nil {
		return // failWaiters has removed it
	}
	if p == nil {
		p = w.Value.place // inherited meanwhile
	}
	hasPlace := p != nil && p.left && !k.closing
	actor, inherits := k.waiters.Leave(w, hasPlace)
	if inherits {
		left := *p // most calls leave no place, and need none on the heap
		actor.Value.place = &left
	} else if p != nil && p.left {
		k.dropLocked(p.l, p.l.raw)
	}
	k.callOn(actor)
}

// callOn wakes the waiter that has become the actor. The lock is held.
func (k *Keeper) callOn(actor *waiter) {
	if actor != nil && actor.Value.ready != nil {
		actor.Value.ready <- struct{}{} // there is room: it becomes the actor once, or fails once
	}
}

// failWaiters makes those calls fail too that have waited for their TTL while the store failed, which it does since began.
// The actor has not left yet. The lock is held.
func (k *Keeper) failWaiters(name string, began clock.Instant, err error) {
	now := k.clock.Now()
	failing := now.Elapsed(began)
	for w := k.waiters.Next(name); w != nil && min(failing, now.Elapsed(w.Value.joined)) > w.Terms().TTL; w = k.waiters.Next(name) {
		k.waiters.Leave(w, false)
		w.Value.err = err
		w.Value.ready <- struct{}{}
	}
}

// take records that the keeper holds the name of l, or is releasing it, until free. The lock is held.
func (k *Keeper) take(l *Lease) {
	l.taken = true
	k.waiters.Take(l.name)
}

// free lets the next call claim the name of l, if the keeper held it. The lock is held.
func (k *Keeper) free(l *Lease) {
	if l.taken {
		l.taken = false
		k.callOn(k.waiters.Free(l.name))
	}
}

// innermostLease is the key of a keeper's lease in the lease's context and in all contexts that descend from it.
type innermostLease struct{ of *Keeper }

// leaseParent is the parent of a lease's context: the context of the call that acquired the lease, with the lease in it.
type leaseParent struct {
	context.Context
	l *Lease
}

// Value implements [context.Context].
func (p leaseParent) Value(key any) any {
	if key, ok := key.(innermostLease); ok && key.of == p.l.k {
		return p.l
	}
	return p.Context.Value(key)
}

// waitsForItself returns a *HeldError if ctx descends from the context of a lease that this keeper holds on the name: the
// call would wait for its own caller.
func (k *Keeper) waitsForItself(ctx context.Context, name string) error {
	for {
		l, ok := ctx.Value(innermostLease{k}).(*Lease) // without the lock: a context of the program may call the keeper
		if !ok {
			return nil
		}
		k.mu.Lock()
		if l.name == name && k.held[name] == l {
			defer k.mu.Unlock()
			return k.heldByItself(l)
		}
		ctx = l.parent
		k.mu.Unlock()
	}
}

// heldByItself returns the error of a claim to a name that this keeper holds. The lock is held.
func (k *Keeper) heldByItself(l *Lease) error {
	return &HeldError{Name: l.name, Holder: k.options.holder, Token: l.token, Ends: l.TTL(), Self: true}
}

// claimUntilHeld makes claims until one holds the name.
func (k *Keeper) claimUntilHeld(ctx context.Context, name string, o leaseOptions, managed bool) (*Lease, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	if err := k.enter(); err != nil {
		return nil, err
	}
	defer k.leave()
	if err := k.confirmHold(ctx, name, o); err != nil {
		return nil, err
	}
	if o.noWait {
		p := k.newPlace(ctx, name, o, managed)
		return k.claimOnce(ctx, &p, o)
	}
	if err := k.waitsForItself(ctx, name); err != nil {
		return nil, err
	}
	return k.waitAndClaim(ctx, name, o, managed)
}

// waitAndClaim claims a name when it is this call's turn, reports how long that took, and then sets the limits of the tenure. So
// the hook learns of the wait before it learns that a limit has ended the tenure.
func (k *Keeper) waitAndClaim(ctx context.Context, name string, o leaseOptions, managed bool) (*Lease, error) {
	var began clock.Instant
	if k.reports != nil {
		began = k.clock.Now()
	}
	l, err := k.claimInTurn(ctx, name, o, managed)
	if k.reports != nil {
		k.reports.add(Waited{name, k.clock.Now().Elapsed(began), err})
	}
	if err != nil {
		return nil, err
	}
	k.limit(l, o)
	return l, nil
}

// claimInTurn joins the calls that wait for the name, and claims it when it is this call's turn.
func (k *Keeper) claimInTurn(ctx context.Context, name string, o leaseOptions, managed bool) (*Lease, error) {
	w, acts := k.join(name, o)
	if !acts {
		if err := k.awaitActing(ctx, w); err != nil {
			return nil, err
		}
	}
	var p place
	if inherited := w.Value.place; inherited != nil {
		p = *inherited
		p.since = k.inherit(ctx, p.l, o, managed)
	} else {
		p = k.newPlace(ctx, name, o, managed)
	}
	p.waiter = w
	err := k.claim(ctx, &p, o)
	if err != nil {
		err = k.claimAgain(ctx, &p, o, managed, err)
	}
	k.leaveWaiters(w, &p)
	if err != nil {
		return nil, err
	}
	return p.l, nil
}

// inherit makes the lease of another call's claim that of this one, and returns the time.
func (k *Keeper) inherit(ctx context.Context, l *Lease, o leaseOptions, managed bool) clock.Instant {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.parent, l.managed, l.after.least = ctx, managed, o.least
	return k.clock.Now()
}

// claimOnce makes a claim that does not wait.
func (k *Keeper) claimOnce(ctx context.Context, p *place, o leaseOptions) (*Lease, error) {
	err := k.claim(ctx, p, o)
	if err == nil {
		k.limit(p.l, o)
		return p.l, nil
	}
	if p.left {
		k.drop(p.l, p.l.raw)
	}
	ctx, done := k.bound(ctx)
	defer done()
	if ctx.Err() != nil {
		return nil, endedAfter(ctx, err)
	}
	return nil, err
}

// claimAgain makes claims until one holds the name, after the first has failed with err. p becomes the newest of them.
func (k *Keeper) claimAgain(caller context.Context, p *place, o leaseOptions, managed bool, err error) error {
	ctx, done := k.bound(caller)
	defer done()
	began := p.since
	var cause error // the newest reason that the store gave; a missing answer does not replace a reason
	for tries := 0; ; tries++ {
		if errors.Is(err, ErrUnavailable) && (cause == nil || !errors.Is(err, errNoAnswer)) {
			cause = err
		}
		switch {
		case ctx.Err() != nil:
			return endedAfter(ctx, cause)
		case !transient(err):
			return err
		}
		if now := k.clock.Now(); p.queued {
			tries, began = 0, now
		} else if now.Elapsed(began) > o.ttl {
			k.mu.Lock()
			k.failWaiters(p.l.name, began, err)
			k.mu.Unlock()
			return err
		}
		if !pause(ctx, pauseAfter(tries, o.ttl)) {
			return endedAfter(ctx, cause)
		}
		w := p.waiter
		*p = k.newPlace(caller, p.l.name, o, managed)
		p.waiter = w
		if err = k.claim(ctx, p, o); err == nil {
			return nil
		}
	}
}
