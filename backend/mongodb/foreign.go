package mongodb

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

const (
	shedLockKind = "ShedLock"
	// shedLockCollection is where ShedLock keeps its locks by default.
	shedLockCollection = "shedLock"
)

var _ claim.ForeignLister = (*Store)(nil)

// shedLock is a document of ShedLock.
type shedLock struct {
	Name   string    `bson:"_id"`
	Until  time.Time `bson:"lockUntil"`
	Locked time.Time `bson:"lockedAt"`
	By     string    `bson:"lockedBy"`
}

// ForeignKinds implements [claim.ForeignLister].
func (s *Store) ForeignKinds() []string { return []string{shedLockKind} }

// ForeignLocks implements [claim.ForeignLister]. It reads the collection shedLock of the store's database. Documents with
// fields of other types are no locks. What is left of a lock is counted by this machine's clock, as ShedLock's own processes
// count it.
func (s *Store) ForeignLocks(ctx context.Context, limit int) (locks []backend.ForeignLock, more bool, err error) {
	if limit <= 0 {
		return nil, false, fmt.Errorf("mongodb: %w: a list of up to %d locks: ask for at least one", backend.ErrInvalid, limit)
	}
	const what = "list locks of other programs"
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return nil, false, err
	}
	defer done()
	typed := func(field, kind string) bson.E { return bson.E{Key: field, Value: bson.D{{Key: "$type", Value: kind}}} }
	now := time.Now()
	until := bson.E{Key: "lockUntil", Value: bson.D{{Key: "$type", Value: "date"}, {Key: "$gt", Value: now}}}
	cursor, err := s.db.Collection(shedLockCollection).Find(ctx, bson.D{typed("_id", "string"), until, typed("lockedAt", "date"), typed("lockedBy", "string")},
		options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit)+1))
	if err != nil {
		return nil, false, s.unread(what, err)
	}
	var found []shedLock
	if err := cursor.All(ctx, &found); err != nil {
		return nil, false, s.unread(what, err)
	}
	for _, d := range found[:min(limit, len(found))] {
		locks = append(locks, backend.ForeignLock{
			Kind: shedLockKind, Name: d.Name, Holder: d.By, Text: "collection " + shedLockCollection, Since: d.Locked.UTC(),
			TTL: max(0, d.Until.Sub(d.Locked)), Remaining: max(0, d.Until.Sub(now)), Waiting: -1,
		})
	}
	return locks, len(found) > limit, nil
}
