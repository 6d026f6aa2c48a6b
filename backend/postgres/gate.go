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

// Gate makes a transaction commit only if the lease is still held. The transaction must be in the database that keeps the
// lease. From Gate's return until the transaction ends, no other process can take the name, and its holder can renew the
// lease but not release it. The error [backend.ErrLost] means that the lease is no longer held. After any error the caller
// must roll the transaction back.
//
// A repeatable read or serializable transaction that took its snapshot before the name changed hands fails with
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

// GateClaim is [Gate] for a lease of package claim.
func GateClaim(ctx context.Context, tx pgx.Tx, l *claim.Lease) error {
	return runGate(l, func(statement string, args []any, found *int) error {
		return tx.QueryRow(ctx, statement, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(found)
	})
}

// GateClaimSQL is [GateSQL] for a lease of package claim.
func GateClaimSQL(ctx context.Context, tx *sql.Tx, l *claim.Lease) error {
	return runGate(l, func(statement string, args []any, found *int) error {
		return tx.QueryRowContext(ctx, statement, args...).Scan(found)
	})
}

// runGate calls ask with the statement of the gate, and returns the error of the gate.
func runGate(l *claim.Lease, ask func(statement string, args []any, found *int) error) error {
	s, ok := l.Store().(*Store)
	if !ok {
		return fmt.Errorf("postgres: %w: the lease of %s is in a store of kind %s: gate it in that store", backend.ErrInvalid, l.Name(), l.Store().Scheme())
	}
	statement, args, err := s.Gate(l)
	if err != nil {
		return err
	}
	var found int
	switch err := ask(statement, args, &found); {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows): // pgx.ErrNoRows wraps it
		return fmt.Errorf("postgres: gate: %w: %s is no longer held under token %d: roll the transaction back", backend.ErrLost, l.Name(), l.Token())
	default:
		return gateFailed(l, err)
	}
}

// gateFailed returns the error of a gate whose statement failed.
func gateFailed(l *claim.Lease, err error) error {
	f := failure(err)
	switch {
	case f.Again:
		return fmt.Errorf("postgres: gate of %s: %w: the lease was changed since the transaction began: roll back and repeat the transaction: %w", l.Name(), backend.ErrContention, err)
	case f.Missing:
		return fmt.Errorf("postgres: gate of %s: %w: the transaction is in another database than the lease: begin it in the lease's: %w", l.Name(), backend.ErrInvalid, err)
	}
	return fmt.Errorf("postgres: gate of %s: %w: %w", l.Name(), f.HarmlessKind(), f) // the statement only reads
}
