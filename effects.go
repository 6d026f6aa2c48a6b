package leasekeeper

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keepalive"
)

// This file carries out what internal/keepalive decides. All of it runs under the keeper's lock and never blocks: I/O has
// goroutines of its own, and their results come back as events.

// handle steps the renewer with an event.
func (k *Keeper) handle(e keepalive.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.step(e)
}

// step is handle with the lock held. The time is read here, after the event has arrived.
func (k *Keeper) step(e keepalive.Event) { k.stepAt(k.clock.Now(), e) }

// stepAt is step for a caller that has read the time after the event arrived.
func (k *Keeper) stepAt(now clock.Instant, e keepalive.Event) {
	k.carryOut(k.core.Step(now, e))
	for len(k.after) > 0 {
		next := k.after[0]
		k.after = k.after[1:]
		k.carryOut(k.core.Step(k.clock.Now(), next))
	}
}

func (k *Keeper) carryOut(effects []keepalive.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case keepalive.Renew:
			k.send(e)
		case keepalive.Abandon:
			if cancel := k.messages[e.Number]; cancel != nil {
				cancel()
			}
		case keepalive.Held:
			k.begin(k.slots[e.Lease.Slot()], e.Deadline)
		case keepalive.Doubt:
			l := k.slots[e.Lease.Slot()]
			l.setDoubt(true)
			if k.reports != nil {
				k.reports.add(Doubted{l.asSubject(), k.clock.Now().Remaining(l.deadline()), l.trouble})
			}
			k.log(slog.LevelWarn, "lease in doubt: not renewed for half of its time", l, slog.String("error", l.troubled()))
		case keepalive.Assured:
			l := k.slots[e.Lease.Slot()]
			l.setDoubt(false)
			if k.reports != nil {
				k.reports.add(Assured{l.asSubject()})
			}
			k.log(slog.LevelInfo, "lease renewed again", l)
		case keepalive.Lost:
			k.lose(k.slots[e.Lease.Slot()], e.Cause)
		case keepalive.Resolve:
			l := k.slots[e.Lease.Slot()]
			l.resolve = true
			l.notify()
		case keepalive.GaveUp:
			l := k.slots[e.Lease.Slot()]
			k.forget(l)
			l.notify()
		case keepalive.WakeAt:
			k.wakeAt, k.waits = e.At, true
			k.wake()
		}
	}
}

// remember puts a lease into slots, where effects find it.
func (k *Keeper) remember(l *Lease) {
	slot := l.handle.Slot()
	if slot >= len(k.slots) {
		k.slots = append(k.slots, make([]*Lease, slot+1-len(k.slots))...)
	}
	k.slots[slot] = l
}

// forget undoes remember.
func (k *Keeper) forget(l *Lease) {
	if slot := l.handle.Slot(); k.slots[slot] == l {
		k.slots[slot] = nil
	}
}

// awaitRepeat waits until the claim or the release of l must be repeated. It returns false if the renewer has forgotten the
// lease: then it is too late. If ctx ends first, it returns the error of ctx.
func (k *Keeper) awaitRepeat(ctx context.Context, l *Lease) (bool, error) {
	for {
		k.mu.Lock()
		l.listen()
		again, known := l.resolve, k.find(l.handle) != nil
		l.resolve = false
		k.mu.Unlock()
		if again || !known {
			return known, nil
		}
		select {
		case <-l.signal:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// begin records that l holds its name until the deadline.
func (k *Keeper) begin(l *Lease, deadline clock.Instant) {
	l.setDeadline(deadline)
	l.isHeld = true
	k.held[l.name] = l
	k.take(l)
	l.began = k.clock.Now()
	if k.reports != nil {
		k.reports.add(Held{l.asSubject(), l.TTL()})
	}
	k.log(slog.LevelInfo, "lease acquired", l, slog.Duration("ttl", l.TTL()))
}

// finish ends the right to act under a lease, and its context.
func (k *Keeper) finish(l *Lease, why *ending) {
	l.end.CompareAndSwap(nil, why)
	if l.isHeld {
		l.isHeld = false
		if k.held[l.name] == l {
			delete(k.held, l.name)
		}
		l.endContext(l.end.Load())
		if l.doubt != nil {
			close(l.doubt)
		}
		if l.endWatch != nil {
			l.endWatch()
		}
		if l.ended != nil {
			close(l.ended)
		}
	}
	l.notify()
}

// lose records that a lease, a waiting claim or a claim without an answer is over.
func (k *Keeper) lose(l *Lease, cause keepalive.Cause) {
	k.forget(l)
	why := cause.String()
	if text := l.troubled(); text != "" {
		why += " (" + text + ")"
	}
	wasHeld := l.isHeld
	l.late = cause == keepalive.Deadline || cause == keepalive.Void
	k.finish(l, &ending{name: l.name, token: l.token, why: why, denied: errors.Is(l.trouble, ErrDenied)})
	if wasHeld {
		k.log(slog.LevelError, "lease lost", l, slog.String("why", why))
		if k.reports != nil {
			k.reports.add(Lost{l.asSubject(), l.heldFor(), l.end.Load()})
		}
		if l.late {
			k.lost[l.name] = l
		}
		k.free(l)
		if l.late && !l.managed { // Run and Campaign wait for their function first
			k.releaseLost(l)
		}
	} else if l.interrupt != nil {
		l.interrupt()
	}
}

// send starts a message of renewals.
func (k *Keeper) send(r keepalive.Renew) {
	if len(k.messages) >= maxMessages || k.working.Err() != nil {
		k.after = append(k.after, keepalive.Returned{Number: r.Number})
		return
	}
	leases := make([]backend.Lease, len(r.Leases))
	for i, handle := range r.Leases {
		leases[i] = k.slots[handle.Slot()].raw
	}
	ctx, cancel := context.WithCancel(k.working)
	if r.Hedge {
		ctx = backend.Hedge(ctx)
	}
	k.messages[r.Number] = cancel
	k.own.Go(func() { k.renew(ctx, r.Number, r.Leases, leases) })
}

// renew sends a message of renewals and steps the renewer with the answers.
func (k *Keeper) renew(ctx context.Context, number uint64, handles []keepalive.Lease, leases []backend.Lease) {
	err := k.backend.Renew(ctx, leases, func(i int, r backend.Renewal) {
		if i >= 0 && i < len(handles) {
			k.answered(number, handles[i], r)
		}
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.messages[number]()
	delete(k.messages, number)
	if err != nil {
		for _, handle := range handles {
			if l := k.find(handle); l != nil {
				l.trouble = err
			}
		}
	}
	k.step(keepalive.Returned{Number: number})
}

// find returns the lease of a handle, or nil if it has ended.
func (k *Keeper) find(handle keepalive.Lease) *Lease {
	if l := k.slots[handle.Slot()]; l != nil && l.handle == handle {
		return l
	}
	return nil
}

// answered records the answer of the store about one lease of a message.
func (k *Keeper) answered(number uint64, handle keepalive.Lease, r backend.Renewal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.find(handle)
	if l == nil {
		return
	}
	answer := keepalive.Answer{Lease: handle, Outcome: keepalive.Acknowledged, TTL: r.TTL, Until: r.Until}
	switch {
	case errors.Is(r.Err, ErrLost):
		answer.Outcome = keepalive.Gone
	case r.Err != nil:
		answer.Outcome = keepalive.Failed
	}
	l.trouble = r.Err
	k.one[0] = answer
	k.step(keepalive.Renewed{Number: number, Answers: k.one[:]})
	if deadline, ok := k.core.Deadline(handle); ok && r.Err == nil {
		if k.reports != nil && l.isHeld {
			k.reports.add(Renewed{l.asSubject(), l.TTL(), k.clock.Now().Remaining(l.deadline())})
		}
		l.ttl.Store(int64(r.TTL))
		l.setDeadline(deadline)
	}
}

// watchTime wakes the renewer at the instant that the renewer requested, until the keeper stops. Timers are hints: they
// stop while the machine sleeps. So it sleeps for at most nine tenths of the time that is left, and reads the clock again.
func (k *Keeper) watchTime(boot *bootTimer) {
	var fired <-chan struct{}
	if boot != nil {
		fired = boot.fired
		k.own.Go(boot.run)
		defer boot.close()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		moved := k.clock.Moved()
		if left, waits := k.arm(); waits {
			timer.Reset(nap(left))
			if boot != nil {
				boot.set(left)
			}
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-fired:
		case <-moved:
		case <-k.wakeUp:
		case <-k.working.Done():
			return
		}
	}
}

// nap returns how long to sleep when that much time is left.
func nap(left time.Duration) time.Duration {
	if left <= 2*time.Millisecond {
		return left
	}
	return left - left/10
}

// arm steps the renewer if its time has come. It returns how much time is left until the next such moment, and whether
// there is one.
func (k *Keeper) arm() (left time.Duration, waits bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	if k.waits && now.Remaining(k.wakeAt) <= 0 {
		k.waits = false // the renewer sets it again if it wants another wake-up
		k.step(keepalive.Wake{})
		now = k.clock.Now()
	}
	k.armed, k.isArmed = k.wakeAt, k.waits
	return now.Remaining(k.wakeAt), k.waits
}

// wake makes watchTime read the clock, unless watchTime does so before wakeAt anyway. While names are held for moments
// only, wakeAt changes with each of them, and mostly to a later instant.
func (k *Keeper) wake() {
	if k.isArmed && k.armed.Raw <= k.wakeAt.Raw && k.armed.Boot <= k.wakeAt.Boot {
		return
	}
	select {
	case k.wakeUp <- struct{}{}:
	default:
	}
}
