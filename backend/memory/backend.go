package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Backend is one client of a [Store]. It implements [backend.Backend] and all its optional interfaces, and is
// safe for concurrent use.
type Backend struct {
	store  *Store
	faults faults

	once   sync.Once
	closed chan struct{}
}

// lease is what clients hold: the id of a claim.
type lease struct {
	id   backend.ID
	name string
}

func (l *lease) Name() string { return l.name }

// Store returns the store of this client.
func (b *Backend) Store() *Store { return b.store }

// Inject puts a fault in force for this client alone, until remove is called.
func (b *Backend) Inject(f Fault) (remove func()) { return b.faults.inject(f) }

// Scheme returns "memory".
func (b *Backend) Scheme() string { return "memory" }

// Limits returns the limits of the store.
func (b *Backend) Limits() backend.Limits { return b.store.limits }

// Clock returns the clock of the store.
func (b *Backend) Clock() backend.Clock { return b.store.clock }

// usable returns an error if no call can be made.
func (b *Backend) usable(ctx context.Context) error {
	select {
	case <-b.closed:
		return fmt.Errorf("memory: %w", backend.ErrClosed)
	default:
		return ctx.Err()
	}
}

// ownLease returns l as a lease of this package.
func ownLease(l backend.Lease) (*lease, error) {
	mine, ok := l.(*lease)
	if !ok {
		return nil, fmt.Errorf("memory: %w: the lease was made by another backend (%T): use the backend that made it", backend.ErrInvalid, l)
	}
	return mine, nil
}

func checkTTL(ttl time.Duration, l backend.Limits) error {
	if ttl < l.MinTTL || ttl > l.MaxTTL {
		return fmt.Errorf("memory: %w: the TTL is %v: it must be from %v to %v", backend.ErrInvalid, ttl, l.MinTTL, l.MaxTTL)
	}
	return nil
}

// Claim implements [backend.Backend].
func (b *Backend) Claim(ctx context.Context, c backend.Claim) (backend.Lease, backend.Grant, error) {
	if err := backend.CheckName(c.Name); err != nil {
		return nil, backend.Grant{}, err
	}
	if err := backend.CheckHolder(c.Holder); err != nil {
		return nil, backend.Grant{}, err
	}
	if err := checkTTL(c.TTL, b.store.limits); err != nil {
		return nil, backend.Grant{}, err
	}
	if c.ID == (backend.ID{}) {
		return nil, backend.Grant{}, fmt.Errorf("memory: %w: the claim has no id: choose one at random", backend.ErrInvalid)
	}
	var grant backend.Grant
	l := &lease{id: c.ID, name: c.Name}
	err := b.callPastFaults(ctx, Claim, c.Name, func() (err error) {
		grant, err = b.store.addClaim(c)
		return err
	})
	switch {
	case isUnknown(err):
		return l, backend.Grant{}, err
	case err != nil:
		return nil, backend.Grant{}, err
	}
	return l, grant, nil
}

func (s *Store) addClaim(asked backend.Claim) (backend.Grant, error) {
	now := s.lock()
	defer s.mu.Unlock()
	if known := s.claims[asked.ID]; known != nil {
		if known.name != asked.Name {
			return backend.Grant{}, fmt.Errorf("memory: %w: the claim to %s has the id of a claim to %s: choose a new id", backend.ErrInvalid, asked.Name, known.name)
		}
		return s.grant(known), nil
	}
	if _, ended := s.released[asked.ID]; ended {
		return backend.Grant{}, fmt.Errorf("memory: %w: this claim to %s has ended", backend.ErrLost, asked.Name)
	}
	r := s.record(asked.Name)
	if len(r.queue) > 0 && !asked.Wait {
		i := r.info(now)
		return backend.Grant{}, &backend.HeldError{Name: i.Name, Holder: i.Holder, Token: i.Token, Ends: i.Remaining}
	}
	if len(r.queue) >= maxWaiting {
		return backend.Grant{}, fmt.Errorf("memory: %w: %d claims already wait for %s: try again later", backend.ErrContention, len(r.queue), asked.Name)
	}
	granularity := max(1, s.limits.Granularity)
	c := &queuedClaim{id: asked.ID, name: asked.Name, holder: asked.Holder, prio: asked.Priority, turn: make(chan struct{}),
		ttl: (asked.TTL + granularity - 1) / granularity * granularity}
	s.claims[c.id] = c
	s.extend(c, now)
	r.enqueue(c)
	if len(r.queue) == 1 {
		s.promoteHead(r)
		s.notify(backend.Acquired, r, "", now)
	}
	return s.grant(c), nil
}

// grant returns the grant of a claim.
func (s *Store) grant(c *queuedClaim) backend.Grant {
	_, place := s.place(c)
	return backend.Grant{Held: place == 0, Token: c.token, Place: place, TTL: c.ttl}
}

// Await implements [backend.Backend].
func (b *Backend) Await(ctx context.Context, l backend.Lease) (backend.Grant, error) {
	mine, err := ownLease(l)
	if err != nil {
		return backend.Grant{}, err
	}
	var grant backend.Grant
	err = b.callPastFaults(ctx, Await, mine.name, func() (err error) {
		grant, err = b.waitForTurn(ctx, mine)
		return err
	})
	if err != nil {
		return backend.Grant{}, err
	}
	return grant, nil
}

func (b *Backend) waitForTurn(ctx context.Context, l *lease) (backend.Grant, error) {
	s := b.store
	for {
		moved := s.clock.Moved()
		now := s.lock()
		c := s.claims[l.id]
		if c == nil {
			s.mu.Unlock()
			return backend.Grant{}, gone(l)
		}
		if c.token != 0 {
			grant := s.grant(c)
			s.mu.Unlock()
			return grant, nil
		}
		ended, wait := s.ended, now.Until(s.soonest)
		s.mu.Unlock()
		if err := b.pause(ctx, wait, moved, c.turn, ended); err != nil {
			return backend.Grant{}, err
		}
	}
}

// pause returns nil when the store has to be looked at again: after wait, or when something happened.
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
		return fmt.Errorf("memory: %w", backend.ErrClosed)
	case <-ended:
		return fmt.Errorf("memory: %w: %w", backend.ErrUnavailable, errRestarted)
	}
	return nil
}

func gone(l *lease) error {
	return fmt.Errorf("memory: %w: the store no longer has a lease of this holder for %s", backend.ErrLost, l.name)
}

// Renew implements [backend.Backend]. A fault without a name hits the whole message. A fault with a name hits
// only the answer for that lease, and does not delay the others.
func (b *Backend) Renew(ctx context.Context, leases []backend.Lease, report func(i int, r backend.Renewal)) error {
	var answers []backend.Renewal
	err := b.pastFaults(ctx, Renew, "", func() { answers = b.store.renewAll(leases, b.hasNamedFault) })
	if err != nil {
		return err
	}
	var late []int
	for i, answer := range answers {
		if answer == (backend.Renewal{}) {
			late = append(late, i)
			continue
		}
		report(i, answer)
	}
	for _, i := range late {
		l := leases[i]
		var answer []backend.Renewal
		if err := b.pastFaults(ctx, Renew, l.Name(), func() { answer = b.store.renewAll([]backend.Lease{l}, nil) }); err != nil {
			if ctx.Err() != nil {
				return err
			}
			report(i, backend.Renewal{Err: err})
			continue
		}
		report(i, answer[0])
	}
	return nil
}

// hasNamedFault reports whether a fault is in force for this name alone.
func (b *Backend) hasNamedFault(name string) bool {
	return b.faults.isAboutName(name) || b.store.faults.isAboutName(name)
}

// renewAll renews all leases except those for which skip, if not nil, returns true.
func (s *Store) renewAll(leases []backend.Lease, skip func(name string) bool) []backend.Renewal {
	answers := make([]backend.Renewal, len(leases))
	now := s.lock()
	defer s.mu.Unlock()
	for i, l := range leases {
		mine, err := ownLease(l)
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

func (s *Store) renewOne(l *lease, now clock.Instant) backend.Renewal {
	c := s.claims[l.id]
	switch {
	case c == nil:
		return backend.Renewal{Err: gone(l)}
	case c.held:
		return backend.Renewal{Err: fmt.Errorf("memory: %w: %s was released, and is only held on", backend.ErrLost, l.name)}
	case c.refused:
		return backend.Renewal{Err: fmt.Errorf("memory: %w: %s was revoked: %s", backend.ErrLost, l.name, backend.Printable(c.note))}
	}
	s.extend(c, now)
	return backend.Renewal{TTL: c.ttl}
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, l backend.Lease) error {
	mine, err := ownLease(l)
	if err != nil {
		return err
	}
	return b.pastFaults(ctx, Release, mine.name, func() { b.store.endLease(mine) })
}

func (s *Store) endLease(l *lease) {
	now := s.lock()
	defer s.mu.Unlock()
	c := s.claims[l.id]
	if c == nil {
		s.remember(l.id, false) // the claim may still be under way
		return
	}
	if c.held {
		return
	}
	r, place := s.place(c)
	s.end(r, place, backend.Released, now)
}

// Get implements [backend.Backend].
func (b *Backend) Get(ctx context.Context, name string) (backend.Info, error) {
	if err := backend.CheckName(name); err != nil {
		return backend.Info{}, err
	}
	info := backend.Info{Name: name}
	err := b.pastFaults(ctx, Get, name, func() {
		now := b.store.lock()
		defer b.store.mu.Unlock()
		if r := b.store.names[name]; r != nil {
			info = r.info(now)
		}
	})
	if err != nil {
		return backend.Info{}, err
	}
	return info, nil
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) (found []backend.Info, err error) {
	err = b.pastFaults(ctx, List, "", func() {
		now := b.store.lock()
		defer b.store.mu.Unlock()
		page := b.store.sorted(prefix, after)
		page = page[:max(0, min(limit, len(page)))]
		for _, r := range page {
			found = append(found, r.info(now))
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Close implements [backend.Backend]. The store and its leases stay.
func (b *Backend) Close(context.Context) error {
	b.once.Do(func() { close(b.closed) })
	return nil
}
