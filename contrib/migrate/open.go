package migratelease

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/leasekeeper/leasekeeper"
)

// Open opens a driver on a database whose statements end when the lease is lost, and which can be behind a pooler in
// transaction mode. It waits for the lease, and holds it while open runs, which opens a driver of golang-migrate on db,
// such as with the WithInstance of its package. The driver's Close closes db.
//
// ctx, the name and the options are those of [New]. A statement ends with the lease if the database's driver can execute
// it without preparing it, as the drivers for PostgreSQL and SQLite do, and those for MySQL if it has no parameters.
func Open(ctx context.Context, keeper *leasekeeper.Keeper, name string, connector driver.Connector, open func(db *sql.DB) (database.Driver, error), options ...leasekeeper.Option) (*Driver, error) {
	d := New(ctx, keeper, name, nil, options...)
	db := sql.OpenDB(&boundConnector{connector, d})
	d.close = db.Close
	if err := d.openLocked(db, open); err != nil {
		_ = db.Close()
		return nil, err
	}
	return d, nil
}

// openLocked opens the wrapped driver under the lease.
func (d *Driver) openLocked(db *sql.DB, open func(db *sql.DB) (database.Driver, error)) (err error) {
	if err := d.Lock(); err != nil {
		return err
	}
	defer func() { // also after a panic
		if failed := d.Unlock(); failed != nil && err == nil {
			_ = d.inner.Close()
			err = failed
		}
	}()
	return d.call(begin, func() error {
		d.inner, err = open(db)
		return err
	})
}

// boundConnector makes connections that know the lease of a driver.
type boundConnector struct {
	driver.Connector
	lease *Driver
}

// Connect returns a connection.
func (c *boundConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &boundConn{conn, c.lease}, nil
}

// boundConn is a connection whose statements and transactions end with the lease of a driver. While the driver does not
// hold it, they are as they were. It has each optional method of a connection that database/sql knows, and does what
// database/sql does without the method if the wrapped connection lacks it.
type boundConn struct {
	driver.Conn
	lease *Driver
}

// bound returns a context that also ends with the lease, and the context of the lease; nil if it is not held.
func (c *boundConn) bound(ctx context.Context) (bound, lease context.Context, done func()) {
	c.lease.mu.Lock()
	t := c.lease.tenure
	c.lease.mu.Unlock()
	if t == nil {
		return ctx, nil, func() {}
	}
	bound, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.context, func() { cancel(context.Cause(t.context)) })
	if t.context.Err() != nil {
		cancel(context.Cause(t.context)) // at once
	}
	return bound, t.context, func() { stop(); cancel(nil) }
}

// sessionLock has the statements by which golang-migrate's drivers for PostgreSQL lock the session. The lease is held
// instead, and behind a pooler they would lock the session of some other client.
var sessionLock = map[string]bool{"SELECT pg_advisory_lock($1)": true, "SELECT pg_advisory_unlock($1)": true}

// ExecContext executes a statement.
func (c *boundConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if sessionLock[query] && len(args) == 1 {
		return driver.RowsAffected(0), nil
	}
	conn, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	ctx, _, done := c.bound(ctx)
	defer done()
	return conn.ExecContext(ctx, query, args)
}

// QueryContext executes a query. It does not end with the lease, since its rows are read later.
func (c *boundConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if conn, ok := c.Conn.(driver.QueryerContext); ok {
		return conn.QueryContext(ctx, query, args)
	}
	return nil, driver.ErrSkip
}

// PrepareContext prepares a statement.
func (c *boundConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if conn, ok := c.Conn.(driver.ConnPrepareContext); ok {
		return conn.PrepareContext(ctx, query)
	}
	return c.Prepare(query)
}

var errNoOptions = errors.New("migratelease: the database's driver has no options for transactions")

// BeginTx begins a transaction, which commits only before the lease ends.
func (c *boundConn) BeginTx(ctx context.Context, options driver.TxOptions) (tx driver.Tx, err error) {
	ctx, lease, done := c.bound(ctx)
	tx, err = c.startTx(ctx, options)
	if err != nil {
		done()
		return nil, err
	}
	if lease == nil {
		return tx, nil
	}
	return boundTx{tx, lease, done}, nil // the driver may use ctx until the transaction ends
}

// startTx begins a transaction of the wrapped connection.
func (c *boundConn) startTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	conn, ok := c.Conn.(driver.ConnBeginTx)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case ok:
		return conn.BeginTx(ctx, options)
	case options != driver.TxOptions{}:
		return nil, errNoOptions
	}
	// database/sql does the same with such a driver
	return c.Begin()
}

// Ping asks whether the connection lives.
func (c *boundConn) Ping(ctx context.Context) error {
	if conn, ok := c.Conn.(driver.Pinger); ok {
		return conn.Ping(ctx)
	}
	return nil
}

// ResetSession prepares the connection for its next user.
func (c *boundConn) ResetSession(ctx context.Context) error {
	if conn, ok := c.Conn.(driver.SessionResetter); ok {
		return conn.ResetSession(ctx)
	}
	return nil
}

// IsValid reports whether the connection may be used again.
func (c *boundConn) IsValid() bool {
	conn, ok := c.Conn.(driver.Validator)
	return !ok || conn.IsValid()
}

// CheckNamedValue converts an argument.
func (c *boundConn) CheckNamedValue(v *driver.NamedValue) error {
	if conn, ok := c.Conn.(driver.NamedValueChecker); ok {
		return conn.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// boundTx is a transaction that commits only before the lease ends.
type boundTx struct {
	driver.Tx
	lease context.Context
	done  func() // after the end of the transaction
}

// Commit commits the transaction, or rolls it back if the lease has ended.
func (tx boundTx) Commit() error {
	if tx.lease.Err() != nil {
		return errors.Join(context.Cause(tx.lease), tx.Rollback())
	}
	defer tx.done()
	return tx.Tx.Commit()
}

// Rollback rolls the transaction back.
func (tx boundTx) Rollback() error {
	defer tx.done()
	return tx.Tx.Rollback()
}
