package postgres

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// reserved is the number of connections for renewals alone: one, and one for a hedge while the first is stuck.
const reserved = 2

// reserve has the connections for renewals alone, so that no lease is lost when the program has exhausted its pool. They
// are opened with the configuration and hooks of the pool, from the first renewal on.
type reserve struct {
	settings  *pgxpool.Config
	slots     chan struct{} // a semaphore for reserved connections
	poolSlots chan struct{} // a semaphore for renewals that use the program's pool; it leaves one connection to claims

	mu     sync.Mutex
	pool   *pgxpool.Pool // nil until the first renewal
	closed bool
	warn   sync.Once
}

func newReserve(of *pgxpool.Pool) *reserve {
	settings := of.Config() // a copy
	poolSlots := max(1, settings.MaxConns-1)
	settings.MaxConns, settings.MinConns, settings.MinIdleConns = reserved, 0, 0
	return &reserve{settings: settings, slots: make(chan struct{}, reserved), poolSlots: make(chan struct{}, poolSlots)}
}

// acquire returns a connection and a function that releases it. It returns nil if all are in use or none can be opened:
// the renewal then uses the program's pool.
func (r *reserve) acquire(ctx context.Context) (*pgxpool.Conn, func()) {
	select {
	case r.slots <- struct{}{}:
	default:
		return nil, nil
	}
	pool, err := r.open()
	if err == nil {
		var conn *pgxpool.Conn
		if conn, err = pool.Acquire(ctx); err == nil {
			return conn, func() {
				conn.Release()
				<-r.slots
			}
		}
	}
	<-r.slots
	if ctx.Err() == nil {
		r.warn.Do(func() {
			slog.Warn("leasekeeper: cannot open a connection for renewals: they use the pool, and leases are lost if it is exhausted; raise the connection limit of the server or of this user",
				slog.String("error", err.Error()))
		})
	}
	return nil, nil
}

// enter waits until a renewal may use the program's pool. The caller calls leave afterwards.
func (r *reserve) enter(ctx context.Context) (leave func(), err error) {
	select {
	case r.poolSlots <- struct{}{}:
		return func() { <-r.poolSlots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
