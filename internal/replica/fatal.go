package replica

import (
	"errors"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// requesterErrors are all errors with which a command may fail because of its request. They are the same on every
// member, and such a command changes nothing.
var requesterErrors = []error{
	lessor.ErrNotFound, lessor.ErrExists, lessor.ErrTTLTooLarge, lessor.ErrInvalidTTL,
	keyspace.ErrEmptyKey, keyspace.ErrKeyNotFound, keyspace.ErrLeaseNotFound,
	keyspace.ErrValueProvided, keyspace.ErrLeaseProvided, keyspace.ErrInvalidSort,
	keyspace.ErrTooManyOps, keyspace.ErrDuplicateKey, keyspace.ErrCompacted, keyspace.ErrFutureRevision,
	ownership.ErrInvalidClaim, ownership.ErrLeaseTaken, ownership.ErrLost, ownership.ErrNotHeld, ownership.ErrOtherToken, ownership.ErrPinned, ownership.ErrNobodyWaits,
}

// isFatal reports whether err is a failure of this member, after which it must not continue.
func isFatal(err error) bool {
	if err == nil {
		return false
	}
	for _, requester := range requesterErrors {
		if errors.Is(err, requester) {
			return false
		}
	}
	return true
}
