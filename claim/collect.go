package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Collection is which tombstones to remove.
type Collection struct {
	Prefix string
	// Age is for how long nobody must have held a name; 0 is all. Of a name that was given back or taken from
	// its holder that is told by the wall clock of who did so. Of one whose holder has fallen silent it is how
	// long its lease has surely been over, on this machine's clocks: on another machine than the holder's that
	// counts from when this one first saw the holder's last write. What ended with a reboot of the only machine
	// there is counts from the first collection after it.
	Age time.Duration
	// Progress, if given, is called after each page: how many names were looked at, and removed.
	Progress func(seen, removed int)
}

// Collect removes the records of names that nobody holds or pins, and says how many. A name whose lease is
// surely over, and has been for the age that is asked for, is vacated first. Their tokens do not start again:
// first the namespace's floor is raised above all that are removed, and a claim that makes a record looks at the
// floor again after it was made. Of all names with that prefix it also has the store forget what was observed of
// writes that were replaced since. It can be stopped and repeated at any time.
func (c *Client) Collect(ctx context.Context, what Collection) (removed int, err error) {
	if what.Age < 0 {
		return 0, fmt.Errorf("%w: the age of a tombstone is not negative", backend.ErrInvalid)
	}
	looked, after := 0, ""
	err = c.each(ctx, what.Prefix, func(page []seen) error {
		n, err := c.collectPage(ctx, page, what.Age)
		looked, removed = looked+len(page), removed+n
		if err == nil {
			through := lastName(page)
			err = c.store.Sweep(ctx, what.Prefix, after, through)
			after = through
		}
		if err == nil && what.Progress != nil {
			what.Progress(looked, removed)
		}
		return err
	})
	return removed, err
}

// lastName is that of a page, or none if it is the last page: what was observed of names after it goes too.
func lastName(page []seen) string {
	if len(page) < pageSize {
		return ""
	}
	return page[len(page)-1].Record.Name
}

func (c *Client) collectPage(ctx context.Context, page []seen, age time.Duration) (removed int, err error) {
	var old []*Record
	var failed error
	for i := range page {
		r, err := c.collectableRecord(ctx, &page[i], age)
		if err != nil && !concernsOneName(err) {
			failed = err
			break
		}
		if r != nil {
			old = append(old, r)
		}
	}
	err = c.remove(ctx, old, func(_ *Record, done bool) {
		if done {
			removed++
		}
	})
	if failed != nil {
		err = failed
	}
	return removed, err
}

// old returns the record of a name if it can be collected. If nobody holds it but in the record, that is ended.
func (c *Client) collectableRecord(ctx context.Context, s *seen, age time.Duration) (*Record, error) {
	r := &s.Record
	switch {
	case s.Err != nil || len(r.Pins) > 0:
		return nil, nil
	case !r.Held():
		if !c.collectable(r, age) {
			return nil, nil
		}
		return r, nil
	}
	v := c.fullVerdict(ctx, s, false)
	if !v.over || !v.domainEnded && -v.ends < age {
		return nil, nil
	}
	left, err := c.expireAndRead(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	if v.domainEnded { // nobody can tell since when, so it grows old from now on
		return c.collectableRecord(ctx, left, age)
	}
	if !c.collectable(&left.Record, 0) {
		return nil, nil
	}
	return &left.Record, nil
}

// remove removes records, unless they are changed first, and lets no token start again. It reports of each
// whether it did.
func (c *Client) remove(ctx context.Context, old []*Record, report func(r *Record, done bool)) error {
	if len(old) == 0 {
		return nil
	}
	var highest backend.Token
	for _, r := range old {
		highest = max(highest, r.Token)
	}
	if _, err := c.store.RaiseFloor(ctx, highest); err != nil {
		return err // none was removed, whether it was raised or not
	}
	for _, r := range old {
		done, err := c.store.Remove(ctx, r.Name, r.Op)
		if err != nil {
			return err
		}
		if done {
			c.forget(r.Name)
		}
		report(r, done)
	}
	return nil
}

func (c *Client) collectable(r *Record, age time.Duration) bool {
	if !r.Exists() || r.Held() || len(r.Pins) > 0 || r.Token >= maxToken {
		return false // the last: a floor of that height would leave no tokens for any name
	}
	if age == 0 {
		return true
	}
	return len(r.Past) > 0 && c.Wall().Sub(r.Past[0].To) >= age
}

// RaiseFloor makes all later tokens of the namespace larger than t, and returns the floor. That is needed
// after the database was restored from a backup, and before names are moved to it.
func (c *Client) RaiseFloor(ctx context.Context, t backend.Token) (backend.Token, error) {
	if t >= maxToken {
		return 0, fmt.Errorf("%w: a floor of %d leaves no tokens: the largest is %d", backend.ErrInvalid, t, maxToken-1)
	}
	return c.store.RaiseFloor(ctx, t)
}
