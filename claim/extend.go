package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/driver"
)

// renewers is how many leases are prolonged at once where the store can not do many with one statement.
const renewers = 8

// Extend prolongs a lease to at least ttl from now; 0 stands for what was granted. It always writes, and never
// shortens what was promised. [driver.ErrLost] is for good; after any other error the old deadline stands.
func (c *Client) Extend(ctx context.Context, l *Lease, ttl time.Duration) error {
	if err := c.own(l); err != nil {
		return err
	}
	if ttl == 0 {
		ttl = l.TTL()
	} else if err := checkTTL(ttl); err != nil {
		return err
	}
	err := c.extend(ctx, l, ttl, nil)
	if err == nil {
		c.acknowledge(ctx)
	}
	return err
}

// extend prolongs a lease. open has the ops that earlier writes without an answer would replace.
func (c *Client) extend(ctx context.Context, l *Lease, ttl time.Duration, open []Op) error {
	known, err := l.begin()
	if err != nil {
		return err
	}
	x := &extending{l, ttl}
	e := c.hurried(l.name)
	e.decide, e.wrote, e.open = x.decide, x.wrote, open
	return e.run(ctx, known)
}

// own returns an error if a lease is none that this client has made.
func (c *Client) own(l *Lease) error {
	if l == nil || l.client != c {
		return fmt.Errorf("%w: a lease of another client", driver.ErrInvalid)
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
	if err := l.mine(s); err != nil {
		return nil, err
	}
	if r := &s.Record; r.Revoked != "" {
		return nil, l.lose("%s was revoked: %s", l.name, r.Revoked)
	}
	return &plan{record: l.client.prolong(s, x.ttl, l.Until()), extends: true}, nil
}

func (x *extending) wrote(r *Record) { x.lease.confirm(r, x.ttl) }

// ExtendAll prolongs many leases by what they were granted, with one statement if the store is a [Batcher],
// and reports for each once, on the goroutine of its caller. What others have changed meanwhile, or what has
// no certain answer, is done singly after the rest was reported: one in trouble does not hold up the others.
// The error is that of the context, if it ended; all are reported nevertheless.
func (c *Client) ExtendAll(ctx context.Context, leases []*Lease, report func(i int, err error)) error {
	var singly []int
	var open map[string][]Op
	if batcher, ok := c.store.(Batcher); ok && len(leases) > 1 {
		singly, open = c.extendTogether(ctx, batcher, leases, report)
	} else {
		for i := range leases {
			singly = append(singly, i)
		}
	}
	c.extendSingly(ctx, leases, singly, open, report)
	c.acknowledge(ctx)
	return ctx.Err()
}

// extendTogether sends one statement for all leases of which it is known what to write, reports what is
// certain after it, and returns the places of the others. If it may yet land, the ops that it would replace are
// returned by name.
func (c *Client) extendTogether(ctx context.Context, b Batcher, leases []*Lease, report func(int, error)) (singly []int, open map[string][]Op) {
	var swaps []Swap
	var places []int
	names := make(map[string]bool, len(leases))
	for i, l := range leases {
		p, known, err := c.prepare(ctx, l)
		switch {
		case err != nil:
			report(i, err)
			continue
		case names[l.name]: // two handles of one tenancy: their writes would be each other's conflict
			singly = append(singly, i)
			continue
		}
		names[l.name] = true
		swaps, places = append(swaps, Swap{Old: known.Record.Op, Record: p.record, Extends: p.extends}), append(places, i)
	}
	if len(swaps) == 0 {
		return singly, nil
	}
	open = make(map[string][]Op)
	done, err := b.SwapAll(ctx, swaps)
	for k, i := range places {
		switch {
		case err == nil && k < len(done) && done[k]:
			leases[i].confirm(&swaps[k].Record, leases[i].TTL())
			report(i, nil)
		case definite(err):
			report(i, err)
		case err != nil:
			open[leases[i].name] = []Op{swaps[k].Old}
			singly = append(singly, i)
		default:
			singly = append(singly, i)
		}
	}
	return singly, open
}

// prepare decides how to prolong one lease of many.
func (c *Client) prepare(ctx context.Context, l *Lease) (*plan, *seen, error) {
	if err := c.own(l); err != nil {
		return nil, nil, err
	}
	known, err := l.begin()
	if err != nil {
		return nil, nil, err
	}
	p, err := (&extending{l, l.TTL()}).decide(ctx, known)
	if err != nil {
		return nil, nil, err
	}
	p.record.Op = NewOp()
	return p, known, nil
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
				err := c.own(leases[i])
				if err == nil {
					err = c.extend(ctx, leases[i], leases[i].TTL(), slices.Clone(open[leases[i].name])) // it is worked off
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
