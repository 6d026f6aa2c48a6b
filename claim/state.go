package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// State is what a client knows of one name. For a name that was never held, Record has the name alone.
type State struct {
	Record Record
	Floor  backend.Token
	// Latest is until when the lease may last on this client's clocks, and Ends how long that is from now, if
	// the name is held and not renewed. Pins are not considered.
	Latest clock.Instant
	Ends   time.Duration
	// Over says that the name can be claimed now: it is vacant, or its lease has certainly expired and is not
	// pinned.
	Over bool
	Err  error // only from List: why the record cannot be read
}

// pageSize is how many records one List of the store returns at most when a call reads all names.
const pageSize = 500

// Get returns the state of a name.
func (c *Client) Get(ctx context.Context, name string) (State, error) {
	if err := backend.CheckName(name); err != nil {
		return State{}, err
	}
	s, err := c.read(ctx, name)
	if err != nil {
		return State{}, err
	}
	return c.stateOf(s), nil
}

// List returns up to limit names that begin with prefix and sort after the given one, in order of their bytes.
// If it returns fewer than limit, these are the last.
func (c *Client) List(ctx context.Context, prefix, after string, limit int) ([]State, error) {
	page, err := c.page(ctx, prefix, after, limit)
	if err != nil {
		return nil, err
	}
	states := make([]State, len(page))
	for i := range page {
		states[i] = c.stateOf(&page[i])
	}
	return states, nil
}

func (c *Client) page(ctx context.Context, prefix, after string, limit int) ([]seen, error) {
	if limit <= 0 {
		return nil, nil
	}
	found, err := c.store.List(ctx, prefix, after, limit)
	if err != nil {
		return nil, err
	}
	at := c.Now()
	page := make([]seen, len(found))
	for i, f := range found {
		if f.Err == nil {
			f.Err = check(f.Record.Name, &f.Record)
		}
		page[i] = seen{f, at}
	}
	return page, nil
}

// each reads all names that begin with prefix, page by page.
func (c *Client) each(ctx context.Context, prefix string, do func([]seen) error) error {
	for after := ""; ; {
		page, err := c.page(ctx, prefix, after, pageSize)
		if err != nil {
			return err
		}
		if err := do(page); err != nil {
			return err
		}
		if len(page) < pageSize {
			return nil
		}
		last := page[len(page)-1].Record.Name
		if last <= after {
			return fmt.Errorf("%w: the store lists %q after %q", backend.ErrCorrupt, last, after)
		}
		after = last
	}
}

func (c *Client) stateOf(s *seen) State {
	if s.Err != nil {
		return State{Record: Record{Name: s.Record.Name}, Floor: s.Floor, Err: s.Err}
	}
	state := State{Record: s.Record, Floor: s.Floor}
	if !s.Record.Held() {
		c.forget(s.Record.Name)
		state.Over = true
		return state
	}
	v := c.verdict(s)
	state.Latest, state.Ends = v.latest, max(0, v.ends)
	state.Over = v.over && len(s.Record.Pins) == 0
	return state
}
