package gooselease

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/database"

	"github.com/leasekeeper/leasekeeper"
)

// Gate makes a transaction commit only if a lease is still held, such as [postgres.GateSQL].
//
// [postgres.GateSQL]: https://pkg.go.dev/github.com/leasekeeper/leasekeeper/backend/postgres#GateSQL
type Gate func(ctx context.Context, tx *sql.Tx, l *leasekeeper.Lease) error

// Gated returns a store of versions for goose.WithStore that passes the gate in the transaction of each migration, just
// before goose commits it. A migrator that was paused, and whose name another process holds by now, cannot commit then.
// The store is one of database.NewStore. Migrations without a transaction pass no gate.
func (l *Locker) Gated(store database.Store, gate Gate) database.Store {
	return gatedStore{store, l, gate}
}

// gatedStore passes a gate before it changes the versions.
type gatedStore struct {
	database.Store
	locker *Locker
	gate   Gate
}

// Insert records that a migration was applied.
func (s gatedStore) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	if req.Version != 0 { // goose inserts version 0 with the table of versions, also in calls for which it takes no lock
		if err := s.pass(ctx, db); err != nil {
			return err
		}
	}
	return s.Store.Insert(ctx, db, req)
}

// Delete records that a migration was rolled back.
func (s gatedStore) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	if err := s.pass(ctx, db); err != nil {
		return err
	}
	return s.Store.Delete(ctx, db, version)
}

// TableExists reports whether there is a table of versions, if the store can find out.
func (s gatedStore) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	if extended, ok := s.Store.(database.StoreExtender); ok {
		return extended.TableExists(ctx, db)
	}
	return false, errors.ErrUnsupported
}

// pass passes the gate if db is a transaction.
func (s gatedStore) pass(ctx context.Context, db database.DBTxConn) error {
	tx, ok := db.(*sql.Tx)
	if !ok {
		return nil
	}
	lease := s.locker.Lease(ctx)
	if lease == nil {
		return fmt.Errorf("gooselease: %w: the provider holds no lease on %s: give it this Locker with goose.WithLocker", leasekeeper.ErrInvalid, s.locker.name)
	}
	return s.gate(ctx, tx, lease)
}
