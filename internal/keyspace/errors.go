package keyspace

import (
	"errors"
	"fmt"
)

// The reasons for refusing a request. A refused request has changed nothing. The texts are those of etcd, because
// watchers receive some of them.
var (
	ErrEmptyKey       = errors.New("key is not provided")
	ErrKeyNotFound    = errors.New("key not found")
	ErrValueProvided  = errors.New("value is provided")
	ErrLeaseProvided  = errors.New("lease is provided")
	ErrLeaseNotFound  = errors.New("requested lease not found")
	ErrInvalidSort    = errors.New("invalid sort option")
	ErrTooManyOps     = errors.New("too many operations in txn request")
	ErrDuplicateKey   = errors.New("duplicate key given in txn request")
	ErrCompacted      = errors.New("mvcc: required revision has been compacted")
	ErrFutureRevision = errors.New("mvcc: required revision is a future revision")

	ErrEmptyInterval  = errors.New("mvcc: watcher range is empty")
	ErrDuplicateWatch = errors.New("mvcc: duplicate watch ID provided on the WatchStream")
	ErrStreamClosed   = errors.New("keyspace: the watch stream is closed")
)

// ErrReplaced is returned by a read during which the whole state was replaced; see Store.Suspend. A retry reads the
// new state.
var ErrReplaced = errors.New("the state was replaced while it was read: try again")

// ErrMisuse is returned when the caller of a Writer broke its contract. Like an error of Pebble it makes the Writer
// unusable.
var ErrMisuse = errors.New("keyspace: misuse")

// CorruptError names a record of the database that cannot be decoded.
type CorruptError struct {
	Key    []byte // in the database, including its family byte
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("keyspace: corrupt record %q: %s", e.Key, e.Reason)
}

func corrupt(key []byte, format string, args ...any) error {
	return &CorruptError{Key: append([]byte(nil), key...), Reason: fmt.Sprintf(format, args...)}
}
