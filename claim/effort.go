package claim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/backoff"
)

// seen is what a read showed, or what a confirmed write left.
type seen struct {
	Found
	at clock.Instant // just after the read
}

// plan is a write that was decided on.
type plan struct {
	record Record
	owner  bool
	ended  bool
	// extends says that nothing differs from what is replaced but what prolong sets.
	extends bool
	// keeps says that pins and past are those of what is replaced.
	keeps bool
	// adds says that past is that of what is replaced and the tenure that ends.
	adds bool
}

// effort carries one change of one record through: it decides from what is there, writes on the condition
// that it still is, and starts again if it is not. No write whose answer was lost is forgotten: what became of
// it is read back from the record, by its op.
type effort struct {
	client *Client
	name   string
	// patience is how many writes it tries, and pause how long it waits after the first that came too late.
	patience int
	pause    time.Duration
	// decide says what to write, or that there is nothing to do or why it cannot be done.
	decide func(ctx context.Context, s *seen) (*plan, error)
	// wrote is told of the write, once it is known to have happened.
	wrote func(r *Record)
	// sending is told of each write before it is sent. It may be nil.
	sending func(r *Record)

	sent []*Record // all that were sent, to be known again
	// open has the ops that unanswered writes would replace. An op is never used twice, so as soon as the
	// record is read with another one, they cannot land any more.
	open    []Op
	doubted bool // some answer was lost
	// guesses says that what is known to begin with may have been changed by others since. Nothing is refused
	// because of it.
	fromMemory bool
	// alone says to write from what is guessed only if no process has a ticket for the name.
	ifNoTicket bool
}

// hurried makes an effort as patient as renewals and releases are: they come back sooner and more often than
// claims, since a tenure hangs on them.
func (c *Client) hurried(name string) *effort {
	return &effort{client: c, name: name, patience: 4 * c.opts.Attempts, pause: time.Millisecond}
}

// patient makes an effort for what can wait.
func (c *Client) patient(name string) *effort {
	return &effort{client: c, name: name, patience: c.opts.Attempts, pause: 4 * time.Millisecond}
}

// run makes the effort, from what is known or else from a read. Without an error, either the write happened
// or there was nothing to do.
func (e *effort) run(ctx context.Context, known *seen) error {
	for n, made := 0, 0; ; {
		if known == nil {
			var finished bool
			var err error
			if known, finished, err = e.reread(ctx); finished || err != nil {
				return err
			}
		}
		p, err := e.decide(ctx, known)
		guess := e.fromMemory
		e.fromMemory = false
		switch {
		case p == nil && guess:
			known = nil
			continue
		case p == nil:
			return e.settled(known, err)
		case ctx.Err() != nil: // nothing more is sent
			return e.settled(known, ctx.Err())
		case max(n, made) == e.patience:
			return e.settled(known, fmt.Errorf("%w: %s was tried %d times, and each time others were faster or no answer came", backend.ErrContention, e.name, e.patience))
		case !known.Record.Exists():
			if err := e.create(ctx, known); err != nil {
				return err
			}
			known = nil
			made++
			continue
		}
		done, err := e.send(ctx, known.Record.Op, p, guess)
		switch {
		case done:
			e.wrote(&p.record)
			return nil
		case guess && err == nil:
			known = nil // nobody was faster, it only was not so
			n++
			continue
		case definite(err):
			return e.failed(err)
		case err == nil:
			_ = e.client.opts.Pause(ctx, pauseAfter(e.pause, n)) // an ended context is noticed by look
		}
		known = nil
		n++
	}
}

// create makes the record of a name that has none. It is vacant and says nothing, so that it does not matter
// whether the write happened, or when.
//
// What was decided on is only written over a record. For an op is never used twice, but a collection may bring
// back that there is none: of two writes that need that, both may happen, and the later one would begin a
// tenure, with an old token, that its claimer knows nothing of. A collection also raises the floor before it
// removes a record; so the read after this write, which shows the record, shows that floor as well.
func (e *effort) create(ctx context.Context, s *seen) error {
	r := e.client.tombstone(s)
	r.Op = NewOp()
	if _, err := e.client.store.Swap(ctx, Swap{Record: r}); definite(err) {
		return e.failed(err)
	}
	return nil
}

// swap sends one attempt, which has an op of its own.
func (e *effort) send(ctx context.Context, old Op, p *plan, guess bool) (bool, error) {
	p.record.Op = NewOp()
	e.sent = append(e.sent, &p.record)
	if e.sending != nil {
		e.sending(&p.record)
	}
	done, err := e.client.store.Swap(ctx, Swap{Old: old, Record: p.record, Owner: p.owner, Ended: p.ended, Extends: p.extends, Keeps: p.keeps, Adds: p.adds, Above: guess, Alone: guess && e.ifNoTicket})
	if err != nil && !definite(err) {
		e.open, e.doubted = append(e.open, old), true
	}
	return done && err == nil, err
}

// look reads the record, and finds out what became of earlier attempts. When the context has ended it still
// does so, for a short time, if there are any without an answer; but then nothing more is written.
func (e *effort) reread(ctx context.Context) (s *seen, finished bool, err error) {
	over := ctx.Err()
	if over != nil {
		if len(e.open) == 0 {
			return nil, false, over
		}
		var cancel func()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
	}
	if s, err = e.client.read(ctx, e.name); err != nil {
		return nil, false, e.failed(err)
	}
	e.open = slices.DeleteFunc(e.open, func(op Op) bool { return op != s.Record.Op })
	i := slices.IndexFunc(e.sent, func(r *Record) bool { return r.Op == s.Record.Op })
	if i >= 0 {
		e.wrote(e.sent[i])
		return nil, true, nil
	}
	if over != nil {
		return nil, false, e.settled(s, over)
	}
	return s, false, nil
}

// settled returns the verdict of an effort that ends with a read: what is decided holds only if no earlier
// attempt can land any more.
func (e *effort) settled(s *seen, err error) error {
	if slices.Contains(e.open, s.Record.Op) {
		return unknown(e.name, err)
	}
	return err
}

// failed returns the verdict of an effort that ends because the store cannot be asked.
func (e *effort) failed(err error) error {
	if len(e.open) > 0 {
		return unknown(e.name, err)
	}
	return err
}

// unknown says that a write may have happened or may yet. What it rests on keeps its text but not its kind:
// nobody must take it for a refusal.
func unknown(name string, cause error) error {
	switch {
	case errors.Is(cause, backend.ErrUnknownOutcome):
		return cause
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("%w: the answer about %s did not come in time: %w", backend.ErrUnknownOutcome, name, cause)
	case cause == nil, errors.Is(cause, backend.ErrContention):
		return fmt.Errorf("%w: an earlier request for %s may still take effect", backend.ErrUnknownOutcome, name)
	}
	return fmt.Errorf("%w: an earlier request for %s may still take effect: %v", backend.ErrUnknownOutcome, name, cause)
}

// definite reports whether a write that failed so surely neither has nor will have any effect. All that a
// store does not call so may have.
func definite(err error) bool {
	if err == nil || errors.Is(err, backend.ErrUnknownOutcome) {
		return false
	}
	for _, kind := range []error{backend.ErrUnavailable, backend.ErrInvalid, backend.ErrCorrupt, backend.ErrUnsupported, backend.ErrClosed} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// pauseAfter returns how long to wait when another client was faster, after n earlier attempts of which that is true. It
// doubles five times, and differs from the pauses of others.
func pauseAfter(first time.Duration, n int) time.Duration {
	return backoff.Around(backoff.Doubled(first, first<<5, n), 2, rand.Uint64())
}
