package claimed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// infoOf converts what a client knows of a name into the type of package backend.
func infoOf(s claim.State) backend.Info {
	i := backend.Info{Name: s.Record.Name, Token: s.Record.Token, Waiting: -1, Pinned: strings.Join(s.Record.Pins, "; ")}
	if s.Over || !s.Record.Held() {
		return i
	}
	i.Held, i.Holder, i.TTL = true, backend.Holder{ID: s.Record.Holder, Card: s.Record.Card}, s.Record.TTL
	i.Remaining = max(0, s.Ends)
	return i
}

// Get implements [backend.Backend]. A name is no longer held when its lease has certainly expired, even if no
// client has taken it yet.
func (b *Backend) Get(ctx context.Context, name string) (backend.Info, error) {
	s, err := b.state(ctx, name)
	if err != nil {
		return backend.Info{}, err
	}
	return infoOf(s), nil
}

func (b *Backend) state(ctx context.Context, name string) (claim.State, error) {
	if err := backend.CheckName(name); err != nil {
		return claim.State{}, err
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return claim.State{}, err
	}
	defer end()
	s, err := b.client.Get(ctx, name)
	if err != nil {
		return claim.State{}, b.callError(ctx, err)
	}
	return s, nil
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) ([]backend.Info, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("%s: %w: the limit is %d names: it must be at least 1", b.Scheme(), backend.ErrInvalid, limit)
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	page, err := b.client.List(ctx, prefix, after, limit)
	if err != nil {
		return nil, b.callError(ctx, err)
	}
	found := make([]backend.Info, len(page))
	for i, s := range page {
		found[i] = infoOf(s)
		if s.Err != nil {
			found[i].Err = b.callError(ctx, s.Err)
		}
	}
	return found, nil
}

// Close implements [backend.Backend]. It ends the calls under way and closes the store.
func (b *Backend) Close(ctx context.Context) error {
	first, waited := b.calls.close(ctx)
	b.hints.listening.close()
	b.storeQueue.wanted.close()
	if !first {
		return waited
	}
	if err := b.store.Close(ctx); err != nil {
		return err
	}
	return waited
}

// History implements [backend.Historian]. The present tenure, if there is one, is the first.
func (b *Backend) History(ctx context.Context, name string, limit int) ([]backend.Tenure, error) {
	s, err := b.state(ctx, name)
	if err != nil {
		return nil, err
	}
	r := s.Record
	var past []backend.Tenure
	if r.Held() {
		now := backend.Tenure{Token: r.Token, Holder: backend.Holder{ID: r.Holder, Card: r.Card}, From: r.Since}
		if s.Over {
			// No write has recorded yet that it ended. As far as is known here it ended when it expired.
			now.To = b.client.Wall().Add(-b.clock.Now().Elapsed(s.Latest))
			now.Why, now.Note = r.EndsAs()
		}
		past = append(past, now)
	}
	past = append(past, r.Past...)
	return past[:min(len(past), max(0, limit))], nil
}

// heldLease returns the client's lease of a tenure that holds its name.
func (b *Backend) heldLease(l backend.Lease) (*claim.Lease, error) {
	t, err := b.ownTenure(l)
	if err != nil {
		return nil, err
	}
	return LeaseOf(t)
}

// Announce implements [backend.Announcer].
func (b *Backend) Announce(ctx context.Context, l backend.Lease, text string) error {
	if err := backend.CheckCardText(text); err != nil {
		return err
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	lease, err := b.heldLease(l)
	if err != nil {
		return err
	}
	return b.callError(ctx, b.client.Announce(ctx, lease, text))
}

// Resume implements [backend.Resumer].
func (b *Backend) Resume(ctx context.Context, name string, token backend.Token, by backend.Holder) (backend.Lease, backend.Grant, error) {
	if err := errors.Join(backend.CheckName(name), backend.CheckHolder(by)); err != nil {
		return nil, backend.Grant{}, err
	}
	if token == 0 {
		return nil, backend.Grant{}, fmt.Errorf("%s: %w: the token is 0: give the token of the tenure", b.Scheme(), backend.ErrInvalid)
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return nil, backend.Grant{}, err
	}
	defer end()
	var id backend.ID
	_, _ = rand.Read(id[:]) // never fails
	lease, err := b.client.Resume(ctx, name, token, by, id)
	if err != nil {
		return nil, backend.Grant{}, b.callError(ctx, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	t := b.newTenure(backend.Claim{ID: id, Name: name, Holder: by, TTL: lease.TTL()}, now)
	t.phase, t.lease = holding, lease
	return t, t.grant(now), nil
}

// Revoke implements [backend.Revoker].
func (b *Backend) Revoke(ctx context.Context, name string, token backend.Token, reason string, now bool) error {
	return b.changeName(ctx, name, func(ctx context.Context) error { return b.client.Revoke(ctx, name, token, reason, now) })
}

// Pin implements [backend.Pinner]. Such a pin belongs to one tenure and ends when its holder releases the name;
// use [claim.Client.Pin] for pins that outlive it. There may be several reasons, and a name is pinned as long
// as there is one.
func (b *Backend) Pin(ctx context.Context, name, reason string) error {
	return b.changeName(ctx, name, func(ctx context.Context) error {
		s, err := b.client.Get(ctx, name)
		if err != nil {
			return err
		}
		if s.Over || !s.Record.Held() {
			return fmt.Errorf("%s: %w: %s has no holder, so there is no tenure to pin", b.Scheme(), backend.ErrInvalid, name)
		}
		return b.client.Pin(ctx, name, reason)
	})
}

// Unpin implements [backend.Pinner]. It removes all reasons.
func (b *Backend) Unpin(ctx context.Context, name string) error {
	return b.changeName(ctx, name, func(ctx context.Context) error { return b.client.Unpin(ctx, name, "") })
}

// changeName makes one call of the client about a name.
func (b *Backend) changeName(ctx context.Context, name string, do func(context.Context) error) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return b.callError(ctx, do(ctx))
}
