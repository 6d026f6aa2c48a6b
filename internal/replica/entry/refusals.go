package entry

import (
	"errors"
	"slices"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// refusals are all errors with which a command may fail because of its request. They are the same on every member, and
// such a command changes nothing.
var refusals = []error{
	roster.ErrInsecure,
	lessor.ErrNotFound, lessor.ErrExists, lessor.ErrTTLTooLarge, lessor.ErrInvalidTTL,
	keyspace.ErrEmptyKey, keyspace.ErrKeyNotFound, keyspace.ErrLeaseNotFound,
	keyspace.ErrValueProvided, keyspace.ErrLeaseProvided, keyspace.ErrInvalidSort,
	keyspace.ErrTooManyOps, keyspace.ErrDuplicateKey, keyspace.ErrCompacted, keyspace.ErrFutureRevision,
	ownership.ErrInvalidClaim, ownership.ErrLeaseTaken, ownership.ErrLost, ownership.ErrNotHeld, ownership.ErrOtherToken, ownership.ErrPinned, ownership.ErrNobodyWaits,
	ownership.ErrNotWaiting, ownership.ErrNotOvertaken, ownership.ErrLongQueue,
	backend.ErrInvalid, backend.ErrCorrupt, // of a mark
}

// isRefusal reports whether an error is the requester's.
func isRefusal(err error) bool {
	is := func(refusal error) bool { return errors.Is(err, refusal) }
	return slices.ContainsFunc(refusals, is) || slices.ContainsFunc(access.Errors, is)
}

// IsFatal reports whether the error of a command is a failure of the member, after which it must not continue.
func IsFatal(err error) bool {
	return err != nil && !isRefusal(err)
}
