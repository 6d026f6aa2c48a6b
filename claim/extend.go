package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// renewers is how many leases are prolonged at once where the store cannot do many with one statement.
const renewers = 8

// Extend prolongs a lease to at least ttl from now; 0 stands for what was granted. It always writes, and never
// shortens what was promised. [backend.ErrLost] is for good; after any other error the old deadline stands.
func (c *Client) Extend(ctx context.Context, l *Lease, ttl time.Duration) error {
	if err := c.checkOwn(l); err != nil {
		return err
	}
	if ttl == 0 {
		ttl = l.TTL()
	} else if err := checkTTL(ttl); err != nil {
		return err
	}
	err := c.extendOne(ctx, l, ttl, false, nil)
	if err == nil {
		c.acknowledge(ctx)
	}
	return err
}

// extend prolongs a lease. open has the ops that earlier writes without an answer would replace. A hedge reads the lease
// first, and is content with an earlier renewal that has succeeded.
func (c *Client) extendOne(ctx context.Context, l *Lease, ttl time.Duration, hedge bool, open []Op) error {
	known, err := l.lastKnown()
	if err != nil {
		return err
	}
	ctx = renewing(ctx)
	x := &extending{l, ttl}
	e := c.hurried(l.name)
	e.decide, e.wrote, e.open, e.sending = x.decide, x.wrote, open, l.rememberSent
	if hedge {
		known, e.sent = nil, l.unanswered()
	}
	return e.run(ctx, known)
}

// own returns an error if a lease is none that this client has made.
func (c *Client) checkOwn(l *Lease) error {
	if l == nil || l.client != c {
		return fmt.Errorf("%w: a lease of another client", backend.ErrInvalid)
	}
	return nil
}

// extending decides for a renewal.
type extending struct {
	lease *Lease
	ttl   time.Duration
}

func (x *extending) decide(_ context.Context, s *seen) (*plan, error) {
	l := x.lease
	if err := l.checkHeld(s); err != nil {
		return nil, err
	}
	if r := &s.Record; r.Revoked != "" {
		return nil, l.lose("%s was revoked: %s", l.name, r.Revoked)
	}
	return &plan{record: l.client.prolong(s, x.ttl, l.Until()), extends: true}, nil
}

func (x *extending) wrote(r *Record) { x.lease.confirm(r, x.ttl) }

// ExtendAll prolongs many leases by what they were granted, with one statement if the store is a [Batcher] and a
// [Gatherer], and reports for each once, on the goroutine of its caller. What others have changed meanwhile, or what
// has no certain answer, is read and written once more, again with one statement each, after the rest was reported:
// one in trouble does not hold up the others. If ctx is one of [backend.Hedge], it first reads what there is.
// The error is that of the context, if it ended; all are reported nevertheless.
func (c *Client) ExtendAll(ctx context.Context, leases []*Lease, report func(i int, err error)) error {
	ctx = renewing(ctx)
	var singly []int
	var open map[string][]Op
	batcher, many := c.store.(Batcher)
	gatherer, both := c.store.(Gatherer)
	if many && both && len(leases) > 1 {
		singly, open = c.extendTogether(ctx, batcher, gatherer, leases, report)
	} else {
		for i := range leases {
			singly = append(singly, i)
		}
	}
	c.extendSingly(ctx, leases, singly, open, report)
	c.acknowledge(ctx)
	return ctx.Err()
}

// extendSingly prolongs leases a few at a time. open is what extendTogether has left open.
func (c *Client) extendSingly(ctx context.Context, leases []*Lease, places []int, open map[string][]Op, report func(int, error)) {
	type answer struct {
		place int
		err   error
	}
	todo, answers := make(chan int), make(chan answer)
	var all sync.WaitGroup
	for range min(renewers, len(places)) {
		all.Go(func() {
			for i := range todo {
				err := c.checkOwn(leases[i])
				if err == nil {
					err = c.extendOne(ctx, leases[i], leases[i].TTL(), backend.IsHedge(ctx), slices.Clone(open[leases[i].name])) // it is worked off
				}
				answers <- answer{i, err}
			}
		})
	}
	all.Go(func() {
		defer close(todo)
		for _, i := range places {
			todo <- i
		}
	})
	for range places {
		a := <-answers
		report(a.place, a.err)
	}
	all.Wait()
}
