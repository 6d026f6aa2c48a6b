package entry

import (
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// callerGate returns the version that a member needs to apply a command on behalf of its caller; 0 if it has none.
func callerGate(c *Prepared) gate.Version {
	if c.Caller == (access.Caller{}) {
		return 0
	}
	if _, _, ok := MarkAct(c.Command, c.Caller); ok {
		return gate.MarkActs
	}
	return gate.Access
}

// Gate returns the version to which a command belongs. Version 0 is as old as the log.
func Gate(c Command) gate.Version {
	switch c := c.(type) {
	case access.Command:
		return gate.Access
	case ownership.Finish, ownership.RaiseMark, ownership.Prefer:
		return gate.Marks
	case ownership.Claim:
		if c.Priority != 0 {
			return gate.Marks
		}
	case keyspace.TxnRequest:
		if c.Size() > keyspace.UsualTxnOps {
			return gate.LargeTxns
		}
	}
	return 0
}
