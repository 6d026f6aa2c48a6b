package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// renewal is the state of one lease among many that are prolonged together.
type renewal struct {
	place int // index in the caller's slice
	lease *Lease
	known *seen // nil if it has to be read
	sent  []*Record
	open  []Op // that unanswered writes of this call would replace
	plan  *plan
}

// batchRenewal prolongs many leases with few statements.
type batchRenewal struct {
	client     *Client
	batcher    Batcher
	gatherer   Gatherer
	report     func(int, error)
	hedge      bool
	began      clock.Instant
	todo       []*renewal      // renewals that are not reported yet
	unanswered map[string][]Op // by name, of those that failed: the ops that unanswered writes would replace
}

// extendTogether prolongs leases with as few statements as it can, and reports on them. Of two handles of one
// tenure it leaves the second to the caller, because its write would conflict with the first: singly has the
// indexes of these. Where a write may still land, open has the op that it would replace, by name.
func (c *Client) extendTogether(ctx context.Context, b Batcher, g Gatherer, leases []*Lease, report func(int, error)) (singly []int, open map[string][]Op) {
	t := &batchRenewal{client: c, batcher: b, gatherer: g, report: report, hedge: backend.IsHedge(ctx), began: c.Now(), unanswered: make(map[string][]Op)}
	names := make(map[string]bool, len(leases))
	for i, l := range leases {
		r := &renewal{place: i, lease: l}
		if err := t.begin(r); err != nil {
			report(i, err)
			continue
		}
		if names[l.name] {
			singly = append(singly, i)
			continue
		}
		names[l.name] = true
		t.todo = append(t.todo, r)
	}
	t.run(ctx)
	return singly, t.unanswered
}

// begin takes the last known record of a lease. A hedge reads it instead: the earlier attempt may have
// succeeded.
func (t *batchRenewal) begin(r *renewal) (err error) {
	if err := t.client.checkOwn(r.lease); err != nil {
		return err
	}
	r.known, err = r.lease.lastKnown()
	if t.hedge {
		r.known = nil
	}
	return err
}

// run reads, decides and writes until all are reported. It writes as often as other renewals are tried.
func (t *batchRenewal) run(ctx context.Context) {
	most := 4 * t.client.opts.Attempts
	for n := 0; len(t.todo) > 0; n++ {
		if err := t.read(ctx); err != nil {
			t.fail(err)
			return
		}
		t.decide(ctx)
		switch {
		case len(t.todo) == 0:
			return
		case ctx.Err() != nil: // send nothing more
			t.fail(ctx.Err())
			return
		case n == most:
			t.fail(fmt.Errorf("%w: the renewals were tried %d times, and each time another client was faster or no answer came", backend.ErrContention, most))
			return
		}
		if err := t.write(ctx); err != nil && definite(err) {
			t.fail(err)
			return
		}
		if len(t.todo) > 0 {
			_ = t.client.opts.Pause(ctx, pauseAfter(time.Millisecond, n)) // the read notices that a context has ended
		}
	}
}

// fail reports err for all that are left. A write without an answer may still land.
func (t *batchRenewal) fail(err error) {
	for _, r := range t.todo {
		if len(r.open) > 0 {
			t.unanswered[r.lease.name] = r.open
			t.report(r.place, unknown(r.lease.name, err))
		} else {
			t.report(r.place, err)
		}
	}
	t.todo = nil
}

// keepIf keeps in todo the renewals for which still returns true.
func (t *batchRenewal) keepIf(still func(r *renewal) bool) {
	t.todo = slices.DeleteFunc(t.todo, func(r *renewal) bool { return !still(r) })
}

// read reads the records whose state is unknown. It reports those that show an own renewal.
func (t *batchRenewal) read(ctx context.Context) error {
	var names []string
	for _, r := range t.todo {
		if r.known == nil {
			names = append(names, r.lease.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	found, err := t.gatherer.GetAll(ctx, names)
	if err != nil {
		return err
	}
	if len(found) != len(names) {
		panic(fmt.Sprintf("claim: the store was asked for %d records and returned %d", len(names), len(found)))
	}
	at := t.client.Now()
	t.keepIf(func(r *renewal) bool {
		if r.known != nil {
			return true
		}
		f := found[0]
		found = found[1:]
		return t.applyRead(r, &seen{Found: f, at: at})
	})
	return nil
}

// applyRead takes in the record that was read for one lease. It returns false if it has reported the lease.
func (t *batchRenewal) applyRead(r *renewal, s *seen) bool {
	if s.Err != nil {
		err := s.Err
		if len(r.open) > 0 {
			err = unknown(r.lease.name, err)
		}
		t.report(r.place, err)
		return false
	}
	r.open = slices.DeleteFunc(r.open, func(op Op) bool { return op != s.Record.Op })
	if t.renewed(r, s) {
		r.lease.confirm(&s.Record, r.lease.TTL(), s.at)
		t.report(r.place, nil)
		return false
	}
	r.known = s
	return true
}

// renewed reports whether a record shows that the lease was renewed, by this call or, since it began, by
// another one. A hedge accepts an earlier renewal that is not confirmed yet; other calls need the TTL from now.
func (t *batchRenewal) renewed(r *renewal, s *seen) bool {
	sent := r.sent
	if t.hedge {
		sent = append(r.lease.unanswered(), sent...)
	}
	if slices.ContainsFunc(sent, func(w *Record) bool { return w.Op == s.Record.Op }) {
		return true
	}
	w := &s.Record
	return r.lease.matches(w) && w.Revoked == "" && w.Domain == t.client.domain && w.TTL >= r.lease.TTL() && notBefore(w.Written, t.began)
}

// decide plans a write for each, and reports those that cannot be prolonged.
func (t *batchRenewal) decide(ctx context.Context) {
	now := t.client.Now() // for all: to read the clocks takes as long as to decide
	t.keepIf(func(r *renewal) bool {
		p, err := (&extending{r.lease, r.lease.TTL(), &now}).decide(ctx, r.known)
		if err != nil {
			if slices.Contains(r.open, r.known.Record.Op) {
				err = unknown(r.lease.name, err)
			}
			t.report(r.place, err)
			return false
		}
		r.plan = p
		return true
	})
}

// write sends one statement, and reports what is certain after it.
func (t *batchRenewal) write(ctx context.Context) error {
	swaps := make([]Swap, len(t.todo))
	for i, r := range t.todo {
		r.plan.record.Op = NewOp()
		r.sent = append(r.sent, &r.plan.record)
		r.lease.rememberSent(&r.plan.record)
		swaps[i] = Swap{Old: r.known.Record.Op, Record: r.plan.record, Extends: r.plan.extends}
	}
	done, err := t.batcher.SwapAll(ctx, swaps)
	if definite(err) {
		return err
	}
	i, now := 0, t.client.Now()
	t.keepIf(func(r *renewal) bool {
		written := err == nil && i < len(done) && done[i]
		i++
		switch {
		case written:
			r.lease.confirm(&r.plan.record, r.lease.TTL(), now)
			t.report(r.place, nil)
			return false
		case err != nil:
			r.open = append(r.open, r.known.Record.Op)
		}
		r.known = nil
		return true
	})
	return err
}

// notBefore reports whether neither clock shows that a came before b.
func notBefore(a, b clock.Instant) bool { return a.Raw >= b.Raw && a.Boot >= b.Boot }
