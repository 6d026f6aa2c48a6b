package claimed

import (
	"context"
	"errors"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Renew implements [backend.Backend]. It renews all leases that hold their names together. A place in a local
// queue exists only in this process, so Renew does not ask the store about it.
func (b *Backend) Renew(ctx context.Context, leases []backend.Lease, report func(i int, r backend.Renewal)) error {
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	var held []*claim.Lease
	var places []int // the index in leases of each of held
	for i, l := range leases {
		r, lease := b.renewPlace(l)
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
		report(places[i], b.afterRenewal(ctx, leases[places[i]].(*tenure), err))
	})
	return b.callError(ctx, err)
}

// renewPlace renews a place in a local queue. For a tenure that holds its name it returns the lease instead.
func (b *Backend) renewPlace(l backend.Lease) (backend.Renewal, *claim.Lease) {
	t, err := b.ownTenure(l)
	if err != nil {
		return backend.Renewal{Err: err}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.phase == holding {
		return backend.Renewal{}, t.lease
	}
	now := b.clock.Now()
	if b.expirePlace(t, now); t.phase == ended {
		return backend.Renewal{Err: t.lost()}, nil
	}
	// While an attempt is under way the place lasts no longer than the lease that it may get. That lease counts
	// from before the attempt, and the holder will believe the later of the two deadlines.
	if t.inDoubt {
		now = t.triedAt
	}
	t.placeEnds = now.Add(b.placeDuration(t))
	return backend.Renewal{TTL: t.request.TTL, Until: t.placeEnds}, nil
}

// afterRenewal takes in the result of the renewal of a lease.
func (b *Backend) afterRenewal(ctx context.Context, t *tenure, err error) backend.Renewal {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, backend.ErrLost) && !t.leaving { // otherwise a release has failed, and will be tried again
		b.endTenure(t)
	}
	if err != nil {
		return backend.Renewal{Err: b.callError(ctx, err)}
	}
	return backend.Renewal{TTL: t.lease.TTL(), Until: t.until(b.clock.Now())}
}

// Release implements [backend.Backend]. Pins end with the tenure. If callers wait here for the name, the first
// of them claims it at once.
func (b *Backend) Release(ctx context.Context, l backend.Lease) error {
	t, err := b.ownTenure(l)
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
		return b.contextErr(ctx)
	}
	defer t.unlock()
	lease, waits := b.toRelease(t)
	switch {
	case waits:
		// Others may have to wait for the same holder, and need not restart the count.
		_ = b.client.KeepObservation(ctx, t.request.Name)
	case lease != nil:
		if err := b.client.ReleaseAndUnpin(ctx, lease); err != nil && !errors.Is(err, backend.ErrLost) {
			return b.callError(ctx, err)
		}
		b.afterRelease(t)
	}
	return nil
}

// interrupt ends the attempt that is under way for t, and prevents another.
func (b *Backend) interrupt(t *tenure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.leaving = true
	if t.interrupt != nil {
		t.interrupt()
	}
}

// toRelease returns the lease that t has, or may have. A tenure that only waits leaves the local queue.
func (b *Backend) toRelease(t *tenure) (lease *claim.Lease, waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waits = t.phase == waiting && !t.inDoubt
	if t.phase == ended || waits || t.lease == nil {
		b.endTenure(t)
		return nil, waits
	}
	return t.lease, false
}

// afterRelease takes in that the name was released.
func (b *Backend) afterRelease(t *tenure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(t, false)
}

// leave ends a tenure, and lets the first of those who wait here look at the name. held says that it is held on, so that
// its turn has not come. The caller holds the lock.
func (b *Backend) leave(t *tenure, held bool) {
	b.endTenure(t)
	b.news++
	if !held {
		b.storeQueue.releasedHere(t.request.Name)
	}
	if q := b.localQueues[t.request.Name]; q != nil {
		q.wakeHead(b.clock.Now(), false)
	}
}
