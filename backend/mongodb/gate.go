package mongodb

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Gate makes a transaction in the database of a lease commit only if the lease is still held. ctx is that of
// the session, as [mongo.Session.WithTransaction] passes it to its callback. [backend.ErrLost] says that the
// lease is no longer held; after any error the transaction must be aborted.
//
// Until the transaction ends no other client can write to the lease's record, neither to take the name nor to
// renew the lease. So keep it much shorter than a third of the TTL. The error is [backend.ErrUnsupported] on a
// server without transactions.
func Gate(ctx context.Context, l *leasekeeper.Lease) error {
	lease, err := claimed.LeaseOf(l.Raw())
	if err != nil {
		return err
	}
	return GateClaim(ctx, lease)
}

// GateClaim is [Gate] for callers that use package claim itself.
func GateClaim(ctx context.Context, l *claim.Lease) error {
	s, ok := l.Store().(*Store)
	if !ok {
		return fmt.Errorf("mongodb: %w: the lease of %s is kept by %s, and not in a MongoDB database", backend.ErrInvalid, l.Name(), l.Store().Scheme())
	}
	if !s.server.transactions() {
		return &backend.UnsupportedError{Backend: Scheme, What: "a gate", Instead: "this server has no transactions: make it a replica set, of one member if need be, or check the fencing token with package mongofence"}
	}
	session := mongo.SessionFromContext(ctx)
	if session == nil || !session.TransactionRunning() {
		return fmt.Errorf("mongodb: %w: gate of %s: there is no transaction in this context: call it with the one that WithTransaction passes to its callback", backend.ErrInvalid, l.Name())
	}
	token := l.Token()
	if token == 0 || token > math.MaxInt64 {
		return fmt.Errorf("mongodb: %w: the lease of %s has not been acquired", backend.ErrInvalid, l.Name())
	}
	// Use the session's client: a transaction cannot span two. If that leads to another database than the
	// lease's, that database has no such incarnation.
	records := session.Client().Database(s.db.Name()).Collection(s.records.Name())
	result, err := records.UpdateOne(ctx, s.touched(l, token), bson.D{{Key: "$inc", Value: bson.D{{Key: "gate", Value: int64(1)}}}})
	if err != nil {
		return gateFailed(l, err)
	}
	if result.MatchedCount == 0 {
		return fmt.Errorf("mongodb: gate: %w: %s is no longer held under token %d: abort the transaction", backend.ErrLost, l.Name(), token)
	}
	return nil
}

// touched returns the update of the record of a held lease. The gate writes to it instead of only reading it:
// if one transaction reads what another writes, both commit.
func (s *Store) touched(l *claim.Lease, token backend.Token) bson.D {
	id := l.Incarnation()
	return bson.D{
		{Key: "_id", Value: s.key(l.Name())}, {Key: "holder", Value: l.Holder()}, {Key: "token", Value: int64(token)},
		{Key: "incarnation", Value: hex.EncodeToString(id[:])},
	}
}

// gateFailed returns the error of a gate whose statement failed. It wraps the driver's error, whose labels tell
// WithTransaction whether to repeat the transaction.
func gateFailed(l *claim.Lease, err error) error {
	const writeConflict = 112
	kind := backend.ErrUnavailable
	var refused mongo.ServerError
	if errors.As(err, &refused) {
		for _, code := range refused.ErrorCodes() {
			switch {
			case code == writeConflict: // another transaction has written to the record meanwhile
				kind = backend.ErrContention
			case kindOfCode(code) == backend.ErrInvalid:
				kind = backend.ErrInvalid
			}
		}
	}
	return fmt.Errorf("mongodb: %w: gate of %s: abort the transaction: %w", kind, l.Name(), err)
}
