package claimed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Await implements [backend.Backend]. If the store is a [claim.Queuer], the process has a ticket in the queue of the name and
// asks when its turn has come. Otherwise it asks the store twice a second, or what [WithPoll] says, and besides
// when the store hints that the name has another owner, when the holder's lease must be over, and when this
// process has given the name back. Of all who wait here for the same name one asks, the longest in line, so
// they have it in the order of their claims.
func (b *Backend) Await(ctx context.Context, l backend.Lease) (backend.Grant, error) {
	t, err := b.own(l)
	if err != nil {
		return backend.Grant{}, err
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return backend.Grant{}, err
	}
	defer end()
	b.awaits(t, +1)
	defer b.awaits(t, -1)
	defer b.room.want()()
	for {
		moved := b.clock.Moved()
		now, err := b.awaited(t)
		switch {
		case err != nil:
			return backend.Grant{}, err
		case now.turn:
			return now.grant, nil
		case now.join:
			b.room.join(ctx, t.asked.Name)
			if ctx.Err() != nil {
				return backend.Grant{}, b.ended(ctx)
			}
			continue
		case now.ask:
			if err := b.ask(ctx, t); err != nil {
				return backend.Grant{}, b.failed(ctx, err)
			}
			continue
		}
		if err := b.pause(ctx, now.rest, moved, t.signal); err != nil {
			return backend.Grant{}, err
		}
	}
}

// awaits counts who awaits t. It may make another one the first in line, or let another one be that.
func (b *Backend) awaits(t *tenure, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.awaited += n
	t.wake() // there may be two
	if q := b.lines[t.asked.Name]; q != nil && q.first() != nil {
		q.first().wake()
	}
}

// prospect is what Await is to do.
type prospect struct {
	turn  bool
	grant backend.Grant
	join  bool // a ticket is to be put into the queue of the name
	ask   bool
	rest  time.Duration // how long there is nothing to do unless something happens
}

func (b *Backend) awaited(t *tenure) (prospect, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.lapse(t, now)
	switch t.standing {
	case over:
		return prospect{}, t.lost()
	case holding:
		return prospect{turn: true, grant: t.grant(now)}, nil
	case asking:
		if !t.asked.Wait {
			return prospect{}, fmt.Errorf("%s: %w: a claim that does not wait for %s is not awaited: repeat or release it", b.Scheme(), backend.ErrInvalid, t.asked.Name)
		}
		return prospect{ask: true}, nil
	}
	if t.trying { // nobody knows what became of an attempt
		return prospect{ask: true}, nil
	}
	rest := now.Until(t.place) + 1
	if q := b.lines[t.asked.Name]; q.first() == t {
		switch b.room.prospect(q, t.asked.Name, now) {
		case joins:
			return prospect{join: true}, nil
		case asks:
			return prospect{ask: true}, nil
		case polls:
			rest = min(rest, q.rests(now))
		}
	}
	return prospect{ask: rest <= 0, rest: rest}, nil
}

// ask makes one attempt for who waits. That the name is still held is no error.
func (b *Backend) ask(ctx context.Context, t *tenure) error {
	_, err := b.attempt(ctx, t)
	if errors.Is(err, backend.ErrContention) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if q := b.lines[t.asked.Name]; q != nil {
			q.known, q.rivals = false, true
			q.look = b.clock.Now().Add(about(b.poll / 4))
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
		return b.ended(ctx)
	}
	return nil
}
