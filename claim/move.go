package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Move selects the names to move to another store, and says how.
type Move struct {
	Prefix string
	// To makes the destination continue the tokens of a name above that of r, for example with
	// [Client.Inherit]; r is vacant. If r has a mark, To must raise that of the destination too, for example with
	// [Client.InheritMark]. When To returns nil that must be durable, because r is then removed here. A name
	// stays if To returns [backend.ErrHeld], [backend.ErrPinned], [backend.ErrInvalid], [backend.ErrCorrupt],
	// [backend.ErrContention] or [backend.ErrUnsupported]; any other error ends the move. If To is nil, Move
	// moves nothing and only counts what could be moved.
	To func(ctx context.Context, r *Record) error
	// Left, if not nil, is called with each name that stays, and why.
	Left func(name string, why error)
	// Progress, if not nil, is called after each name: how many were looked at, and moved.
	Progress func(seen, moved int)
}

// Move moves the names that are neither held nor pinned, and returns their number. It removes their records
// here as [Client.Collect] does, so their tokens do not start again here either. A name whose lease has
// certainly expired is vacated first. Move can be stopped and repeated at any time: it skips moved names and
// repeats those that it had begun.
//
// No client may claim these names here from now on. One that does so while the name is leased in the other
// store becomes a second holder, with tokens that the other store grants too.
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

// page moves the names of a page. It removes their records together, once the destination knows all that it
// accepts.
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
		default: // its record is gone
			w.seen++
		}
		if failed != nil {
			break
		}
	}
	err := w.client.remove(ctx, inherited, func(r *Record, done bool) {
		var why error
		if !done {
			why = fmt.Errorf("%w: another client has claimed %s meanwhile", backend.ErrContention, r.Name)
		}
		w.report(r.Name, why)
	})
	if failed != nil {
		return failed
	}
	return err
}

// report counts a name, which stays if why is not nil.
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

// concernsOneName reports whether an error is about one name alone.
func concernsOneName(err error) bool {
	for _, kind := range []error{backend.ErrHeld, backend.ErrPinned, backend.ErrInvalid, backend.ErrCorrupt, backend.ErrContention, backend.ErrUnsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// moveOne hands one name over to the other store, and returns its record, which can then be removed. Without a
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
		return nil, fmt.Errorf("%w: the tokens of %s are used up at %d: lease another name", backend.ErrInvalid, r.Name, r.Token)
	case w.move.To == nil:
		return r, nil
	}
	if err := w.move.To(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// expireAndRead ends a lease that has expired, and returns what is left of it.
func (c *Client) expireAndRead(ctx context.Context, name string) (*seen, error) {
	if err := c.Expire(ctx, name); err != nil {
		return nil, err
	}
	s, err := c.read(ctx, name)
	if err == nil && (s.Record.Held() || len(s.Record.Pins) > 0) {
		err = fmt.Errorf("%w: another client has claimed or pinned %s meanwhile", backend.ErrContention, name)
	}
	return s, err
}

// Inherit continues the tokens of a name above last, its last token in another store, and its history with past
// if it has none here. A vacant name becomes a tombstone with that token, unless its tokens are as high
// already. [backend.ErrHeld] says that a holder has a token which is not above last: its writes may then be
// refused where last was seen. Repeating Inherit does no harm.
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

// HighestToken returns the highest token that the namespace is known to have granted: that of its records, or
// its floor. It does not count tokens that a restore of the database has undone, nor those of unreadable
// records.
func (c *Client) HighestToken(ctx context.Context) (highest, floor backend.Token, err error) {
	f, err := c.store.Get(ctx, "floor") // the name does not matter: each read returns the floor
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
