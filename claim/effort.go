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
	// extends says that the record differs from the one it replaces only in the fields that prolong sets.
	extends bool
	// keeps says that Pins, Past and Mark equal those of the record that is replaced.
	keeps bool
	// adds says that Past is that of the replaced record, with the tenure that ends in front.
	adds bool
}

// effort carries out one change of one record. It decides from the record, writes on the condition that the
// record has not changed, and starts over if it has. It forgets no write whose answer was lost: it reads back
// the record, whose op shows the outcome.
type effort struct {
	client *Client
	name   string
	// patience is how many writes it tries. pause is how long it waits after the first that lost to another
	// client.
	patience int
	pause    time.Duration
	// decide returns what to write. With neither a plan nor an error there is nothing to do.
	decide func(ctx context.Context, s *seen) (*plan, error)
	// wrote is called with the record of the write, once the write certainly happened.
	wrote func(r *Record)
	// sending is called with each record before it is sent. It may be nil.
	sending func(r *Record)

	sent []*Record // all records that were sent, to recognize them in a read
	// open has the ops that unanswered writes would replace. An op is never used twice, so these writes can no
	// longer land once a read shows another op.
	open    []Op
	doubted bool // some answer was lost
	// fromMemory says that the record to begin with comes from this client's memory, and other clients may have
	// changed it since. No refusal is decided from it.
	fromMemory bool
	// ifNoTicket says that a write from memory happens only if no process has a ticket for the name.
	ifNoTicket bool
}

// hurried returns an effort for renewals and releases. It retries sooner and more often than a claim, since a
// tenure depends on it.
func (c *Client) hurried(name string) *effort {
	return &effort{client: c, name: name, patience: 4 * c.opts.Attempts, pause: time.Millisecond}
}

// patient returns an effort for everything that can wait.
func (c *Client) patient(name string) *effort {
	return &effort{client: c, name: name, patience: c.opts.Attempts, pause: 4 * time.Millisecond}
}

// run carries the effort out, from the known record or else from a read. Without an error, either the write
// happened or there was nothing to do.
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
		case ctx.Err() != nil: // send nothing more
			return e.settled(known, ctx.Err())
		case max(n, made) == e.patience:
			return e.settled(known, fmt.Errorf("%w: %s was tried %d times, and each time another client was faster or no answer came", backend.ErrContention, e.name, e.patience))
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
			known = nil // no client was faster: the remembered record was old
			n++
			continue
		case definite(err):
			return e.failed(err)
		case err == nil:
			_ = e.client.opts.Pause(ctx, pauseAfter(e.pause, n)) // reread notices that a context has ended
		}
		known = nil
		n++
	}
}

// create creates the record of a name that has none. The record is vacant and promises nothing, so it does not
// matter whether the write happened, or when.
//
// A decision is only written over an existing record. An op is never used twice, but a collection may bring
// back the state that there is no record. Of two writes that need that state, both may happen. The later one
// would begin a tenure, with an old token, of which its claimer knows nothing. A collection also raises the
// floor before it removes a record, so the read after this write, which shows the record, shows that floor as
// well.
func (e *effort) create(ctx context.Context, s *seen) error {
	r := e.client.tombstone(s)
	r.Op = NewOp()
	if _, err := e.client.store.Swap(ctx, Swap{Record: r}); definite(err) {
		return e.failed(err)
	}
	return nil
}

// send sends one attempt, which has an op of its own.
func (e *effort) send(ctx context.Context, old Op, p *plan, guess bool) (bool, error) {
	p.record.Op = NewOp()
	e.sent = append(e.sent, &p.record)
	if e.sending != nil {
		e.sending(&p.record)
	}
	done, err := e.client.store.Swap(ctx, Swap{Old: old, Record: p.record, Owner: p.owner, Ended: p.ended, Extends: p.extends, Keeps: p.keeps, Adds: p.adds, Above: guess && p.keeps, Alone: guess && e.ifNoTicket})
	if err != nil && !definite(err) {
		e.open, e.doubted = append(e.open, old), true
	}
	return done && err == nil, err
}

// reread reads the record, and finds out what became of earlier attempts. If attempts are without an answer it
// does so for a short time even when the context has ended, but then nothing more is written.
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

// settled returns the result of an effort that ends with a read: err holds only if no earlier attempt can still
// land.
func (e *effort) settled(s *seen, err error) error {
	if slices.Contains(e.open, s.Record.Op) {
		return unknown(e.name, err)
	}
	return err
}

// failed returns the result of an effort that ends because the store did not answer.
func (e *effort) failed(err error) error {
	if len(e.open) > 0 {
		return unknown(e.name, err)
	}
	return err
}

// unknown returns an error that says that a write may have happened or may still happen. It keeps the text of
// its cause but not its kind: no caller must take it for a refusal.
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

// definite reports whether a write that failed like this certainly had no effect and never will. An error of
// any kind not listed here may hide an effect.
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

// pauseAfter returns how long to wait when another client was faster, after n earlier attempts that also lost.
// The pause doubles five times, and is random so that clients differ.
func pauseAfter(first time.Duration, n int) time.Duration {
	return backoff.Around(backoff.Doubled(first, first<<5, n), 2, rand.Uint64())
}
