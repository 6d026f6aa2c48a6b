package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// renewers is how many leases are prolonged at the same time if the store cannot renew many with one statement.
const renewers = 8

// Extend prolongs a lease to at least ttl from now; 0 means the granted TTL. It always writes, and never
// shortens an earlier promise. [backend.ErrLost] is for good; after any other error the old deadline stands.
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

// extendOne prolongs a lease. open has the ops that earlier unanswered writes would replace. A hedge reads the
// lease first, and accepts an earlier renewal that has succeeded.
func (c *Client) extendOne(ctx context.Context, l *Lease, ttl time.Duration, hedge bool, open []Op) error {
	known, err := l.lastKnown()
	if err != nil {
		return err
	}
	ctx = renewing(ctx)
	x := &extending{lease: l, ttl: ttl}
	e := c.hurried(l.name)
	e.decide, e.wrote, e.open, e.sending = x.decide, x.wrote, open, l.rememberSent
	if hedge {
		known, e.sent = nil, l.unanswered()
	}
	return e.run(ctx, known)
}

// checkOwn returns an error if this client has not made the lease.
func (c *Client) checkOwn(l *Lease) error {
	if l == nil || l.client != c {
		return fmt.Errorf("%w: the lease was made by another client: use the client that claimed it", backend.ErrInvalid)
	}
	return nil
}

// extending decides for one renewal.
type extending struct {
	lease *Lease
	ttl   time.Duration
	now   *clock.Instant // read just before; nil if the clocks have to be read
}

func (x *extending) decide(_ context.Context, s *seen) (*plan, error) {
	l := x.lease
	if err := l.checkHeld(s); err != nil {
		return nil, err
	}
	if r := &s.Record; r.Revoked != "" {
		return nil, l.lose("%s %s", l.name, r.refusal())
	}
	now := x.now
	if now == nil {
		at := l.client.Now()
		now = &at
	}
	return &plan{record: l.client.prolong(s, *now, x.ttl, l.Until()), extends: true}, nil
}

func (x *extending) wrote(r *Record) { x.lease.confirm(r, x.ttl, x.lease.client.Now()) }

// ExtendAll prolongs many leases by their granted TTLs, with one statement if the store is a [Batcher] and a
// [Gatherer]. It calls report once for each lease, on the caller's goroutine. It reports the certain results
// first. Then it reads and writes once more, again with one statement each, the leases that another client has
// changed meanwhile or whose answer is uncertain. So one lease in trouble does not delay the others. If ctx is
// one of [backend.Hedge], it first reads the records. Its error is that of the context, if that ended; all
// leases are reported nevertheless.
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

// extendSingly prolongs leases a few at a time. open is the result of extendTogether.
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
				l := leases[i]
				err := c.checkOwn(l)
				if err == nil {
					ops := slices.Clone(open[l.name]) // the effort changes the slice
					err = c.extendOne(ctx, l, l.TTL(), backend.IsHedge(ctx), ops)
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
