package migratelease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/leasekeeper/leasekeeper"
)

// Driver is a driver of a database whose lock is a lease. It is made for one [migrate.Migrate].
//
// [migrate.Migrate]: https://pkg.go.dev/github.com/golang-migrate/migrate/v4#Migrate
type Driver struct {
	inner   database.Driver
	ctx     context.Context // ends the wait for the lease, and after its end no migration begins
	keeper  *leasekeeper.Keeper
	name    string
	options []leasekeeper.Option
	close   func() error // closes what Open made besides inner; nil after New

	busy chan struct{} // capacity 1: one element during a call of inner under the lease, or while Unlock or Close release the name
	turn chan struct{} // capacity 1: one element from the claim of a Lock until its name is released

	mu      sync.Mutex
	closed  bool
	waiting *wait   // the newest Lock that waits; nil if none does
	tenure  *tenure // nil while the name is not held
}

var _ database.Driver = (*Driver)(nil)

// wait is a Lock that waits.
type wait struct {
	context context.Context
	end     context.CancelCauseFunc
}

// tenure is the time from a Lock to its Unlock.
type tenure struct {
	lease    *leasekeeper.Lease
	context  context.Context // of the lease: ends with a loss, and when the keeper is closed
	unlocked chan struct{}   // closed when the name may be released
	released chan error      // capacity 1: what [leasekeeper.Keeper.Run] returned
	unused   *time.Timer     // releases the name unless a call follows the Lock
	used     bool            // a call has followed; guarded by the driver's mu
}

// abandonAfter is how long a lock is held before the first call of the driver follows. Migrate makes that call at once.
const abandonAfter = 5 * time.Second

var (
	errAbandoned = fmt.Errorf("migratelease: %w: a later Lock of this driver has ended the wait", database.ErrLocked)
	errClosed    = fmt.Errorf("migratelease: the driver is %w", leasekeeper.ErrClosed)
)

// New returns a driver that migrates with inner while it holds the lease on a name. All processes that migrate one database
// use the same name on the same store. The options are those of [leasekeeper.Keeper.Run].
//
// When ctx ends, a Lock that waits returns, and no further migration begins. One that runs is finished.
//
// inner has been opened already, and may have used its own lock for that. For PostgreSQL behind a pooler use [Open].
func New(ctx context.Context, keeper *leasekeeper.Keeper, name string, inner database.Driver, options ...leasekeeper.Option) *Driver {
	return &Driver{
		inner: inner, ctx: ctx, keeper: keeper, name: name, options: slices.Clone(options),
		busy: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
}

// Open opens a URL with the wrapped driver, and returns a driver with the same lease on that.
func (d *Driver) Open(url string) (database.Driver, error) {
	inner, err := d.inner.Open(url)
	if err != nil {
		return nil, err
	}
	return New(d.ctx, d.keeper, d.name, inner, d.options...), nil
}

// Close closes the wrapped driver. A Lock that waits returns. If the name is held, Close waits for the call that runs, and
// releases the name. It does not close the keeper.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	if d.waiting != nil {
		d.waiting.end(errClosed)
	}
	d.mu.Unlock()
	err := d.inner.Close()
	if d.close != nil {
		err = errors.Join(err, d.close())
	}
	d.busy <- struct{}{}
	defer func() { <-d.busy }()
	if t := d.take(nil); t != nil {
		err = errors.Join(err, d.release(t))
	}
	return err
}

// Lock waits until it holds the name. Migrate calls it, and waits for no longer than its LockTimeout. With
// [leasekeeper.NoWait] it returns a [*leasekeeper.HeldError] at once if the name is held.
func (d *Driver) Lock() error {
	w, err := d.beginLock()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(d.ctx, func() { w.end(context.Cause(d.ctx)) })
	defer stop() // from then on the end of d.ctx does not end the lease's context
	select {
	case d.turn <- struct{}{}:
	case <-w.context.Done():
		return d.endLock(w, context.Cause(w.context))
	}
	t := &tenure{unlocked: make(chan struct{}), released: make(chan error, 1)}
	held := make(chan struct{})
	go func() {
		defer w.end(nil)
		t.released <- d.keeper.Run(w.context, d.name, func(ctx context.Context, l *leasekeeper.Lease) error {
			t.lease, t.context = l, ctx
			close(held)
			<-t.unlocked
			return nil
		}, d.options...)
	}()
	select {
	case <-held:
		return d.locked(w, t)
	case err := <-t.released:
		<-d.turn
		return d.endLock(w, err)
	}
}

// beginLock begins a Lock, and ends the wait of an earlier one.
func (d *Driver) beginLock() (*wait, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, errClosed
	case d.tenure != nil:
		return nil, fmt.Errorf("migratelease: %s: %w", d.name, database.ErrLocked)
	}
	if d.waiting != nil {
		d.waiting.end(errAbandoned)
	}
	w := new(wait)
	w.context, w.end = context.WithCancelCause(context.WithoutCancel(d.ctx))
	d.waiting = w
	return w, nil
}

// endLock ends a Lock that has failed with err, and returns its error. If its wait was ended, the error says why.
func (d *Driver) endLock(w *wait, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == w {
		d.waiting = nil
	}
	if cause := context.Cause(w.context); cause == errAbandoned || cause == errClosed {
		return cause
	}
	return err
}

// locked records that a Lock holds the name, unless its wait has just ended.
func (d *Driver) locked(w *wait, t *tenure) error {
	d.mu.Lock()
	if err := w.context.Err(); err != nil {
		d.mu.Unlock()
		_ = d.release(t)
		return d.endLock(w, err)
	}
	d.waiting, d.tenure = nil, t
	t.unused = time.AfterFunc(abandonAfter, func() {
		if d.take(func() bool { return d.tenure == t && !t.used }) != nil {
			_ = d.release(t)
		}
	})
	d.mu.Unlock()
	return nil
}

// take ends the driver's tenure if a condition holds, and returns it. The caller releases it. The condition runs under
// the driver's lock; nil always holds.
func (d *Driver) take(condition func() bool) *tenure {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tenure
	if t == nil || condition != nil && !condition() {
		return nil
	}
	d.tenure = nil
	t.unused.Stop()
	return t
}

// release releases the name, and returns the loss if the lease was lost. A release that the store does not confirm in
// time is no error of a migration: the keeper goes on trying, and the lease ends after its TTL.
func (d *Driver) release(t *tenure) error {
	close(t.unlocked)
	err := <-t.released
	<-d.turn
	if errors.Is(err, leasekeeper.ErrUnknownOutcome) && !errors.Is(err, leasekeeper.ErrLost) {
		return nil
	}
	return err
}

// Unlock releases the name. If the lease was lost, the error is an [leasekeeper.ErrLost]. Migrate then stays locked: make a
// new one.
func (d *Driver) Unlock() error {
	d.busy <- struct{}{}
	defer func() { <-d.busy }()
	t := d.take(nil)
	if t == nil {
		return fmt.Errorf("migratelease: %s: %w", d.name, database.ErrNotLocked)
	}
	return d.release(t)
}

// Run applies a migration, if the lease is held.
func (d *Driver) Run(migration io.Reader) error {
	return d.call(goOn, func() error { return d.inner.Run(migration) })
}

// SetVersion writes the version, if the lease is held. With dirty it begins a migration, which it does not do once the
// driver's context has ended.
func (d *Driver) SetVersion(version int, dirty bool) error {
	if dirty {
		return d.call(begin, func() error { return d.inner.SetVersion(version, true) })
	}
	err := d.call(goOn, func() error { return d.inner.SetVersion(version, false) })
	if errors.Is(err, leasekeeper.ErrLost) {
		err = fmt.Errorf("migratelease: version %d may not be marked clean: find out whether its migration is complete, then force a version: %w", version, err)
	}
	return err
}

// Version returns the version. It needs no lease.
func (d *Driver) Version() (version int, dirty bool, err error) {
	d.use()
	return d.inner.Version()
}

// Drop deletes everything in the database, if the lease is held. If the lease is kept there, Drop deletes it too.
func (d *Driver) Drop() error { return d.call(begin, d.inner.Drop) }

// step is what a call of the driver does to a migration.
type step uint8

const (
	begin step = iota // it begins one
	goOn              // it goes on with one, or ends it
)

// call makes a call of the wrapped driver that needs the lease. If the lease is lost meanwhile, it joins the loss to an
// error of the call.
func (d *Driver) call(s step, do func() error) error {
	d.busy <- struct{}{}
	defer func() { <-d.busy }()
	t := d.use()
	if t == nil {
		return fmt.Errorf("migratelease: %s: %w: the driver was closed, or Migrate did not use its lock within %v", d.name, database.ErrNotLocked, abandonAfter)
	}
	if err := t.lease.Check(); err != nil {
		return err
	}
	if s == begin {
		for _, ctx := range []context.Context{d.ctx, t.context} {
			if ctx.Err() != nil {
				return fmt.Errorf("migratelease: no further migration begins: %w", context.Cause(ctx))
			}
		}
	}
	err := do()
	if loss := t.lease.Check(); err != nil && loss != nil {
		return errors.Join(loss, err)
	}
	return err
}

// use records that a call follows the lock, and returns the tenure; nil if the name is not held.
func (d *Driver) use() *tenure {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tenure != nil {
		d.tenure.used = true
	}
	return d.tenure
}

// Lease returns the lease that is held, or nil.
func (d *Driver) Lease() *leasekeeper.Lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tenure == nil {
		return nil
	}
	return d.tenure.lease
}
