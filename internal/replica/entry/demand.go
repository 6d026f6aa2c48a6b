package entry

import (
	"slices"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// The functions of this file say what a command takes if it is applied: time, space on disk, or memory. The answers
// depend on the command alone, so callers know them before the command is proposed.

const (
	// BulkBytes is the size from which on a put or a transaction is bulk.
	BulkBytes = 8 << 10
	// bulkOps is the number of operations from which on a transaction is bulk.
	bulkOps = 16
	// SmallRange is the largest limit with which a range of several keys is not bulk. The recipe of a lock asks for one key.
	SmallRange = 100
)

// IsBulk reports whether applying a command may take long. Commands on leases and names are never bulk: a renewal, or the
// end of a lease, may wait for them.
func IsBulk(c Command) bool {
	switch c := c.(type) {
	case keyspace.PutRequest:
		return len(c.Key)+len(c.Value) >= BulkBytes
	case keyspace.DeleteRequest:
		return len(c.End) > 0
	case keyspace.TxnRequest:
		return c.Weight() >= bulkOps || c.Bytes() >= BulkBytes || hasIntervals(c)
	}
	return false
}

// hasIntervals reports whether a transaction reads or deletes intervals of keys, however deep.
func hasIntervals(txn keyspace.TxnRequest) bool {
	return slices.ContainsFunc(txn.Compare, func(c keyspace.Compare) bool { return len(c.End) > 0 }) ||
		slices.ContainsFunc(txn.Success, isInterval) || slices.ContainsFunc(txn.Failure, isInterval)
}

func isInterval(op keyspace.TxnOp) bool {
	switch op := op.(type) {
	case keyspace.RangeRequest:
		return len(op.End) > 0 && (op.Limit <= 0 || op.Limit > SmallRange)
	case keyspace.DeleteRequest:
		return len(op.End) > 0
	case keyspace.TxnRequest:
		return hasIntervals(op)
	}
	return false
}

// ApproximateBytes returns about how many bytes a bulk command has. It is always more than 0.
func ApproximateBytes(c Command) int {
	const overhead = 256
	switch c := c.(type) {
	case keyspace.PutRequest:
		return overhead + len(c.Key) + len(c.Value)
	case keyspace.TxnRequest:
		return overhead*(1+c.Weight()) + c.Bytes()
	}
	return overhead
}

// NeedsSpace reports whether a command may leave more data behind than it finds. A delete writes too, but compaction can
// remove what it deleted.
func NeedsSpace(c Command) bool {
	switch c := c.(type) {
	case keyspace.PutRequest, Grant, ownership.Claim, ownership.RaiseMark, ownership.Prefer:
		return true
	case access.AddUser, access.AddRole, access.GrantRole, access.GrantPermission, access.GrantRight:
		return true
	case ownership.Finish:
		return c.Tick != ""
	case keyspace.TxnRequest:
		return anyCommand(c.Success, NeedsSpace) || anyCommand(c.Failure, NeedsSpace)
	}
	return false
}

// StaysInMemory reports whether a command may leave something in memory: a lease, or a key attached to one.
func StaysInMemory(c Command) bool {
	switch c := c.(type) {
	case Grant, ownership.Claim:
		return true
	case keyspace.PutRequest:
		return c.Lease != 0
	case keyspace.TxnRequest:
		return anyCommand(c.Success, StaysInMemory) || anyCommand(c.Failure, StaysInMemory)
	}
	return false
}

// anyCommand reports whether a command with a property is among the operations of a branch of a transaction, however
// deep. Nobody knows before it is applied which branch a transaction takes, so callers look at both.
func anyCommand(ops []keyspace.TxnOp, has func(Command) bool) bool {
	return slices.ContainsFunc(ops, func(op keyspace.TxnOp) bool {
		c, writes := op.(Command)
		return writes && has(c)
	})
}

// LeaseMade returns the id of the lease that a command makes. ok is false if it makes none.
func LeaseMade(c Command) (id lessor.ID, ok bool) {
	switch c := c.(type) {
	case Grant:
		return c.Lease, true
	case ownership.Claim:
		return c.Lease, true
	}
	return lessor.NoLease, false
}
