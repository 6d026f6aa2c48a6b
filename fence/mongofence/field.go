package mongofence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/fence"
)

// DefaultField is the name of the field with the token if [Field].Name is empty.
const DefaultField = "token"

// Field is a collection whose documents have a field for the token of the last write. It may be used by any
// number of goroutines.
//
// Create a document without a token, with null or the integer 0, or with the token of its creator.
type Field struct {
	// Collection is required.
	Collection *mongo.Collection
	// Name is the name of the field; DefaultField if it is empty. It has no dots.
	Name string
}

// Update changes the document with that _id and its token in one step, unless a newer token wrote it. update is
// an update document of MongoDB, such as {$set: {state: "done"}, $inc: {runs: 1}}.
//
// ctx may be that of a session in a transaction. Then the write takes effect when the transaction commits, and an
// error aborts it. After a [*fence.StaleError], [ErrNotFound], [ErrCorrupt], [ErrContention] or
// [fence.ErrInvalid] nothing was written. Any other error is the driver's.
func (f Field) Update(ctx context.Context, id any, t fence.Token, update bson.D) error {
	if len(update) == 0 {
		return fmt.Errorf("%w: the update is empty: use Advance to raise the token alone", fence.ErrInvalid)
	}
	return f.updateDocument(ctx, id, t, update)
}

// Advance raises the token of the document with that _id to t and changes nothing else. A new holder calls it
// before it reads the document: from then on no previous holder changes it. Errors are those of Update.
func (f Field) Advance(ctx context.Context, id any, t fence.Token) error {
	return f.updateDocument(ctx, id, t, nil)
}

// updateDocument changes the document and raises its token; a nil update raises the token alone.
func (f Field) updateDocument(ctx context.Context, id any, t fence.Token, update bson.D) error {
	field := f.Name
	if field == "" {
		field = DefaultField
	}
	if f.Collection == nil || strings.ContainsAny(field, ".$\x00") || field == "_id" {
		return fmt.Errorf("%w: a Field needs a Collection, and a Name without dots", fence.ErrInvalid)
	}
	n, err := number(t)
	if err != nil {
		return err
	}
	raised, err := withToken(update, field, n)
	if err != nil {
		return err
	}
	c := durable(f.Collection)
	const attempts = 3
	for range attempts {
		result, err := c.UpdateOne(ctx, passes(id, field, n), raised)
		if err != nil {
			return fmt.Errorf("%s was not updated with token %d, as far as is known: %w", c.Name(), t, err)
		}
		if result.MatchedCount == 1 {
			return nil
		}
		if err := whyNot(ctx, c, id, field, t); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s was not updated with token %d in %d attempts, although its token is no newer: other programs write to it without this check: let all of them use Field", ErrContention, c.Name(), t, attempts)
}

// passes returns the filter that matches the document if token n may write it: its token is an integer that is not
// newer, or it has none. A value that is no token never matches. The filter excludes arrays, because MongoDB would
// compare each element.
func passes(id any, field string, n int64) bson.D {
	return bson.D{
		{Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}}, // also if the id is a document that looks like an operator
		{Key: field, Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}}}},
		{Key: "$or", Value: bson.A{
			bson.D{{Key: field, Value: bson.D{
				{Key: "$type", Value: bson.A{"int", "long"}}, {Key: "$gte", Value: int64(0)}, {Key: "$lte", Value: n},
			}}},
			bson.D{{Key: field, Value: nil}},
		}},
	}
}

// withToken returns the update with the token added to it.
func withToken(update bson.D, field string, n int64) (bson.D, error) {
	var all bson.D
	token := bson.D{{Key: field, Value: n}}
	raw, err := bson.Marshal(update)
	if update == nil {
		return bson.D{{Key: "$max", Value: token}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the update cannot be written as BSON: %w", fence.ErrInvalid, err)
	}
	operators, err := bson.Raw(raw).Elements()
	if err != nil {
		return nil, fmt.Errorf("%w: the update: %w", fence.ErrInvalid, err)
	}
	for _, operator := range operators {
		changes, ok := operator.Value().DocumentOK()
		if !strings.HasPrefix(operator.Key(), "$") || !ok {
			return nil, fmt.Errorf("%w: the update has %q, which is not an operator with fields: write it like {$set: {...}}", fence.ErrInvalid, operator.Key())
		}
		var fields bson.D
		if err := bson.Unmarshal(changes, &fields); err != nil {
			return nil, fmt.Errorf("%w: the update: %w", fence.ErrInvalid, err)
		}
		for _, e := range fields {
			to, _ := e.Value.(string)
			if e.Key == field || strings.HasPrefix(e.Key, field+".") || operator.Key() == "$rename" && (to == field || strings.HasPrefix(to, field+".")) {
				return nil, fmt.Errorf("%w: the update changes %q: leave out this field, which Update sets itself", fence.ErrInvalid, field)
			}
		}
		if operator.Key() == "$max" {
			token = append(fields, token...)
			continue
		}
		all = append(all, bson.E{Key: operator.Key(), Value: changes})
	}
	return append(all, bson.E{Key: "$max", Value: token}), nil
}

// whyNot finds out why no document matched. It returns nil if the document would match now.
func whyNot(ctx context.Context, c *mongo.Collection, id any, field string, t fence.Token) error {
	raw, err := c.FindOne(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}}},
		options.FindOne().SetProjection(bson.D{{Key: field, Value: 1}})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return fmt.Errorf("%w: %s has no document with _id %v", ErrNotFound, c.Name(), id)
	} else if err != nil {
		return fmt.Errorf("%s was not updated with token %d, and the reason cannot be read: %w", c.Name(), t, err)
	}
	seen, err := mark(raw.Lookup(field))
	if err != nil {
		return fmt.Errorf("%s with _id %v: %w", c.Name(), id, err)
	}
	if seen > t {
		return &fence.StaleError{Name: fmt.Sprintf("%s %v", c.Name(), id), Token: t, Highest: seen}
	}
	return nil
}
