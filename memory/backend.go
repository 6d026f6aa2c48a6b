package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/driver"
)

// Backend is one client of a [Store]. It implements [driver.Backend] and all that is optional there, and is
// safe for concurrent use.
type Backend struct {
	store  *Store
	faults faults

	once   sync.Once
	closed chan struct{}
}

// lease is what clients hold: which claim it is.
type lease struct {
	id   driver.ID
	name string
}

func (l *lease) Name() string { return l.name }

// Store returns the store that this is a client of.
func (b *Backend) Store() *Store { return b.store }

// Inject makes something go wrong for this client alone, until remove is called.
func (b *Backend) Inject(f Fault) (remove func()) { return b.faults.inject(f) }

// Scheme is "memory".
func (b *Backend) Scheme() string { return "memory" }

// Limits are those of the store.
func (b *Backend) Limits() driver.Limits { return b.store.limits }

// Clock returns the clock that the store goes by.
func (b *Backend) Clock() driver.Clock { return b.store.clock }

// usable returns an error if no call can be made.
func (b *Backend) usable(ctx context.Context) error {
	select {
	case <-b.closed:
		return fmt.Errorf("memory: %w", driver.ErrClosed)
	default:
		return ctx.Err()
	}
}

// own returns l as one of this package.
func own(l driver.Lease) (*lease, error) {
	mine, ok := l.(*lease)
	if !ok {
		return nil, fmt.Errorf("memory: %w: a lease of another backend (%T)", driver.ErrInvalid, l)
	}
	return mine, nil
}

func checkTTL(ttl time.Duration, l driver.Limits) error {
	if ttl < l.MinTTL || ttl > l.MaxTTL {
		return fmt.Errorf("memory: %w: a TTL of %v: it must be from %v to %v", driver.ErrInvalid, ttl, l.MinTTL, l.MaxTTL)
	}
	return nil
}

// Claim implements [driver.Backend].
func (b *Backend) Claim(ctx context.Context, c driver.Claim) (driver.Lease, driver.Grant, error) {
	if err := driver.CheckName(c.Name); err != nil {
		return nil, driver.Grant{}, err
	}
	if err := driver.CheckHolder(c.Holder); err != nil {
		return nil, driver.Grant{}, err
	}
	if err := checkTTL(c.TTL, b.store.limits); err != nil {
		return nil, driver.Grant{}, err
	}
	if c.ID == (driver.ID{}) {
		return nil, driver.Grant{}, fmt.Errorf("memory: %w: a claim without an id", driver.ErrInvalid)
	}
	var grant driver.Grant
	l := &lease{id: c.ID, name: c.Name}
	err := b.decide(ctx, Claim, c.Name, func() (err error) {
		grant, err = b.store.claim(c)
		return err
	})
	switch {
	case isUnknown(err):
		return l, driver.Grant{}, err
	case err != nil:
		return nil, driver.Grant{}, err
	}
	return l, grant, nil
}

func (s *Store) claim(asked driver.Claim) (driver.Grant, error) {
	now := s.lock()
	defer s.mu.Unlock()
	if known := s.claims[asked.ID]; known != nil {
		if known.name != asked.Name {
			return driver.Grant{}, fmt.Errorf("memory: %w: a claim to %s has the id of one to %s", driver.ErrInvalid, asked.Name, known.name)
		}
		return s.grant(known), nil
	}
	if s.released[asked.ID] {
		return driver.Grant{}, fmt.Errorf("memory: %w: this claim to %s has ended", driver.ErrLost, asked.Name)
	}
	r := s.record(asked.Name)
	if len(r.line) > 0 && !asked.Wait {
		i := r.info(now)
		return driver.Grant{}, &driver.HeldError{Name: i.Name, Holder: i.Holder, Token: i.Token, Ends: i.Remaining}
	}
	if len(r.line) >= maxWaiting {
		return driver.Grant{}, fmt.Errorf("memory: %w: %d wait for %s already", driver.ErrContention, len(r.line), asked.Name)
	}
	granularity := max(1, s.limits.Granularity)
	c := &claim{id: asked.ID, name: asked.Name, holder: asked.Holder, turn: make(chan struct{}),
		ttl: (asked.TTL + granularity - 1) / granularity * granularity}
	s.claims[c.id] = c
	s.extend(c, now)
	r.line = append(r.line, c)
	if len(r.line) == 1 {
		s.enthrone(r)
		s.tell(driver.Acquired, r, "", now)
	}
	return s.grant(c), nil
}

// grant is what is answered to a claim.
func (s *Store) grant(c *claim) driver.Grant {
	_, place := s.place(c)
	return driver.Grant{Held: place == 0, Token: c.token, Place: place, TTL: c.ttl}
}

// Await implements [driver.Backend].
func (b *Backend) Await(ctx context.Context, l driver.Lease) (driver.Grant, error) {
	mine, err := own(l)
	if err != nil {
		return driver.Grant{}, err
	}
	var grant driver.Grant
	err = b.decide(ctx, Await, mine.name, func() (err error) {
		grant, err = b.await(ctx, mine)
		return err
	})
	if err != nil {
		return driver.Grant{}, err
	}
	return grant, nil
}

func (b *Backend) await(ctx context.Context, l *lease) (driver.Grant, error) {
	s := b.store
	for {
		moved := s.clock.Moved()
		now := s.lock()
		c := s.claims[l.id]
		if c == nil {
			s.mu.Unlock()
			return driver.Grant{}, gone(l)
		}
		if c.token != 0 {
			grant := s.grant(c)
			s.mu.Unlock()
			return grant, nil
		}
		ended, wait := s.ended, now.Until(s.soonest)
		s.mu.Unlock()
		if err := b.pause(ctx, wait, moved, c.turn, ended); err != nil {
			return driver.Grant{}, err
		}
	}
}

// pause returns nil when the store is to be looked at again: after wait, or when something happened.
func (b *Backend) pause(ctx context.Context, wait time.Duration, moved, changed, ended <-chan struct{}) error {
	timer := time.NewTimer(max(0, wait) + time.Nanosecond) // strictly past the end
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-moved:
	case <-changed:
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closed:
		return fmt.Errorf("memory: %w", driver.ErrClosed)
	case <-ended:
		return fmt.Errorf("memory: %w: %w", driver.ErrUnavailable, errRestarted)
	}
	return nil
}

func gone(l *lease) error {
	return fmt.Errorf("memory: %w: the store knows no lease of this holder for %s any more", driver.ErrLost, l.name)
}

// Renew implements [driver.Backend]. A fault without a name befalls the message, one with a name only the
// answer for that lease, which then does not hold up the others.
func (b *Backend) Renew(ctx context.Context, leases []driver.Lease, report func(i int, r driver.Renewal)) error {
	var answers []driver.Renewal
	err := b.pass(ctx, Renew, "", func() { answers = b.store.renew(leases, b.troubled) })
	if err != nil {
		return err
	}
	var late []int
	for i, answer := range answers {
		if answer == (driver.Renewal{}) {
			late = append(late, i)
			continue
		}
		report(i, answer)
	}
	for _, i := range late {
		l := leases[i]
		var answer []driver.Renewal
		if err := b.pass(ctx, Renew, l.Name(), func() { answer = b.store.renew([]driver.Lease{l}, nil) }); err != nil {
			if ctx.Err() != nil {
				return err
			}
			report(i, driver.Renewal{Err: err})
			continue
		}
		report(i, answer[0])
	}
	return nil
}

// troubled says whether a fault lies in wait for this name alone.
func (b *Backend) troubled(name string) bool {
	return b.faults.concerns(name) || b.store.faults.concerns(name)
}

// renew renews all but those that skip, if given, says yes to.
func (s *Store) renew(leases []driver.Lease, skip func(name string) bool) []driver.Renewal {
	answers := make([]driver.Renewal, len(leases))
	now := s.lock()
	defer s.mu.Unlock()
	for i, l := range leases {
		mine, err := own(l)
		if err != nil {
			answers[i].Err = err
			continue
		}
		if skip == nil || !skip(mine.name) {
			answers[i] = s.renewOne(mine, now)
		}
	}
	return answers
}

func (s *Store) renewOne(l *lease, now clock.Instant) driver.Renewal {
	c := s.claims[l.id]
	switch {
	case c == nil:
		return driver.Renewal{Err: gone(l)}
	case c.refused:
		return driver.Renewal{Err: fmt.Errorf("memory: %w: %s was revoked: %s", driver.ErrLost, l.name, driver.Printable(c.note))}
	}
	s.extend(c, now)
	return driver.Renewal{TTL: c.ttl}
}

// Release implements [driver.Backend].
func (b *Backend) Release(ctx context.Context, l driver.Lease) error {
	mine, err := own(l)
	if err != nil {
		return err
	}
	return b.pass(ctx, Release, mine.name, func() { b.store.release(mine) })
}

func (s *Store) release(l *lease) {
	now := s.lock()
	defer s.mu.Unlock()
	c := s.claims[l.id]
	if c == nil {
		s.remember(l.id) // the claim may still be on its way
		return
	}
	r, place := s.place(c)
	s.end(r, place, driver.Released, now)
}

// Get implements [driver.Backend].
func (b *Backend) Get(ctx context.Context, name string) (driver.Info, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.Info{}, err
	}
	info := driver.Info{Name: name}
	err := b.pass(ctx, Get, name, func() {
		now := b.store.lock()
		defer b.store.mu.Unlock()
		if r := b.store.names[name]; r != nil {
			info = r.info(now)
		}
	})
	if err != nil {
		return driver.Info{}, err
	}
	return info, nil
}

// List implements [driver.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) (found []driver.Info, err error) {
	err = b.pass(ctx, List, "", func() {
		now := b.store.lock()
		defer b.store.mu.Unlock()
		for _, r := range b.store.sorted(prefix) {
			if r.name > after && len(found) < limit {
				found = append(found, r.info(now))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Close implements [driver.Backend]. The store and its leases stay.
func (b *Backend) Close(context.Context) error {
	b.once.Do(func() { close(b.closed) })
	return nil
}
