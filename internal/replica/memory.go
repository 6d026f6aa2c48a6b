package replica

import (
	"slices"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// Memory is an event: whether the process has memory left for more state. Without it the replica refuses nothing. What
// stays in memory until a client gives it back is refused while it is short: leases, claims, and keys attached to leases.
// Renewals, releases, deletes and the ends of leases go on.
type Memory struct{ Short bool }

func (Memory) event() {}

// lacksMemory reports whether a command is refused because memory is short. A claim that is there already may be repeated.
func (r *Replica) lacksMemory(c entry.Command) bool {
	if !r.memoryShort {
		return false
	}
	if claim, ok := c.(ownership.Claim); ok {
		_, there := r.names.ClaimOf(claim.Lease)
		return !there
	}
	return staysInMemory(c)
}

// staysInMemory reports whether a command may leave something in memory.
func staysInMemory(c entry.Command) bool {
	switch op := c.(type) {
	case entry.Grant, ownership.Claim:
		return true
	case keyspace.PutRequest:
		return op.Lease != 0
	case keyspace.TxnRequest:
		return attachesIn(op.Success) || attachesIn(op.Failure)
	}
	return false
}

// attachesIn reports whether an operation, however deep, attaches a key to a lease. Which branch will be taken is not
// known.
func attachesIn(ops []keyspace.TxnOp) bool {
	return slices.ContainsFunc(ops, func(op keyspace.TxnOp) bool {
		c, writes := op.(entry.Command)
		return writes && staysInMemory(c)
	})
}

// writeAnswerShare is the part of Config.AnswerBytes that the answer to one request that writes may take.
const writeAnswerShare = 16
