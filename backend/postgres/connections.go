package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// connections are the connections of the program, and a way to open others with the same settings.
type connections interface {
	// use calls do with a connection that nothing else uses meanwhile. After an error do was not called.
	use(ctx context.Context, do func(*pgx.Conn)) error
	// dial opens a connection that is not one of the program's.
	dial(ctx context.Context) (*pgx.Conn, error)
	// settings returns a copy of the settings of the connections.
	settings() (*pgxpool.Config, error)
	// most returns how many connections the program may have open, or 0 if there is no bound.
	most() int
}

// pooled are the connections of a pool of pgx.
type pooled struct{ pool *pgxpool.Pool }

func (p pooled) use(ctx context.Context, do func(*pgx.Conn)) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	do(conn.Conn())
	return nil
}

// dial calls the pool's hooks too.
func (p pooled) dial(ctx context.Context) (*pgx.Conn, error) {
	settings := p.pool.Config()
	if settings.BeforeConnect != nil {
		if err := settings.BeforeConnect(ctx, settings.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := connectAlone(ctx, settings.ConnConfig)
	if err != nil {
		return nil, err
	}
	if settings.AfterConnect != nil {
		if err := settings.AfterConnect(ctx, conn); err != nil {
			closeConn(ctx, conn)
			return nil, err
		}
	}
	return conn, nil
}

func (p pooled) settings() (*pgxpool.Config, error) { return p.pool.Config(), nil }
func (p pooled) most() int                          { return int(p.pool.Config().MaxConns) }

// connectAlone opens a connection for the store alone. It changes settings. A handler of the program must not take the
// notifications that the store waits for.
func connectAlone(ctx context.Context, settings *pgx.ConnConfig) (*pgx.Conn, error) {
	settings.OnNotification = nil
	return pgx.ConnectConfig(ctx, settings)
}

// standard are the connections of a database of database/sql with pgx's driver.
type standard struct {
	db *sql.DB
	// latest are the settings of the newest connection that use has seen. They have what the program's hook changed before
	// it connected, such as a password that is valid for a while.
	latest atomic.Pointer[pgx.ConnConfig]
}

// settingsKey is the key, in the custom data of a connection, of the standard that has noted its settings last.
const settingsKey = "leasekeeper settings"

// pgxConn returns the connection of pgx behind a connection of a driver. Package stdlib of pgx has the method.
func pgxConn(driverConn any) (*pgx.Conn, bool) {
	c, ok := driverConn.(interface{ Conn() *pgx.Conn })
	if !ok {
		return nil, false
	}
	return c.Conn(), true
}

// probe reports whether the driver is pgx's, and notes the settings of a connection.
func (s *standard) probe(ctx context.Context) (isPgx bool, _ error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	err = conn.Raw(func(driverConn any) error {
		c, ok := pgxConn(driverConn)
		if ok {
			isPgx = true
			s.note(c)
		}
		return nil
	})
	return isPgx, err
}

func (s *standard) use(ctx context.Context, do func(*pgx.Conn)) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driverConn any) error {
		c, ok := pgxConn(driverConn)
		if !ok {
			return fmt.Errorf("a connection of type %T is not pgx's, while an earlier one was", driverConn)
		}
		s.note(c)
		do(c)
		return nil
	})
}

// note notes the settings of a connection, once.
func (s *standard) note(c *pgx.Conn) {
	custom := c.PgConn().CustomData()
	if custom[settingsKey] == any(s) {
		return
	}
	custom[settingsKey] = s
	s.latest.Store(c.Config())
}

func (s *standard) dial(ctx context.Context) (*pgx.Conn, error) {
	return connectAlone(ctx, s.latest.Load().Copy())
}

func (s *standard) settings() (*pgxpool.Config, error) {
	settings, err := pgxpool.ParseConfig(s.latest.Load().ConnString())
	if err != nil {
		return nil, err
	}
	settings.ConnConfig = s.latest.Load().Copy()
	settings.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		limit := c.ConnectTimeout
		*c = *s.latest.Load().Copy()
		if c.ConnectTimeout <= 0 {
			c.ConnectTimeout = limit
		}
		return nil
	}
	limitUse(settings)
	return settings, nil
}

func (s *standard) most() int { return s.db.Stats().MaxOpenConnections }
