package fence

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
)

// Marks is where a [Guard] saves its marks, so that a restart forgets none.
//
// Raise makes the mark of name at least t and returns what the mark is now: t, or what it was before if that
// is higher. It returns without error only when that is on stable storage. On an error the mark may have
// been raised or not. It is called for different names at the same time, for one name of one guard never; if
// several guards share the marks it must compare and write in one step.
type Marks interface {
	Raise(ctx context.Context, name string, t Token) (highest Token, err error)
}

// DefaultMaxNames is how many names a [Guard] remembers unless told otherwise.
const DefaultMaxNames = 65536

// Config is how a [Guard] works. The zero value is usable.
type Config struct {
	// Marks is where marks are saved before they are believed. If it is nil they are only in memory: then a
	// restart forgets them, and an old holder that comes first after it is let in.
	Marks Marks
	// MaxNames is how many names are remembered at the same time; DefaultMaxNames if it is not positive. With
	// Marks the names that were not used for the longest time make room for others, and are asked of Marks
	// when they come back. Without Marks nothing may be forgotten, so further names are [ErrFull].
	MaxNames int
}

// Guard refuses writes with stale tokens, for any number of resources, each of which has a name. Its methods
// may be called by any number of goroutines; it has none of its own.
//
// A guard must be the only way to its resources: what another guard admitted it hears of only when it asks
// the Marks that both share, and it asks only about tokens that it has not seen.
type Guard struct {
	marks Marks
	most  int

	mu     sync.Mutex
	places map[string]*place
	idle   list.List // of *place: those nobody uses, the last used in front; empty without marks
}

// place is a lane, and those who use it. Its guard's mutex guards it.
type place struct {
	lane
	name    string
	users   int
	idle    *list.Element // where it is in the guard's list of idle places, if it is
	changed chan struct{} // closed when the lane changes; nil if nobody waits
	writing map[*writing]struct{}
}

// writing is a write that is under way.
type writing struct{ interrupt context.CancelCauseFunc }

// NewGuard makes a guard.
func NewGuard(c Config) *Guard {
	if c.MaxNames <= 0 {
		c.MaxNames = DefaultMaxNames
	}
	return &Guard{marks: c.Marks, most: c.MaxNames, places: make(map[string]*place)}
}

// Check admits a token that is at least as new as every token admitted before for that name, and raises the
// mark to it. What it promises is about its own moment: once it has returned nil, no older token is admitted
// any more. A write that begins after it can still be overtaken: Check(7) may return nil, then its caller is
// paused, a holder with token 8 is admitted and writes, and then the write of 7 lands on top. Use it where
// the write itself is conditional as well; else use [Guard.Do], which has no such gap.
//
// An error is a [*StaleError], or [ErrInvalid], [ErrUnsaved], [ErrFull], or the context's; then the token was
// not admitted.
func (g *Guard) Check(ctx context.Context, name string, t Token) error {
	p, err := g.open(ctx, name, t)
	if err != nil {
		return err
	}
	defer g.close(p)
	return g.admit(ctx, p, t)
}

// Advance is what a new holder does first: it admits the token like [Guard.Check], and then waits until the
// writes of older tokens that [Guard.Do] has under way are over. Once it has returned nil, what the holder
// reads from the resource is what its predecessors left, for ever. Its errors are those of Check; the token
// may have been admitted nevertheless if it is stale or its context ended.
func (g *Guard) Advance(ctx context.Context, name string, t Token) error {
	return g.Do(ctx, name, t, func(context.Context) error { return nil })
}

// Do admits the token like [Guard.Check] and runs write while no other token can: older ones are refused, and
// newer ones are admitted, so that no further older write begins, but wait until write has returned. So what
// the writes of one name do is done in the order of their tokens. Writes that carry the same token run beside
// each other; a holder that does not want that must order them itself.
//
// The context given to write ends when a newer token was admitted, with the [*StaleError] as its cause: a
// write that heeds it lets the new holder begin sooner, and one that hangs and does not heed it holds the new
// holder up. If write then returns an error, Do returns both, and write may have done a part of its work.
// Else what write returns is returned as it is. Other errors are those of Check, and write was not run.
//
// The promise holds for what write has done when it returns. If it sends a request to somebody else and gives
// up on the answer, that request may take effect later: there the check must be made too. write must not use
// the guard for the same name with another token: it would wait for itself.
func (g *Guard) Do(ctx context.Context, name string, t Token, write func(ctx context.Context) error) error {
	p, err := g.open(ctx, name, t)
	if err != nil {
		return err
	}
	defer g.close(p)
	if err := g.admit(ctx, p, t); err != nil {
		return err
	}
	inside, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	w := &writing{interrupt}
	if err := g.enter(ctx, p, t, w); err != nil {
		return err
	}
	defer g.leave(p, w) // deferred, so that a write which panics does not lock its successors out
	err = write(inside)
	if stale := (*StaleError)(nil); err != nil && errors.As(context.Cause(inside), &stale) && stale.Name == name {
		return fmt.Errorf("%w; the write was under way then and may have been done in part: %w", stale, err)
	}
	return err
}

// open finds the place of a name, which stays until it is closed.
func (g *Guard) open(ctx context.Context, name string, t Token) (*place, error) {
	if err := validate(name, t); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, gaveUp(ctx, name, t)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.places[name]
	if p == nil {
		if len(g.places) >= g.most && !g.makeRoom() {
			return nil, g.full(name, t)
		}
		p = &place{name: name, writing: make(map[*writing]struct{})}
		g.places[name] = p
	}
	if p.idle != nil {
		g.idle.Remove(p.idle)
		p.idle = nil
	}
	p.users++
	return p, nil
}

// makeRoom forgets the name that was not used for the longest time, if any may be forgotten.
func (g *Guard) makeRoom() bool {
	last := g.idle.Back()
	if last == nil {
		return false
	}
	delete(g.places, g.idle.Remove(last).(*place).name)
	return true
}

func (g *Guard) full(name string, t Token) error {
	what := "without Marks none may be forgotten, so give the guard Marks or a higher MaxNames"
	if g.marks != nil {
		what = "all of them are being written to, so try again, or give the guard a higher MaxNames"
	}
	return fmt.Errorf("%w: token %d was not admitted to %.100q, and nothing was written: the guard has %d names: %s", ErrFull, t, name, g.most, what)
}

func (g *Guard) close(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.users--
	switch {
	case p.users > 0:
	case p.mark == 0: // nothing was learnt, so there is nothing to remember
		delete(g.places, p.name)
	case g.marks != nil:
		p.idle = g.idle.PushFront(p)
	}
}

// admit makes t the mark, or finds that it is, or that it is stale.
func (g *Guard) admit(ctx context.Context, p *place, t Token) error {
	for {
		g.mu.Lock()
		said := p.check(t)
		if said == raise && g.marks == nil {
			p.raised(t)
			p.tell()
			said = admit
		}
		stale, changed := &StaleError{Name: p.name, Token: t, Highest: p.mark}, p.waitFor(said)
		g.mu.Unlock()
		switch said {
		case admit:
			return nil
		case refuse:
			return stale
		case raise:
			if err := g.save(ctx, p, t); err != nil {
				return err
			}
		case wait:
			if err := await(ctx, changed, p.name, t); err != nil {
				return err
			}
		}
	}
}

// save has the mark saved, outside the mutex: however long it takes, other names go on. Only when it is
// saved is it believed.
func (g *Guard) save(ctx context.Context, p *place, t Token) error {
	saved := false
	var highest Token
	defer func() { // deferred, so that Marks which panic do not keep this name for ever
		g.mu.Lock()
		defer g.mu.Unlock()
		if saved {
			p.raised(highest)
		} else {
			p.notRaised()
		}
		p.tell()
	}()
	highest, err := g.marks.Raise(ctx, p.name, t)
	if err == nil && highest < t {
		err = fmt.Errorf("the marks say that %d is the highest although %d was just raised: they lose what they are given", highest, t)
	}
	if err != nil {
		return fmt.Errorf("%w: token %d was not admitted to %q, and nothing was written; repeat it with the same token while the lease is held: %w", ErrUnsaved, t, p.name, err)
	}
	saved = true
	return nil
}

// enter waits until w may begin.
func (g *Guard) enter(ctx context.Context, p *place, t Token, w *writing) error {
	for {
		g.mu.Lock()
		said := p.lane.enter(t)
		if said == admit {
			p.writing[w] = struct{}{}
		}
		stale, changed := &StaleError{Name: p.name, Token: t, Highest: p.mark}, p.waitFor(said)
		g.mu.Unlock()
		switch said {
		case admit:
			return nil
		case refuse:
			return stale
		}
		if err := await(ctx, changed, p.name, t); err != nil {
			return err
		}
	}
}

func (g *Guard) leave(p *place, w *writing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(p.writing, w)
	p.lane.leave()
	p.tell()
}

// waitFor returns what is closed at the next change, if that is what was said to be waited for.
func (p *place) waitFor(said verdict) <-chan struct{} {
	if said != wait {
		return nil
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// tell wakes those who wait, and interrupts the writes that have become stale.
func (p *place) tell() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	if p.writer < p.mark {
		for w := range p.writing {
			w.interrupt(&StaleError{Name: p.name, Token: p.writer, Highest: p.mark})
		}
	}
}

func await(ctx context.Context, changed <-chan struct{}, name string, t Token) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return gaveUp(ctx, name, t)
	}
}

// gaveUp says why a context ended: its cause tells more than its error, for a lease's context whether the
// lease was lost.
func gaveUp(ctx context.Context, name string, t Token) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return fmt.Errorf("token %d did not get its turn at %q, and nothing was written: %w", t, name, err)
}
