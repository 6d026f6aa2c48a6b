package postgres

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// reserved is how many connections renewals have for themselves: one, and one for a hedge while that is stuck.
const reserved = 2

// reserve has connections for renewals alone, made as the pool makes its own, with all hooks of its configuration: so
// a pool that the program has exhausted loses no lease. None is made before the first renewal.
type reserve struct {
	settings *pgxpool.Config
	room     chan struct{} // has room for reserved
	guests   chan struct{} // has room for the renewals that may use the pool at once: one connection is left for claims

	mu     sync.Mutex
	pool   *pgxpool.Pool // nil until the first renewal
	closed bool
	warn   sync.Once
}

func newReserve(of *pgxpool.Pool) *reserve {
	settings := of.Config() // a copy
	guests := max(1, settings.MaxConns-1)
	settings.MaxConns, settings.MinConns, settings.MinIdleConns = reserved, 0, 0
	return &reserve{settings: settings, room: make(chan struct{}, reserved), guests: make(chan struct{}, guests)}
}

// acquire returns a connection and what gives it back. It returns nil if all are taken, or none can be made: then the
// pool is to be used.
func (r *reserve) acquire(ctx context.Context) (*pgxpool.Conn, func()) {
	select {
	case r.room <- struct{}{}:
	default:
		return nil, nil
	}
	pool, err := r.open()
	if err == nil {
		var conn *pgxpool.Conn
		if conn, err = pool.Acquire(ctx); err == nil {
			return conn, func() {
				conn.Release()
				<-r.room
			}
		}
	}
	<-r.room
	if ctx.Err() == nil {
		r.warn.Do(func() {
			slog.Warn("leasekeeper: no connection of their own for renewals: they use the pool, and leases are lost if that is exhausted; raise the limit of connections of the server or of this user",
				slog.String("error", err.Error()))
		})
	}
	return nil, nil
}

// enter waits until a renewal may use the pool.
func (r *reserve) enter(ctx context.Context) (leave func(), err error) {
	select {
	case r.guests <- struct{}{}:
		return func() { <-r.guests }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

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

// close closes the connections when nothing runs on them any more.
func (r *reserve) close() {
	r.mu.Lock()
	r.closed = true
	pool := r.pool
	r.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
}
