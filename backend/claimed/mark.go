package claimed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Mark implements [backend.Marker].
func (b *Backend) Mark(ctx context.Context, name string) (m backend.Mark, err error) {
	err = b.changeName(ctx, name, func(ctx context.Context) error {
		m, err = b.client.Mark(ctx, name)
		return err
	})
	return m, err
}

// RaiseMark implements [backend.Marker].
func (b *Backend) RaiseMark(ctx context.Context, l backend.Lease, t backend.Tick) error {
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	lease, err := b.heldLease(l)
	if err != nil {
		return err
	}
	return b.callError(ctx, b.client.RaiseMark(ctx, lease, t))
}

// ReplaceMark implements [backend.Marker].
func (b *Backend) ReplaceMark(ctx context.Context, name string, old, replacement backend.Mark) (done bool, err error) {
	err = b.changeName(ctx, name, func(ctx context.Context) error {
		done, err = b.client.ReplaceMark(ctx, name, old, replacement)
		return err
	})
	return done, err
}

// CheckHold implements [backend.Finisher]. The TTL makes no difference.
func (b *Backend) CheckHold(_, d time.Duration) error {
	if err := b.client.CheckFinish(backend.Finish{Hold: d}); err != nil {
		return fmt.Errorf("%s: %w", b.Scheme(), err)
	}
	return nil
}

// Finish implements [backend.Finisher]. Pins end with the tenure. A process on another machine that sees the name for the
// first time while it is held on waits for f.Hold from then, and a little more.
func (b *Backend) Finish(ctx context.Context, l backend.Lease, f backend.Finish) error {
	t, err := b.ownTenure(l)
	if err != nil {
		return err
	}
	f.Hold = roundUp(f.Hold)
	if err := b.client.CheckFinish(f); err != nil {
		return err
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	lease, finished, err := b.toFinish(t)
	if finished || err != nil {
		return err
	}
	if err := t.lock(ctx); err != nil {
		return b.contextErr(ctx)
	}
	defer t.unlock()
	err = b.client.Finish(ctx, lease, f)
	if err == nil || errors.Is(err, backend.ErrLost) {
		b.afterFinish(t, err == nil, f.Hold > 0)
	}
	return b.callError(ctx, err)
}

// toFinish returns the lease of a tenure that holds its name, or that Finish has ended it already. The tenure then
// attempts nothing more.
func (b *Backend) toFinish(t *tenure) (lease *claim.Lease, finished bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case t.finished:
		return nil, true, nil
	case t.phase != holding:
		return nil, false, t.lost()
	}
	t.leaving = true
	return t.lease, false, nil
}

// afterFinish takes in that a tenure has ended. held says that its name is still held on.
func (b *Backend) afterFinish(t *tenure, finished, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.finished = finished
	b.leave(t, held)
}
