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

// The kinds of errors besides [fence.ErrStale] and [fence.ErrInvalid]. Any other error wraps the driver's. After it
// the write may have taken effect or not, and it is safe to repeat the write with the same token.
var (
	// ErrNotFound says that there is no document with that _id. Nothing was written.
	ErrNotFound = errors.New("no such document")
	// ErrCorrupt says that the field for the token holds a value that is no token, such as a text, a number with
	// a fraction, or a negative number. Nothing was written. An operator has to set the field to a token.
	ErrCorrupt = errors.New("the token is corrupt")
	// ErrContention says that nothing was written although the document has no newer token: other programs
	// changed the document before each attempt.
	ErrContention = errors.New("too much contention")
)

// durable returns the collection with the read preference and the write concern that tokens need. In a transaction
// those of the transaction count instead.
func durable(c *mongo.Collection) *mongo.Collection {
	journaled := true
	return c.Clone(options.Collection().SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled}))
}

// number returns the token as an integer of BSON.
func number(t fence.Token) (int64, error) {
	if t == 0 {
		return 0, fmt.Errorf("%w: 0 is no fencing token: write with the token of the lease", fence.ErrInvalid)
	}
	if t > math.MaxInt64 {
		return 0, fmt.Errorf("%w: token %d is above %d and does not fit BSON's integers: check where the token comes from", fence.ErrInvalid, t, int64(math.MaxInt64))
	}
	return int64(t), nil
}

// mark returns the token in a stored value; 0 if there is none. A double, which the old mongo shell writes, is no token:
// doubles cannot tell integers above 2^53 apart.
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
		return 0, fmt.Errorf("%w: it is %v (%v), but must be a whole number that is not negative: set it to NumberLong(n)", ErrCorrupt, stored, stored.Type)
	}
	return fence.Token(n), nil
}
