package claim

import (
	"context"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Resume continues a tenure on purpose, under the same token: that of an earlier process, or of another keeper,
// which has then lost it and learns so when it next renews, or at its deadline. It may act until then, also after
// the resumer has released the lease, when others can hold the name. id becomes its incarnation. [backend.ErrLost] says
// that another token holds the name, or none, or that it was revoked. With [backend.ErrUnknownOutcome] it
// returns a lease too, as Claim does.
func (c *Client) Resume(ctx context.Context, name string, t backend.Token, by backend.Holder, id backend.ID) (*Lease, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	if t == 0 {
		return nil, fmt.Errorf("%w: a token of 0 is none", backend.ErrInvalid)
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

// resuming decides for an resumption.
type resuming struct {
	lease *Lease
	token backend.Token
	by    backend.Holder
}

func (a *resuming) decide(_ context.Context, s *seen) (*plan, error) {
	r, l := &s.Record, a.lease
	switch {
	case !r.Held():
		return nil, fmt.Errorf("%w: nobody holds %s", backend.ErrLost, l.name)
	case r.Token != a.token:
		return nil, fmt.Errorf("%w: %s is held with token %d, not %d", backend.ErrLost, l.name, r.Token, a.token)
	case r.Revoked != "":
		return nil, fmt.Errorf("%w: %s was revoked: %s", backend.ErrLost, l.name, backend.Printable(r.Revoked))
	}
	if err := l.ended(); err != nil {
		return nil, err
	}
	p := &plan{record: l.client.prolong(s, r.TTL, l.Until()), owner: r.Holder != a.by.ID}
	p.record.Holder, p.record.Card, p.record.Incarnation = a.by.ID, a.by.Card, l.id
	return p, nil
}

func (a *resuming) wrote(r *Record) { a.lease.confirm(r, r.TTL) }
