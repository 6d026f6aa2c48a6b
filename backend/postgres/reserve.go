package postgres

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// reserved is the number of connections for renewals alone: one, and one for a hedge while the first is stuck.
const reserved = 2

// reserve has the connections for renewals alone, so that no lease is lost when the program has exhausted its own. They
// are opened with the settings of the program's connections, and the hooks of its pool, from the first renewal on.
type reserve struct {
	settings  *pgxpool.Config
	slots     chan struct{} // a semaphore for reserved connections
	poolSlots poolSlots     // for renewals that use the program's connections

	mu     sync.Mutex
	pool   *pgxpool.Pool // nil until the first renewal
	closed bool
	warn   sync.Once
}

// newReserve returns a reserve of connections with these settings, which it changes. most is how many connections the
// program may have open, or 0 if there is no bound.
func newReserve(settings *pgxpool.Config, most int) *reserve {
	settings.MaxConns, settings.MinConns, settings.MinIdleConns = reserved, 0, 0
	return &reserve{settings: settings, slots: make(chan struct{}, reserved), poolSlots: newPoolSlots(most)}
}

// poolSlots is a semaphore for renewals that use the program's connections. It leaves one connection to claims, unless
// the program may have only one. It is nil if the program may have any number.
type poolSlots chan struct{}

func newPoolSlots(most int) poolSlots {
	if most == 0 {
		return nil
	}
	return make(poolSlots, max(1, most-1))
}

// enter waits until a renewal may use one of the program's connections. The caller calls leave afterwards.
func (s poolSlots) enter(ctx context.Context) (leave func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// use calls do with a connection of the reserve. It returns false, and has not called do, if all are in use or none can be
// opened: the renewal then uses one of the program's connections.
func (r *reserve) use(ctx context.Context, do func(*pgx.Conn)) bool {
	select {
	case r.slots <- struct{}{}:
	default:
		return false
	}
	defer func() { <-r.slots }()
	pool, err := r.open()
	if err == nil {
		if err = (pooled{pool}).use(ctx, do); err == nil {
			return true
		}
	}
	if ctx.Err() == nil {
		r.warn.Do(func() {
			slog.Warn("leasekeeper: cannot open a connection for renewals: they use the pool, and leases are lost if it is exhausted; raise the connection limit of the server or of this user",
				slog.String("error", err.Error()))
		})
	}
	return false
}

// open returns the pool of the reserve, and makes it if necessary.
func (r *reserve) open() (*pgxpool.Pool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, context.Canceled
	}
	if r.pool == nil {
		pool, err := pgxpool.NewWithConfig(context.Background(), r.settings)
		if err != nil {
			return nil, err
		}
		r.pool = pool
	}
	return r.pool, nil
}

// close closes the connections. It waits for the statements that run on them.
func (r *reserve) close() {
	r.mu.Lock()
	r.closed = true
	pool := r.pool
	r.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
}
