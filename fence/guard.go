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
// Raise makes the mark of name at least t and returns the mark: t, or the earlier mark if that is higher. It
// returns without error only when the mark is on stable storage. After an error the mark may have been raised
// or not. A guard calls Raise for different names at the same time, but never twice at the same time for one
// name. If several guards share the marks, Raise must compare and write in one step.
type Marks interface {
	Raise(ctx context.Context, name string, t Token) (highest Token, err error)
}

// DefaultMaxNames is the number of names that a [Guard] remembers if [Config].MaxNames is not set.
const DefaultMaxNames = 65536

// Config configures a [Guard]. The zero value is usable.
type Config struct {
	// Marks is where the guard saves a mark before it relies on it. If Marks is nil, marks are only in memory.
	// Then a restart forgets them, and the guard admits an old holder that writes first after the restart.
	Marks Marks
	// MaxNames is the largest number of names in memory; DefaultMaxNames if it is not positive. With Marks, a
	// full guard forgets the least recently used name, and asks Marks again when that name is next used.
	// Without Marks it may forget nothing, so it refuses further names with [ErrFull].
	MaxNames int
}

// Guard refuses writes with stale tokens, for any number of resources, each of which has a name. Any number of
// goroutines may call its methods; it starts none of its own.
//
// All writes to a resource must go through one guard. A guard learns what another guard admitted only from
// Marks that both share, and it asks Marks only about tokens that it has not seen.
type Guard struct {
	marks    Marks // nil: marks are only in memory
	maxNames int

	mu     sync.Mutex
	places map[string]*place // by name; guarded by mu
	idle   list.List         // of *place without users, the last used in front; empty without marks; guarded by mu
}

// place is the lane of one name, with the calls that use it. The guard's mu guards it.
type place struct {
	lane
	name    string
	users   int           // calls between open and close
	idle    *list.Element // its element of the guard's idle list; nil while it has users
	changed chan struct{} // closed when the lane changes; nil if no call waits
	writing map[*writing]struct{}
}

// writing is a write in progress.
type writing struct{ interrupt context.CancelCauseFunc }

// NewGuard returns a guard with this configuration.
func NewGuard(c Config) *Guard {
	if c.MaxNames <= 0 {
		c.MaxNames = DefaultMaxNames
	}
	return &Guard{marks: c.Marks, maxNames: c.MaxNames, places: make(map[string]*place)}
}

// Check admits a token that is at least as new as every token admitted before for that name, and raises the
// mark to it. Once it has returned nil, the guard admits no older token.
//
// A newer write can still overtake a write that begins after Check. Check(7) returns nil, and its caller is
// paused; the guard admits a holder with token 8, which writes; then the write of 7 lands on top. Use Check
// only where the write itself is conditional as well. Otherwise use [Guard.Do], which has no such gap.
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

// Advance admits the token like [Guard.Check], and then waits for the writes of older tokens that [Guard.Do]
// has in progress. A new holder calls it before it first reads the resource: once Advance has returned nil, no
// previous holder can change what the new holder reads. Its errors are those of Check. After a [*StaleError]
// or an error of the context, the token may have been admitted nevertheless.
func (g *Guard) Advance(ctx context.Context, name string, t Token) error {
	return g.Do(ctx, name, t, func(context.Context) error { return nil })
}

// Do admits the token like [Guard.Check] and runs write while no write with another token runs for that name.
// Meanwhile the guard refuses older tokens. It admits newer ones, so that no further older write begins, but
// they wait until write has returned. So the writes of one name take effect in the order of their tokens.
// Writes with the same token run concurrently; a holder that does not want that must order them itself.
//
// The context of write ends when the guard admits a newer token, with the [*StaleError] as its cause. A write
// that ends with its context lets the new holder begin sooner; one that hangs delays the new holder. If write
// returns an error after its context ended so, Do returns both errors, and write may have done a part of its
// work. Otherwise Do returns what write returns. After other errors, which are those of Check, write was not
// run.
//
// Do orders only what write has done when it returns. A request that write sent to another program, and whose
// answer it did not wait for, may take effect later: that program must check the token too. write must not use
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
		return fmt.Errorf("%w; the write was in progress then and may have taken effect in part: %w", stale, err)
	}
	return err
}

// open returns the place of a name and counts a user of it. The guard keeps the place until [Guard.close].
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
		if len(g.places) >= g.maxNames && !g.makeRoom() {
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

// makeRoom forgets the least recently used name, and reports whether it found one that it may forget.
func (g *Guard) makeRoom() bool {
	last := g.idle.Back()
	if last == nil {
		return false
	}
	delete(g.places, g.idle.Remove(last).(*place).name)
	return true
}

// full returns the [ErrFull] that says what to do.
func (g *Guard) full(name string, t Token) error {
	advice := "a guard without Marks forgets no name, so give it Marks or a higher MaxNames"
	if g.marks != nil {
		advice = "all of them are in use, so try again, or give the guard a higher MaxNames"
	}
	return fmt.Errorf("%w: token %d was not admitted to %.100q, and nothing was written: the guard has %d names: %s", ErrFull, t, name, g.maxNames, advice)
}

// close ends the use of a place that open returned. Without users the place becomes idle, or goes if it has no mark.
func (g *Guard) close(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.users--
	switch {
	case p.users > 0:
	case p.mark == 0: // there is no mark to remember
		delete(g.places, p.name)
	case g.marks != nil:
		p.idle = g.idle.PushFront(p)
	}
}

// admit returns nil once t is the mark, or a [*StaleError] if the mark is higher.
func (g *Guard) admit(ctx context.Context, p *place, t Token) error {
	for {
		g.mu.Lock()
		decided := p.check(t)
		if decided == raise && g.marks == nil {
			p.raised(t)
			p.wake()
			decided = admit
		}
		stale, changed := &StaleError{Name: p.name, Token: t, Highest: p.mark}, p.waitFor(decided)
		g.mu.Unlock()
		switch decided {
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

// save saves t as the mark, and then raises the mark in the lane. It holds no mutex meanwhile: a slow save delays
// no other name.
func (g *Guard) save(ctx context.Context, p *place, t Token) error {
	saved := false
	var highest Token
	defer func() { // deferred, so that a panic of Marks does not block this name
		g.mu.Lock()
		defer g.mu.Unlock()
		if saved {
			p.raised(highest)
		} else {
			p.notRaised()
		}
		p.wake()
	}()
	highest, err := g.marks.Raise(ctx, p.name, t)
	if err == nil && highest < t {
		err = fmt.Errorf("Marks returned %d as the highest token although %d was just saved: fix the Marks, which lose tokens", highest, t)
	}
	if err != nil {
		return fmt.Errorf("%w: token %d was not admitted to %q, and nothing was written; repeat it with the same token while the lease is held: %w", ErrUnsaved, t, p.name, err)
	}
	saved = true
	return nil
}

// enter waits until the write w may begin.
func (g *Guard) enter(ctx context.Context, p *place, t Token, w *writing) error {
	for {
		g.mu.Lock()
		decided := p.lane.enter(t)
		if decided == admit {
			p.writing[w] = struct{}{}
		}
		stale, changed := &StaleError{Name: p.name, Token: t, Highest: p.mark}, p.waitFor(decided)
		g.mu.Unlock()
		switch decided {
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

// leave ends the write w.
func (g *Guard) leave(p *place, w *writing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(p.writing, w)
	p.lane.leave()
	p.wake()
}

// waitFor returns a channel that closes at the next change of the lane, or nil if the lane did not decide wait.
func (p *place) waitFor(decided verdict) <-chan struct{} {
	if decided != wait {
		return nil
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// wake wakes the calls that wait for a change of the lane, and interrupts the writes that have become stale.
func (p *place) wake() {
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

// await waits until changed closes or the context ends.
func await(ctx context.Context, changed <-chan struct{}, name string, t Token) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return gaveUp(ctx, name, t)
	}
}

// gaveUp returns the error of a call whose context has ended. It includes the context's cause, which for a lease's
// context says whether the lease was lost.
func gaveUp(ctx context.Context, name string, t Token) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return fmt.Errorf("the context ended before token %d could write to %q, and nothing was written: %w", t, name, err)
}
