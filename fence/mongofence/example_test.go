package mongofence_test

import (
	"context"
	"errors"
	"log"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/mongofence"
)

// The document has a field for the token.
func ExampleField_Update() {
	finish := func(ctx context.Context, db *mongo.Database, token fence.Token) {
		jobs := mongofence.Field{Collection: db.Collection("jobs")}
		err := jobs.Update(ctx, "nightly", token, bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "done"}}}})
		if errors.Is(err, fence.ErrStale) {
			log.Print("another program holds the lease now: ", err)
		}
	}
	_ = finish
}

// The transaction replaces several documents. A stale holder replaces none.
func ExampleMarks_Guard() {
	replaceAll := func(ctx context.Context, db *mongo.Database, token fence.Token, documents []any) error {
		marks := mongofence.Marks{Collection: db.Collection("fencing_marks")}
		session, err := db.Client().StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if err := marks.Guard(ctx, "import", token); err != nil {
				return nil, err
			}
			if _, err := db.Collection("imported").DeleteMany(ctx, bson.D{}); err != nil {
				return nil, err
			}
			return db.Collection("imported").InsertMany(ctx, documents)
		})
		return err
	}
	_ = replaceAll
}
