package survey

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Name is one name as the store last reported it.
type Name struct {
	backend.Info
	// Ends is when the lease ends unless it is renewed. It has a meaning only if Timed.
	Ends clock.Instant
	// Timed says that the name is held and that the store told how long its lease lasts.
	Timed bool
}

// Observe returns the name that a store reported at now.
func Observe(i backend.Info, now clock.Instant) Name {
	n := Name{Info: i}
	if i.Held && i.Remaining >= 0 {
		n.Ends, n.Timed = now.Add(i.Remaining), true
	}
	return n
}

// Left returns how long the lease lasts from now on unless it is renewed. It is 0 if the time has passed, and negative
// if the store does not tell.
func (n Name) Left(now clock.Instant) time.Duration {
	if !n.Timed {
		return -1
	}
	return max(0, now.Remaining(n.Ends))
}

// Counts are figures about all names of a survey.
type Counts struct {
	Held, Free int
	// Waiting is the number of waiting claims, of the names whose store can tell.
	Waiting int
	// WaitingKnown says that the store tells the length of the queue of each held name.
	WaitingKnown bool
	// Contended names are held while other claims wait.
	Contended  int
	Pinned     int
	Unreadable int
}

// Survey is all names of a store, read page by page. It is immutable.
type Survey struct {
	// Names are in the order of their text.
	Names      []Name
	Began, End clock.Instant // of the reading
	Counts     Counts
	// Truncated says that the store has more names than the survey keeps.
	Truncated bool
}

// Collection is a survey whose names are being read. It belongs to one goroutine.
type Collection struct {
	s    Survey
	most int
}

// Collect begins a survey of at most a number of names.
func Collect(began clock.Instant, most int) *Collection {
	return &Collection{Survey{Began: began, Counts: Counts{WaitingKnown: true}}, most}
}

// Add adds a page of names that the store reported at now. Pages come in order. It reports whether the survey has room
// for more.
func (c *Collection) Add(page []backend.Info, now clock.Instant) (room bool, err error) {
	for _, i := range page {
		if n := len(c.s.Names); n > 0 && i.Name <= c.s.Names[n-1].Name {
			return false, fmt.Errorf("the store lists %q after %q: %w", backend.Printable(i.Name), backend.Printable(c.s.Names[n-1].Name), backend.ErrCorrupt)
		}
		if len(c.s.Names) >= c.most {
			c.s.Truncated = true
			return false, nil
		}
		c.s.Names = append(c.s.Names, Observe(i, now))
		c.s.Counts.count(i)
	}
	return true, nil
}

// Last returns the last name that was added, or "".
func (c *Collection) Last() string {
	if len(c.s.Names) == 0 {
		return ""
	}
	return c.s.Names[len(c.s.Names)-1].Name
}

// Finish returns the survey. The collection must not be used afterwards.
func (c *Collection) Finish(end clock.Instant) *Survey {
	c.s.End = end
	return &c.s
}

func (c *Counts) count(i backend.Info) {
	switch {
	case i.Err != nil:
		c.Unreadable++
		return
	case !i.Held:
		c.Free++
		return
	}
	c.Held++
	if i.Pinned != "" {
		c.Pinned++
	}
	switch {
	case i.Waiting < 0:
		c.WaitingKnown = false
	case i.Waiting > 0:
		c.Contended++
		c.Waiting += i.Waiting
	}
}

// Find returns a name of the survey.
func (s *Survey) Find(name string) (Name, bool) {
	i, ok := slices.BinarySearchFunc(s.Names, name, func(n Name, name string) int { return cmp.Compare(n.Name, name) })
	if !ok {
		return Name{Info: backend.Info{Name: name, Waiting: -1}}, false
	}
	return s.Names[i], true
}

// Change is a tenure that ended, began, or both, between two surveys.
type Change struct {
	Was, Is Name // of the same name
	// Ended says that the tenure of Was has ended, Began that the one of Is has begun.
	Ended, Began bool
}

// Compare returns the changes from one survey to a later one, in the order of names. Names beyond the end of a
// truncated survey are left out.
func Compare(before, after *Survey) []Change {
	var found []Change
	was, is := before.Names, after.Names
	for len(was) > 0 || len(is) > 0 {
		var c Change
		switch {
		case len(is) == 0 && after.Truncated, len(was) == 0 && before.Truncated:
			return found
		case len(is) == 0, len(was) > 0 && was[0].Name < is[0].Name:
			c.Was, was = was[0], was[1:]
			c.Is = Name{Info: backend.Info{Name: c.Was.Name, Waiting: -1}}
		case len(was) == 0, is[0].Name < was[0].Name:
			c.Is, is = is[0], is[1:]
			c.Was = Name{Info: backend.Info{Name: c.Is.Name, Waiting: -1}}
		default:
			c.Was, c.Is, was, is = was[0], is[0], was[1:], is[1:]
		}
		if c.decide() {
			found = append(found, c)
		}
	}
	return found
}

// decide sets what has changed, and reports whether anything has.
func (c *Change) decide() bool {
	if c.Was.Err != nil || c.Is.Err != nil {
		return false
	}
	another := c.Was.Held && c.Is.Held && c.Was.Token != c.Is.Token
	c.Ended = another || c.Was.Held && !c.Is.Held
	c.Began = another || !c.Was.Held && c.Is.Held
	return c.Ended || c.Began
}
