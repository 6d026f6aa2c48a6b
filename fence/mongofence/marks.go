package mongofence

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/fence"
)

// Marks is a collection of marks, one document for each name. It is for resources that have no field for a token.
// It may be used by any number of goroutines, and is a [fence.Marks].
//
// Documents are never removed: a mark that is gone lets an old holder in. Names are at most [fence.MaxName] bytes.
type Marks struct {
	// Collection is required. It is used for nothing else, and has no collation.
	Collection *mongo.Collection
}

var _ fence.Marks = Marks{}

// Guard refuses a stale token inside the transaction that writes, and raises the mark of that name otherwise. ctx
// is that of the session, as [mongo.Session.WithTransaction] hands it to its callback. From then until the
// transaction ends no other passes for the same name: one of the two is aborted as a write conflict, and
// WithTransaction repeats it. Call it before everything else.
//
// After any error abort: what was written in the transaction must not be committed. An error is a
// [*fence.StaleError], [fence.ErrInvalid], [ErrCorrupt], or the driver's.
func (m Marks) Guard(ctx context.Context, name string, t fence.Token) error {
	if session := mongo.SessionFromContext(ctx); session == nil || !session.TransactionRunning() {
		return fmt.Errorf("%w: there is no transaction in this context: call Guard with the one that WithTransaction passes on", fence.ErrInvalid)
	}
	// It always writes, for an update that changes nothing keeps nobody else from writing.
	highest, err := m.raise(ctx, name, t, bson.D{{Key: "$inc", Value: bson.D{{Key: "guarded", Value: int64(1)}}}})
	if err != nil {
		return err
	}
	if t < highest {
		return &fence.StaleError{Name: name, Token: t, Highest: highest}
	}
	return nil
}

// Raise implements [fence.Marks].
func (m Marks) Raise(ctx context.Context, name string, t fence.Token) (fence.Token, error) {
	return m.raise(ctx, name, t, bson.D{})
}

// Highest returns the mark of a name, 0 if it has none. It is for people who want to know; a writer that decides
// by it has a gap between the check and the write.
func (m Marks) Highest(ctx context.Context, name string) (fence.Token, error) {
	if err := m.validate(name); err != nil {
		return 0, err
	}
	raw, err := durable(m.Collection).FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("the mark of %q cannot be read: %w", name, err)
	}
	highest, err := mark(raw.Lookup(DefaultField))
	if err != nil {
		return 0, fmt.Errorf("the mark of %q: %w", name, err)
	}
	return highest, nil
}

// raise makes the mark at least t and returns it.
func (m Marks) raise(ctx context.Context, name string, t fence.Token, also bson.D) (fence.Token, error) {
	if err := m.validate(name); err != nil {
		return 0, err
	}
	n, err := number(t)
	if err != nil {
		return 0, err
	}
	update := append(also, bson.E{Key: "$max", Value: bson.D{{Key: DefaultField, Value: n}}})
	var raw bson.Raw
	const attempts = 3 // two who make the same document at once: one of them fails
	for range attempts {
		raw, err = durable(m.Collection).FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: name}}, update,
			options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Raw()
		if !mongo.IsDuplicateKeyError(err) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("the mark of %q was not raised to %d, as far as is known: %w", name, t, err)
	}
	highest, err := mark(raw.Lookup(DefaultField))
	if err != nil {
		return 0, fmt.Errorf("the mark of %q: %w", name, err)
	}
	return highest, nil
}

func (m Marks) validate(name string) error {
	switch {
	case m.Collection == nil:
		return fmt.Errorf("%w: Marks needs a Collection", fence.ErrInvalid)
	case name == "":
		return fmt.Errorf("%w: the name is empty: name the resource", fence.ErrInvalid)
	case len(name) > fence.MaxName:
		return fmt.Errorf("%w: the name %.40q… has %d bytes: use at most %d", fence.ErrInvalid, name, len(name), fence.MaxName)
	}
	return nil
}
