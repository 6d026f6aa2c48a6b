package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Collection selects the tombstones to remove.
type Collection struct {
	Prefix string
	// Age is for how long the name must have had no holder; 0 selects all. For a released name, or one taken
	// from its holder, the wall clock of the process that did so counts. For a holder that has fallen silent,
	// Age is how long its lease has certainly been expired, on this machine's clocks. On another machine than
	// the holder's that counts from this machine's first observation of the holder's last write. What ended
	// with a reboot of the only machine counts from the first collection after it.
	Age time.Duration
	// Progress, if not nil, is called after each page: how many names were looked at, and removed.
	Progress func(seen, removed int)
}

// Collect removes the records of names that are neither held nor pinned and have no mark, and returns their number. A name whose
// lease has certainly been expired for the age is vacated first. Its tokens do not start again: Collect first
// raises the namespace's floor above all tokens that it removes, and a claim that creates a record reads the
// floor again afterwards. For all names with the prefix, the store also forgets observations of writes that
// were replaced since. Collect can be stopped and repeated at any time.
func (c *Client) Collect(ctx context.Context, what Collection) (removed int, err error) {
	if what.Age < 0 {
		return 0, fmt.Errorf("%w: the age of a tombstone is %v: it cannot be negative", backend.ErrInvalid, what.Age)
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

// lastName returns the last name of a page, or "" if it is the last page: observations of later names are then
// swept too.
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

// collectableRecord returns the record of a name if it can be collected, otherwise nil. It first ends a lease
// that has certainly expired.
func (c *Client) collectableRecord(ctx context.Context, s *seen, age time.Duration) (*Record, error) {
	r := &s.Record
	switch {
	case s.Err != nil || len(r.Pins) > 0 || !r.Mark.IsZero(): // a mark would be forgotten with its record
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
	if !v.domainEnded { // otherwise it is unknown when it ended, so its age counts from now
		age = 0
	}
	return c.collectableRecord(ctx, left, age)
}

// remove removes records, unless another client changes them first, and lets no token start again. It reports
// for each record whether it was removed.
func (c *Client) remove(ctx context.Context, old []*Record, report func(r *Record, done bool)) error {
	if len(old) == 0 {
		return nil
	}
	var highest backend.Token
	for _, r := range old {
		highest = max(highest, r.Token)
	}
	if _, err := c.store.RaiseFloor(ctx, highest); err != nil {
		return err // no record was removed, whether or not the floor was raised
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
		return false // a floor as high as the last token would leave no tokens for any name
	}
	if age == 0 {
		return true
	}
	return len(r.Past) > 0 && c.Wall().Sub(r.Past[0].To) >= age
}

// RaiseFloor makes all later tokens of the namespace larger than t, and returns the floor. It is needed after
// the database was restored from a backup, and before names are moved to it.
func (c *Client) RaiseFloor(ctx context.Context, t backend.Token) (backend.Token, error) {
	if t >= maxToken {
		return 0, fmt.Errorf("%w: a floor of %d leaves no tokens: the largest is %d", backend.ErrInvalid, t, maxToken-1)
	}
	return c.store.RaiseFloor(ctx, t)
}
