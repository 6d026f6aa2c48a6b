package ferrettest

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/mongodb"
)

// Documents that another program has put into a collection of the same name are no locks.
func TestLocksOfShedLockAreListed(t *testing.T) {
	db := databaseOf(t, connect(t, Start(t).URI()))
	s, err := mongodb.New(t.Context(), db, mongodb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if locks, more, err := s.ForeignLocks(t.Context(), 10); err != nil || len(locks) != 0 || more {
		t.Errorf("without the collection: %+v, %v, %v", locks, more, err)
	}
	now := time.Now().Truncate(time.Millisecond)
	lock := func(name string, until any) bson.D {
		return bson.D{{Key: "_id", Value: name}, {Key: "lockUntil", Value: until}, {Key: "lockedAt", Value: now}, {Key: "lockedBy", Value: "app-1"}}
	}
	_, err = db.Collection("shedLock").InsertMany(t.Context(), []any{
		lock("report", now.Add(10*time.Minute)), lock("cleanup", now.Add(20*time.Minute)), lock("done", now.Add(-time.Minute)),
		lock("other", "2099-01-01"), bson.D{{Key: "_id", Value: 7}, {Key: "lockUntil", Value: now.Add(time.Hour)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	locks, more, err := s.ForeignLocks(t.Context(), 10)
	if err != nil || more || len(locks) != 2 {
		t.Fatalf("%+v, %v, %v", locks, more, err)
	}
	l := locks[0]
	if l.Name != "cleanup" || l.Holder != "app-1" || l.Kind != s.ForeignKinds()[0] || !l.Since.Equal(now) || l.TTL != 20*time.Minute || l.Waiting != -1 {
		t.Errorf("%+v", l)
	}
	if l.Remaining <= 0 || l.Remaining > l.TTL {
		t.Errorf("%v of %v are left", l.Remaining, l.TTL)
	}
	if locks, more, err := s.ForeignLocks(t.Context(), 1); err != nil || len(locks) != 1 || !more {
		t.Errorf("one of two: %+v, %v, %v", locks, more, err)
	}
	if _, _, err := s.ForeignLocks(t.Context(), 0); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a list of none: %v", err)
	}
}
