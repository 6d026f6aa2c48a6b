package claimed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Await implements [backend.Backend]. If the store is a [claim.Queuer], the process has a ticket in the store's
// queue of the name and claims the name when its turn has come. Otherwise it asks the store at the poll
// interval, twice a second or as [WithPoll] says. It also asks at once in these cases:
//
//   - The store hints that the name has another owner.
//   - The holder's lease must have expired.
//   - This process has released the name.
//
// Of all callers that await the same name here, only the first in the local queue asks. So they get the name in
// the order of their claims.
func (b *Backend) Await(ctx context.Context, l backend.Lease) (backend.Grant, error) {
	t, err := b.ownTenure(l)
	if err != nil {
		return backend.Grant{}, err
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return backend.Grant{}, err
	}
	defer end()
	b.countAwaiters(t, +1)
	defer b.countAwaiters(t, -1)
	defer b.storeQueue.want()()
	for {
		moved := b.clock.Moved()
		now, err := b.nextStep(t)
		switch {
		case err != nil:
			return backend.Grant{}, err
		case now.turn:
			return now.grant, nil
		case now.join:
			b.storeQueue.join(ctx, &t.request)
			if ctx.Err() != nil {
				return backend.Grant{}, b.contextErr(ctx)
			}
			continue
		case now.attempt:
			if err := b.attemptForWaiter(ctx, t); err != nil {
				return backend.Grant{}, b.callError(ctx, err)
			}
			continue
		}
		if err := b.pause(ctx, now.rest, moved, t.signal); err != nil {
			return backend.Grant{}, err
		}
	}
}

// countAwaiters adds n to the number of Await calls for t. That may change which waiter is the head of the
// local queue.
func (b *Backend) countAwaiters(t *tenure, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.awaiters += n
	t.wake() // another call of Await may be at it
	if q := b.localQueues[t.request.Name]; q != nil && q.head() != nil {
		q.head().wake()
	}
}

// step is what Await has to do next.
type step struct {
	turn    bool
	grant   backend.Grant
	join    bool // a ticket has to be added to the store's queue of the name
	attempt bool
	rest    time.Duration // how long there is nothing to do unless something happens
}

func (b *Backend) nextStep(t *tenure) (step, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.expirePlace(t, now)
	switch t.phase {
	case ended:
		return step{}, t.lost()
	case holding:
		return step{turn: true, grant: t.grant(now)}, nil
	case undecided:
		if !t.request.Wait {
			return step{}, fmt.Errorf("%s: %w: a claim that does not wait for %s is not awaited: repeat or release it", b.Scheme(), backend.ErrInvalid, t.request.Name)
		}
		return step{attempt: true}, nil
	}
	if t.inDoubt { // the outcome of an attempt is unknown
		return step{attempt: true}, nil
	}
	rest := now.Until(t.placeEnds) + 1
	if q := b.localQueues[t.request.Name]; q.head() == t {
		switch b.storeQueue.nextAction(q, t, now) {
		case addTicket:
			return step{join: true}, nil
		case claimNow:
			return step{attempt: true}, nil
		case pollStore:
			rest = min(rest, q.untilPoll(now))
		}
	}
	return step{attempt: rest <= 0, rest: rest}, nil
}

// attemptForWaiter makes one attempt for a waiter. It is no error that the name is still held.
func (b *Backend) attemptForWaiter(ctx context.Context, t *tenure) error {
	_, err := b.attempt(ctx, t)
	if errors.Is(err, backend.ErrContention) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if q := b.localQueues[t.request.Name]; q != nil {
			q.known, q.contended = false, true
			q.nextPoll = b.clock.Now().Add(about(b.poll / 4))
		}
		return nil
	}
	return err
}

// pause returns nil when it is time to look again: after rest, or when something happened.
func (b *Backend) pause(ctx context.Context, rest time.Duration, moved, changed <-chan struct{}) error {
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-moved:
	case <-changed:
	case <-ctx.Done():
		return b.contextErr(ctx)
	}
	return nil
}
