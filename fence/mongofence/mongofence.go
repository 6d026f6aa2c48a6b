package mongofence

import (
	"errors"
	"fmt"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/leasekeeper/leasekeeper/fence"
)

// The kinds of errors besides [fence.ErrStale] and [fence.ErrInvalid]. Errors of the driver are passed on wrapped;
// after them it is not known whether anything was written. Repeating the write with the same token is safe.
var (
	// ErrNotFound says that there is no document with that _id. Nothing was written.
	ErrNotFound = errors.New("no such document")
	// ErrCorrupt says that the field for the token holds what is no token, such as a text, a number with a
	// fraction, or a negative one. Nothing was written; somebody has to put it right.
	ErrCorrupt = errors.New("the token is corrupt")
	// ErrContention says that nothing was written although no newer token was found: others changed the document
	// each time it was tried.
	ErrContention = errors.New("too much contention")
)

// durable is the collection with the concern that a token needs. In a transaction it is that of the transaction
// that counts.
func durable(c *mongo.Collection) *mongo.Collection {
	journaled := true
	return c.Clone(options.Collection().SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled}))
}

// number is the token as BSON has it.
func number(t fence.Token) (int64, error) {
	if t == 0 {
		return 0, fmt.Errorf("%w: 0 is no fencing token: write with the token of the lease", fence.ErrInvalid)
	}
	if t > math.MaxInt64 {
		return 0, fmt.Errorf("%w: token %d is above %d and does not fit BSON's integers", fence.ErrInvalid, t, int64(math.MaxInt64))
	}
	return int64(t), nil
}

// mark is a token as it is stored; 0 if there is none. A number as the old shell writes it, with a fraction even
// if that is zero, is none: integers above 2^53 cannot be told apart that way.
func mark(stored bson.RawValue) (fence.Token, error) {
	n := int64(-1)
	switch stored.Type {
	case 0, bson.TypeNull:
		return 0, nil
	case bson.TypeInt32:
		n = int64(stored.Int32())
	case bson.TypeInt64:
		n = stored.Int64()
	}
	if n < 0 {
		return 0, fmt.Errorf("%w: it is %v (%v), and must be a whole number that is not negative: set it to NumberLong(n)", ErrCorrupt, stored, stored.Type)
	}
	return fence.Token(n), nil
}
