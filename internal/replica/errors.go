package replica

import "errors"

// Errors that concern the member rather than the state. What a command itself may fail with comes from
// packages lessor and keyspace.
var (
	// ErrNoLeader says that nobody may answer at the moment. Nothing was changed; try again.
	ErrNoLeader = errors.New("no leader: try again in a moment")
	// ErrTooManyRequests says that the queue of requests is full. Nothing was changed; try again later.
	ErrTooManyRequests = errors.New("too many requests wait already: try again later")
	// ErrNoSpace says that the disk, or the quota, has no room for more data. Nothing was changed.
	ErrNoSpace = errors.New("no space left for more data: delete and compact, or give the data folder more room")
	// ErrTooManyLeases says that there are as many leases as are allowed. Nothing was changed.
	ErrTooManyLeases = errors.New("too many leases: end some, or allow more with --max-leases")
	// ErrTooLarge says that a request does not fit into one log entry.
	ErrTooLarge = errors.New("request is too large")
	// ErrUnknownOutcome says that the request was handed over and its fate is not known: it may yet take
	// effect. Read back before trying again.
	ErrUnknownOutcome = errors.New("outcome unknown: the request may or may not take effect; read back before trying again")
	// ErrStopped says that the member has stopped and took nothing on.
	ErrStopped = errors.New("server stopped")
)
