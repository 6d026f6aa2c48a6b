package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Gate makes a transaction in the database that a lease is kept in commit only if the lease is still held: from
// its return until the transaction ends, nobody can take the name, and its holder can renew but not release it.
// [backend.ErrLost] says that the lease is not held any more; after any error the transaction must be rolled back.
//
// A transaction that is repeatable read or serializable, and has read before the name passed to another, fails with
// [backend.ErrContention]. Repeated, it fails with ErrLost.
func Gate(ctx context.Context, tx pgx.Tx, l *leasekeeper.Lease) error {
	lease, err := claimed.LeaseOf(l.Raw())
	if err != nil {
		return err
	}
	return GateClaim(ctx, tx, lease)
}

// GateSQL is [Gate] for transactions of database/sql.
func GateSQL(ctx context.Context, tx *sql.Tx, l *leasekeeper.Lease) error {
	lease, err := claimed.LeaseOf(l.Raw())
	if err != nil {
		return err
	}
	return GateClaimSQL(ctx, tx, lease)
}

// GateClaim is [Gate] for those who work with package claim itself.
func GateClaim(ctx context.Context, tx pgx.Tx, l *claim.Lease) error {
	return gate(l, func(statement string, args []any, found *int) error {
		return tx.QueryRow(ctx, statement, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(found)
	})
}

// GateClaimSQL is [GateSQL] for those who work with package claim itself.
func GateClaimSQL(ctx context.Context, tx *sql.Tx, l *claim.Lease) error {
	return gate(l, func(statement string, args []any, found *int) error {
		return tx.QueryRowContext(ctx, statement, args...).Scan(found)
	})
}

func gate(l *claim.Lease, ask func(statement string, args []any, found *int) error) error {
	s, ok := l.Store().(*Store)
	if !ok {
		return fmt.Errorf("postgres: %w: the lease of %s is kept by %s, and not in a PostgreSQL database", backend.ErrInvalid, l.Name(), l.Store().Scheme())
	}
	statement, args, err := s.Gate(l)
	if err != nil {
		return err
	}
	var found int
	switch err := ask(statement, args, &found); {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows): // pgx.ErrNoRows is that too
		return fmt.Errorf("postgres: gate: %w: %s is no longer held under token %d: roll the transaction back", backend.ErrLost, l.Name(), l.Token())
	default:
		return gateFailed(l, err)
	}
}

// gateFailed is the error of a gate that could not be asked. Whatever it was, the transaction has to go.
func gateFailed(l *claim.Lease, err error) error {
	f := failure(err)
	kind := f.Kind
	switch {
	case f.Again:
		return fmt.Errorf("postgres: gate of %s: %w: the lease was changed since the transaction began: roll back and repeat the transaction: %w", l.Name(), backend.ErrContention, err)
	case f.Missing:
		return fmt.Errorf("postgres: gate of %s: %w: the transaction is in another database than the lease: %w", l.Name(), backend.ErrInvalid, err)
	case kind == backend.ErrUnknownOutcome: // it only reads
		kind = backend.ErrUnavailable
	}
	return fmt.Errorf("postgres: gate of %s: %w: %w", l.Name(), kind, f)
}
