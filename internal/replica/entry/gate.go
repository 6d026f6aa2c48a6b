package entry

import (
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

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
