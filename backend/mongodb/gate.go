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

// Gate makes a transaction in the database that a lease is kept in commit only if the lease is still held. ctx is
// that of the session, as [mongo.Session.WithTransaction] hands it to its callback. [backend.ErrLost] says that the
// lease is not held any more; after any error the transaction must be aborted.
//
// Until the transaction ends nobody can write to the lease's record, neither to take the name nor to renew the
// lease, so keep it much shorter than a third of the TTL. It is [backend.ErrUnsupported] on a server without
// transactions.
func Gate(ctx context.Context, l *leasekeeper.Lease) error {
	lease, err := claimed.LeaseOf(l.Raw())
	if err != nil {
		return err
	}
	return GateClaim(ctx, lease)
}

// GateClaim is [Gate] for those who work with package claim itself.
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
		return fmt.Errorf("mongodb: %w: gate of %s: there is no transaction in this context: call it with the one that WithTransaction passes on", backend.ErrInvalid, l.Name())
	}
	token := l.Token()
	if token == 0 || token > math.MaxInt64 {
		return fmt.Errorf("mongodb: %w: the lease of %s has not been acquired", backend.ErrInvalid, l.Name())
	}
	// By the session's own client: a transaction cannot span two. Where that leads to another database than the
	// lease is in, there is no such incarnation.
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

// touched is the record of a lease that is held. It is written to and not only read: two transactions of which
// one reads what the other writes both commit.
func (s *Store) touched(l *claim.Lease, token backend.Token) bson.D {
	id := l.Incarnation()
	return bson.D{
		{Key: "_id", Value: s.key(l.Name())}, {Key: "holder", Value: l.Holder()}, {Key: "token", Value: int64(token)},
		{Key: "incarnation", Value: hex.EncodeToString(id[:])},
	}
}

// gateFailed is the error of a gate that could not be asked. The driver's own is in it, by whose labels
// WithTransaction sees that the transaction is to be repeated.
func gateFailed(l *claim.Lease, err error) error {
	const writeConflict = 112
	kind := backend.ErrUnavailable
	var refused mongo.ServerError
	if errors.As(err, &refused) {
		for _, code := range refused.ErrorCodes() {
			switch {
			case code == writeConflict: // another has written to the record since the transaction began
				kind = backend.ErrContention
			case kindOfCode(code) == backend.ErrInvalid:
				kind = backend.ErrInvalid
			}
		}
	}
	return fmt.Errorf("mongodb: %w: gate of %s: abort the transaction: %w", kind, l.Name(), err)
}
