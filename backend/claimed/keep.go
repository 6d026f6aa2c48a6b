package claimed

import (
	"context"
	"errors"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Renew implements [backend.Backend]. All leases that hold their names are renewed together. A place in line
// is one in this process, so the store is not asked about it.
func (b *Backend) Renew(ctx context.Context, leases []backend.Lease, report func(i int, r backend.Renewal)) error {
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	var held []*claim.Lease
	var places []int // of held in leases
	for i, l := range leases {
		r, lease := b.renewal(l)
		if lease == nil {
			report(i, r)
			continue
		}
		held, places = append(held, lease), append(places, i)
	}
	if len(held) == 0 {
		return nil
	}
	err = b.client.ExtendAll(ctx, held, func(i int, err error) {
		report(places[i], b.renewed(ctx, leases[places[i]].(*tenure), err))
	})
	return b.failed(ctx, err)
}

// renewal renews a place in line. Of what holds its name it returns the lease instead.
func (b *Backend) renewal(l backend.Lease) (backend.Renewal, *claim.Lease) {
	t, err := b.own(l)
	if err != nil {
		return backend.Renewal{Err: err}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.lapse(t, now)
	switch {
	case t.standing == over:
		return backend.Renewal{Err: t.lost()}, nil
	case t.standing == holding:
		return backend.Renewal{}, t.lease
	}
	// While an attempt is under way the place lasts no longer than the lease that it may get: that has been
	// counted from before the attempt, and the holder will believe the later of what it is told.
	if t.trying {
		now = t.tried
	}
	t.place = now.Add(b.placeLasts(t))
	return backend.Renewal{TTL: t.asked.TTL, Until: t.place}, nil
}

// renewed takes in what became of the renewal of a lease.
func (b *Backend) renewed(ctx context.Context, t *tenure, err error) backend.Renewal {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, backend.ErrLost) && !t.leaving { // a release that has failed is to be tried again
		b.end(t)
	}
	if err != nil {
		return backend.Renewal{Err: b.failed(ctx, err)}
	}
	return backend.Renewal{TTL: t.lease.TTL(), Until: t.until(b.clock.Now())}
}

// Release implements [backend.Backend]. A pin ends with the tenure. If others wait here for the name, the first of them claims it at once.
func (b *Backend) Release(ctx context.Context, l backend.Lease) error {
	t, err := b.own(l)
	if err != nil {
		return err
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	b.interrupt(t)
	if err := t.lock(ctx); err != nil {
		return b.ended(ctx)
	}
	defer t.unlock()
	lease, waits := b.toRelease(t)
	switch {
	case waits:
		// Others may have to wait for the same holder, and need not start counting over.
		_ = b.client.KeepObservation(ctx, t.asked.Name)
	case lease != nil:
		if err := b.client.ReleaseAndUnpin(ctx, lease); err != nil && !errors.Is(err, backend.ErrLost) {
			return b.failed(ctx, err)
		}
		b.released(t)
	}
	return nil
}

// interrupt ends the attempt that is under way for t, and lets no other begin.
func (b *Backend) interrupt(t *tenure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.leaving = true
	if t.interrupt != nil {
		t.interrupt()
	}
}

// toRelease returns the lease that t has, or may have. Who only waits leaves the line.
func (b *Backend) toRelease(t *tenure) (lease *claim.Lease, waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waits = t.standing == waiting && !t.trying
	if t.standing == over || waits || t.lease == nil {
		b.end(t)
		return nil, waits
	}
	return t.lease, false
}

// released takes in that the name has been given back.
func (b *Backend) released(t *tenure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(t)
	b.news++
	b.room.released(t.asked.Name)
	if q := b.lines[t.asked.Name]; q != nil {
		q.wakeFirst(b.clock.Now(), false)
	}
}
