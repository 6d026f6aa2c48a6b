package gooselease

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/leasekeeper/leasekeeper"
)

// Locker is a migration lock for [goose.WithLocker]: a lease on one name. All processes that migrate one database use the
// same name on the same store. It is safe for concurrent use, and any number of providers can share it.
//
// [goose.WithLocker]: https://pkg.go.dev/github.com/pressly/goose/v3#WithLocker
type Locker struct {
	keeper  *leasekeeper.Keeper
	name    string
	options []leasekeeper.Option
}

var (
	_ lock.Locker        = (*Locker)(nil)
	_ lock.SessionLocker = (*Locker)(nil)
)

// NewLocker returns a Locker for the lease on a name. The options are those of [leasekeeper.Keeper.Run]. With
// [leasekeeper.NoWait], a provider fails with a [*leasekeeper.HeldError] if another one migrates.
func NewLocker(keeper *leasekeeper.Keeper, name string, options ...leasekeeper.Option) *Locker {
	return &Locker{keeper: keeper, name: name, options: slices.Clone(options)}
}

// run is one call of [Locker.Run].
type run struct {
	cancel context.CancelCauseFunc // of the context that Run passed to its function

	mu      sync.Mutex
	locking bool    // a Lock waits, or holds the name
	tenure  *tenure // nil while the name is not held
	lost    error   // the first loss of a lease in this run; nil if there was none
	over    bool    // the function has returned
}

// tenure is the time from a Lock to its Unlock.
type tenure struct {
	lease    *leasekeeper.Lease
	unlocked chan struct{} // closed when the name may be released
	released chan error    // capacity 1: what [leasekeeper.Keeper.Run] returned
}

// runOf is the key of a run in a context.
type runOf struct{ *Locker }

// errOutside is the error of a lock whose context could not end with the lease.
var errOutside = fmt.Errorf("gooselease: %w: this context does not come from Locker.Run: pass the one that Run passes to its function", leasekeeper.ErrInvalid)

// Run calls migrate with a context for the provider that has this Locker, such as in
//
//	err := locker.Run(ctx, func(ctx context.Context) error {
//		_, err := provider.Up(ctx)
//		return err
//	})
//
// The context ends when a lease that the provider holds is lost; [context.Cause] then returns an [leasekeeper.ErrLost]. It
// also ends with ctx and when the keeper is closed. Run itself does not claim the name: the provider does, each time that
// it needs its lock.
//
// Run returns what migrate returned. If a lease was lost, Run joins the loss.
func (l *Locker) Run(ctx context.Context, migrate func(ctx context.Context) error) error {
	r := new(run)
	ctx, r.cancel = context.WithCancelCause(context.WithValue(ctx, runOf{l}, r))
	defer r.cancel(context.Canceled)
	defer r.end() // also after a panic
	err := migrate(ctx)
	if lost := r.end(); lost != nil && !errors.Is(err, leasekeeper.ErrLost) {
		err = errors.Join(lost, err)
	}
	return err
}

// end releases what a provider left locked, and returns the first loss.
func (r *run) end() error {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	_ = r.unlock() // which keeps the loss
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// Lease returns the lease that a provider holds with this Locker in a migration with this context, or nil. A Go migration
// uses it to send the token with its writes, or to pass a gate such as [Locker.Gated] passes by itself.
func (l *Locker) Lease(ctx context.Context) *leasekeeper.Lease {
	r, ok := ctx.Value(runOf{l}).(*run)
	if !ok {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tenure == nil {
		return nil
	}
	return r.tenure.lease
}

// Lock waits until it holds the name. goose calls it; the database is not used. It refuses a context that does not come
// from [Locker.Run], and a second lock within one Run before the first was unlocked.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	r, ok := ctx.Value(runOf{l}).(*run)
	if !ok {
		return errOutside
	}
	if !r.begin() {
		return fmt.Errorf("gooselease: %w: this Run has locked %s already, or has returned", leasekeeper.ErrInvalid, l.name)
	}
	t := &tenure{unlocked: make(chan struct{}), released: make(chan error, 1)}
	held := make(chan *leasekeeper.Lease, 1)
	go func() {
		t.released <- l.keeper.Run(ctx, l.name, func(ctx context.Context, lease *leasekeeper.Lease) error {
			stop := context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })
			defer stop()
			held <- lease
			<-t.unlocked
			return nil
		}, l.options...)
	}()
	select {
	case t.lease = <-held:
		return r.locked(t)
	case err := <-t.released:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.locking = false
		return err
	}
}

// begin reports whether a Lock may begin.
func (r *run) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locking || r.over {
		return false
	}
	r.locking = true
	return true
}

// locked records that a Lock holds the name. If the run's function has returned meanwhile, it releases the name.
func (r *run) locked(t *tenure) error {
	r.mu.Lock()
	r.tenure = t
	over := r.over
	r.mu.Unlock()
	if over {
		_ = r.unlock()
		return fmt.Errorf("gooselease: %w: Run has returned", leasekeeper.ErrInvalid)
	}
	return nil
}

// Unlock releases the name. goose calls it. An error is an [leasekeeper.ErrLost]: another process may have migrated since
// the loss. A release that the store does not confirm in time is no error of the migration: the keeper goes on trying, and
// logs it, and the lease ends after its TTL.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	r, ok := ctx.Value(runOf{l}).(*run)
	if !ok {
		return errOutside
	}
	return r.unlock()
}

// unlock releases the name if it is held, and returns the loss if the lease was lost.
func (r *run) unlock() error {
	r.mu.Lock()
	t := r.tenure
	r.tenure = nil
	r.mu.Unlock()
	if t == nil {
		return nil
	}
	close(t.unlocked)
	err := <-t.released
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locking = false
	if errors.Is(err, leasekeeper.ErrUnknownOutcome) && !errors.Is(err, leasekeeper.ErrLost) {
		return nil
	}
	if r.lost == nil {
		r.lost = err
	}
	return err
}

// SessionLock is [Locker.Lock] for [goose.WithSessionLocker]. The connection is not used, so it can lead through a pooler.
//
// [goose.WithSessionLocker]: https://pkg.go.dev/github.com/pressly/goose/v3#WithSessionLocker
func (l *Locker) SessionLock(ctx context.Context, _ *sql.Conn) error { return l.Lock(ctx, nil) }

// SessionUnlock is [Locker.Unlock] for [goose.WithSessionLocker].
//
// [goose.WithSessionLocker]: https://pkg.go.dev/github.com/pressly/goose/v3#WithSessionLocker
func (l *Locker) SessionUnlock(ctx context.Context, _ *sql.Conn) error { return l.Unlock(ctx, nil) }
