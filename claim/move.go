package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Move is which names are to move to another store, and how.
type Move struct {
	Prefix string
	// To makes sure that the tokens of a name go on above that of r where it moves to, such as with
	// [Client.Inherit]; r is vacant. When it returns nil that must be durable, because r is forgotten then. A
	// name for which it returns [backend.ErrHeld], [backend.ErrPinned], [backend.ErrInvalid], [backend.ErrCorrupt] or
	// [backend.ErrContention] stays; any other error ends the move. With nil nothing is moved, and only counted
	// what could be.
	To func(ctx context.Context, r *Record) error
	// Left, if given, is told of each name that stays, and why.
	Left func(name string, why error)
	// Progress, if given, is called after each name: how many were looked at, and moved.
	Progress func(seen, moved int)
}

// Move moves the names that nobody holds or pins, and says how many. Here they are forgotten like by
// [Client.Collect], so their tokens do not start again here either. A name whose lease is surely over is
// vacated first. It can be stopped and repeated at any time: what has moved is not there any more, and what was
// begun is done once more.
//
// Nobody must claim these names here any more: who does so while they are leased in the other store holds them
// beside others, and with tokens that they get too.
func (c *Client) Move(ctx context.Context, m Move) (moved int, err error) {
	w := &moving{client: c, move: m}
	err = c.each(ctx, m.Prefix, func(page []seen) error { return w.page(ctx, page) })
	return w.moved, err
}

// moving is a move that is under way.
type moving struct {
	client      *Client
	move        Move
	seen, moved int
}

// page moves the names of a page. They are forgotten together, when all that can be is known where they move to.
func (w *moving) page(ctx context.Context, page []seen) error {
	var inherited []*Record
	var failed error
	for i := range page {
		r, err := w.moveOne(ctx, &page[i])
		switch {
		case r != nil && w.move.To != nil:
			inherited = append(inherited, r)
		case r != nil:
			w.report(r.Name, nil)
		case concernsOneName(err):
			w.report(page[i].Record.Name, err)
		case err != nil:
			failed = err
		default: // there is nothing of it any more
			w.seen++
		}
		if failed != nil {
			break
		}
	}
	err := w.client.remove(ctx, inherited, func(r *Record, done bool) {
		var why error
		if !done {
			why = fmt.Errorf("%w: somebody has claimed %s meanwhile", backend.ErrContention, r.Name)
		}
		w.report(r.Name, why)
	})
	if failed != nil {
		return failed
	}
	return err
}

// done counts a name, which stays if there is a reason.
func (w *moving) report(name string, why error) {
	w.seen++
	if why == nil {
		w.moved++
	} else if w.move.Left != nil {
		w.move.Left(name, why)
	}
	if w.move.Progress != nil {
		w.move.Progress(w.seen, w.moved)
	}
}

// stays reports whether an error is about one name alone.
func concernsOneName(err error) bool {
	for _, kind := range []error{backend.ErrHeld, backend.ErrPinned, backend.ErrInvalid, backend.ErrCorrupt, backend.ErrContention} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// one has the other store take one name over, and returns its record, which can be forgotten then. Without a
// record and an error there is nothing to move.
func (w *moving) moveOne(ctx context.Context, s *seen) (*Record, error) {
	c := w.client
	switch {
	case s.Err != nil:
		return nil, s.Err
	case len(s.Record.Pins) > 0:
		return nil, pinned(&s.Record)
	case s.Record.Held():
		if v := c.fullVerdict(ctx, s, false); !v.over {
			return nil, heldError(&s.Record, max(v.ends, 1))
		}
		if w.move.To == nil {
			return &s.Record, nil
		}
		var err error
		if s, err = c.expireAndRead(ctx, s.Record.Name); err != nil {
			return nil, err
		}
	}
	r := &s.Record
	switch {
	case !r.Exists():
		return nil, nil
	case !c.collectable(r, 0):
		return nil, fmt.Errorf("%w: the tokens of %s are used up at %d", backend.ErrInvalid, r.Name, r.Token)
	case w.move.To == nil:
		return r, nil
	}
	if err := w.move.To(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// vacated ends a lease that is over, and returns what is left of it.
func (c *Client) expireAndRead(ctx context.Context, name string) (*seen, error) {
	if err := c.Expire(ctx, name); err != nil {
		return nil, err
	}
	s, err := c.read(ctx, name)
	if err == nil && (s.Record.Held() || len(s.Record.Pins) > 0) {
		err = fmt.Errorf("%w: somebody has claimed or pinned %s meanwhile", backend.ErrContention, name)
	}
	return s, err
}

// Inherit has the tokens of a name go on above last, the last one it had in another store, and its history with
// past, if it has none here. A name that nobody holds becomes a tombstone with that token, unless its tokens are
// as high already. [backend.ErrHeld] says that somebody holds it under a token which is not above last: then what
// it writes may be refused where last was seen. Repeating it does no harm.
func (c *Client) Inherit(ctx context.Context, name string, last backend.Token, past []backend.Tenure) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	if last >= maxToken {
		return fmt.Errorf("%w: above %d there are no tokens for %s: lease another name", backend.ErrInvalid, last, name)
	}
	e := c.patient(name)
	e.wrote = func(*Record) {}
	e.decide = func(_ context.Context, s *seen) (*plan, error) {
		r := &s.Record
		switch {
		case r.Held() && r.Token <= last:
			return nil, heldError(r, max(c.verdict(s).ends, 1))
		case r.Held():
			return nil, nil
		case r.Exists() && r.Token >= last && (len(r.Past) > 0 || len(past) == 0):
			return nil, nil
		}
		p := &plan{record: c.tombstone(s), owner: true}
		p.record.Token = max(p.record.Token, last)
		if len(p.record.Past) == 0 {
			p.record.Past = past[:min(len(past), MaxPast)]
		}
		return p, nil
	}
	return e.run(ctx, nil)
}

// HighestToken returns the highest token that the namespace is known to have given out: that of its records, or
// its floor. Those that a restore of the database has undone are not among them, nor those of unreadable records.
func (c *Client) HighestToken(ctx context.Context) (highest, floor backend.Token, err error) {
	f, err := c.store.Get(ctx, "floor") // whatever the name, each read tells it
	if err != nil && !errors.Is(err, backend.ErrCorrupt) {
		return 0, 0, err
	}
	highest = f.Floor
	err = c.each(ctx, "", func(page []seen) error {
		for i := range page {
			highest = max(highest, page[i].Record.Token)
			floor = max(floor, page[i].Floor)
		}
		return nil
	})
	return max(highest, floor), max(floor, f.Floor), err
}
