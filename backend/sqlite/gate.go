package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Gate makes a transaction in the file of a lease commit only if the lease is still held. From its return until
// the transaction ends, no other client can take the name. [backend.ErrLost] says that the lease is no longer
// held; after any error the transaction must be rolled back.
//
// Call it first in the transaction. A transaction that has read before can fail with [backend.ErrContention],
// if another one has written since. Until it ends no other transaction can write to the file, so keep it much
// shorter than the TTL.
func Gate(ctx context.Context, tx *sql.Tx, l *leasekeeper.Lease) error {
	lease, err := claimed.LeaseOf(l.Raw())
	if err != nil {
		return err
	}
	return GateClaim(ctx, tx, lease)
}

// GateClaim is [Gate] for callers that use package claim itself.
func GateClaim(ctx context.Context, tx *sql.Tx, l *claim.Lease) error {
	s, ok := l.Store().(*Store)
	if !ok {
		return fmt.Errorf("sqlite: %w: the lease of %s is kept by %s, and not in a SQLite file", backend.ErrInvalid, l.Name(), l.Store().Scheme())
	}
	statement, args, err := s.Gate(l)
	if err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return gateFailed(l, err)
	}
	touched, err := result.RowsAffected()
	if err != nil {
		return gateFailed(l, err)
	}
	if touched == 0 {
		return fmt.Errorf("sqlite: gate: %w: %s is no longer held under token %d: roll the transaction back", backend.ErrLost, l.Name(), l.Token())
	}
	return nil
}

// gateFailed returns the error of a gate whose statement failed. Whatever the reason, the transaction has to be
// rolled back.
func gateFailed(l *claim.Lease, err error) error {
	f := failureOf(err, false)
	switch {
	case f.Again:
		return fmt.Errorf("sqlite: gate of %s: %w: others write to the file: roll back and repeat the transaction, with the gate first: %w", l.Name(), backend.ErrContention, err)
	case f.Missing:
		return fmt.Errorf("sqlite: gate of %s: %w: the transaction is in another file than the lease: %w", l.Name(), backend.ErrInvalid, err)
	}
	return fmt.Errorf("sqlite: gate of %s: %w: %w", l.Name(), f.Kind, f)
}
