package mongodb

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Listen implements [claim.Notifier], by a change stream. On a server without change streams it returns at once
// with an error that is [backend.ErrUnsupported].
func (s *Store) Listen(ctx context.Context, changed func(name string)) error {
	const what = "listen for changes"
	if s.closed.Err() != nil {
		return fmt.Errorf("mongodb: %w: %s", backend.ErrClosed, what)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mongodb: %w: %s: %w", backend.ErrUnavailable, what, err)
	}
	if !s.server.streams() {
		return &backend.UnsupportedError{Backend: Scheme, What: "a change stream", Instead: "a single server has none: make it a replica set, of one member if need be, or ask now and then"}
	}
	// begin is not used here: its context has a time limit.
	ctx, cancel := context.WithCancel(mongo.NewSessionContext(ctx, nil))
	defer cancel()
	defer context.AfterFunc(s.closed, cancel)()
	stream, err := s.records.Watch(ctx, s.ownerChanges(), options.ChangeStream().SetFullDocument(options.Default))
	if err != nil {
		return s.unread(what, err)
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }()
	changed("")
	for stream.Next(ctx) {
		id, _ := stream.Current.Lookup("documentKey", "_id").StringValueOK()
		name, mine := strings.CutPrefix(id, s.key(""))
		if !mine {
			name = "" // the collection itself has changed
		}
		changed(name)
	}
	err = stream.Err()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = fmt.Errorf("the stream of changes of %s has ended", s.records.Name())
	}
	return s.unread(what, err)
}

// ownerChanges returns the filter for events that may change the owner of a name of this namespace. An event of
// a removal has only the _id.
func (s *Store) ownerChanges() bson.A {
	first := s.key("")
	ours := bson.D{{Key: "documentKey._id", Value: bson.D{{Key: "$gte", Value: first}, {Key: "$lt", Value: successor(first)}}}}
	return bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"drop", "rename", "dropDatabase", "invalidate"}}}}},
		append(bson.D{{Key: "operationType", Value: "delete"}}, ours...),
		append(bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"insert", "replace"}}}}, {Key: "fullDocument.turnover", Value: true}}, ours...),
		// By a pipeline, or by hand. Renewals leave the token unchanged.
		append(bson.D{{Key: "operationType", Value: "update"}, {Key: "updateDescription.updatedFields.token", Value: bson.D{{Key: "$exists", Value: true}}}}, ours...),
	}}}}}}
}
