package claim

import (
	"context"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Resume continues an existing tenure on purpose, under the same token and with id as its new incarnation. The
// earlier process, or other keeper, has then lost the tenure. It finds out at its next renewal, or at its
// deadline, and may act until then. That holds even after the resumed lease was released, when another client
// can hold the name. [backend.ErrLost] says that the name has another token, no holder, or was revoked. With
// [backend.ErrUnknownOutcome] Resume returns a lease too, as Claim does.
func (c *Client) Resume(ctx context.Context, name string, t backend.Token, by backend.Holder, id backend.ID) (*Lease, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	if t == 0 {
		return nil, fmt.Errorf("%w: the token is 0: give the token of the tenure", backend.ErrInvalid)
	}
	l, err := c.handle(name, by, id)
	if err != nil {
		return nil, err
	}
	a := &resuming{lease: l, token: t, by: by}
	e := c.patient(name)
	e.decide, e.wrote, e.open = a.decide, a.wrote, l.doubtfulOps()
	return c.answer(l, e, e.run(ctx, nil))
}

// resuming decides for one resumption.
type resuming struct {
	lease *Lease
	token backend.Token
	by    backend.Holder
}

func (a *resuming) decide(_ context.Context, s *seen) (*plan, error) {
	r, l := &s.Record, a.lease
	switch {
	case !r.Held():
		return nil, fmt.Errorf("%w: %s has no holder", backend.ErrLost, l.name)
	case r.Token != a.token:
		return nil, fmt.Errorf("%w: %s is held with token %d, not %d", backend.ErrLost, l.name, r.Token, a.token)
	case r.Revoked != "":
		return nil, fmt.Errorf("%w: %s %s", backend.ErrLost, l.name, r.refusal())
	}
	if err := l.ended(); err != nil {
		return nil, err
	}
	p := &plan{record: l.client.prolong(s, l.client.Now(), r.TTL, l.Until()), owner: r.Holder != a.by.ID}
	p.record.Holder, p.record.Card, p.record.Incarnation = a.by.ID, a.by.Card, l.id
	return p, nil
}

func (a *resuming) wrote(r *Record) { a.lease.confirm(r, r.TTL, a.lease.client.Now()) }
