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
// Marks removes no document, and neither may you: without its mark an old holder can write again. Names have at
// most [fence.MaxName] bytes.
type Marks struct {
	// Collection is required. Use it for nothing else, and give it no collation.
	Collection *mongo.Collection
}

var _ fence.Marks = Marks{}

// Guard refuses a stale token inside the transaction that writes. Otherwise it raises the mark of that name. ctx
// is the session's context, which [mongo.Session.WithTransaction] gives to its callback. Until the transaction
// ends no other transaction passes Guard for the same name: MongoDB aborts one of the two as a write conflict,
// and WithTransaction repeats it. Call Guard before any other operation of the transaction.
//
// After any error abort the transaction: its writes must not be committed. An error is a [*fence.StaleError],
// [fence.ErrInvalid], [ErrCorrupt], or the driver's.
func (m Marks) Guard(ctx context.Context, name string, t fence.Token) error {
	if session := mongo.SessionFromContext(ctx); session == nil || !session.TransactionRunning() {
		return fmt.Errorf("%w: there is no transaction in this context: call Guard with the context that WithTransaction gives to its callback", fence.ErrInvalid)
	}
	// The counter makes every update write: an update that changes nothing would not conflict with other transactions.
	highest, err := m.raiseWith(ctx, name, t, bson.D{{Key: "$inc", Value: bson.D{{Key: "guarded", Value: int64(1)}}}})
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
	return m.raiseWith(ctx, name, t, bson.D{})
}

// Highest returns the mark of a name; 0 if it has none. It is for people who inspect a resource: a writer that
// decides by it has a gap between the check and the write.
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

// raiseWith makes the mark at least t and returns it. In the same update it applies also, which does not contain $max.
func (m Marks) raiseWith(ctx context.Context, name string, t fence.Token, also bson.D) (fence.Token, error) {
	if err := m.validate(name); err != nil {
		return 0, err
	}
	n, err := number(t)
	if err != nil {
		return 0, err
	}
	update := append(also, bson.E{Key: "$max", Value: bson.D{{Key: DefaultField, Value: n}}})
	var raw bson.Raw
	const attempts = 3 // if two writers create the same document at the same time, one of them fails
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
