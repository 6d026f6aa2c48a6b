package entry

import (
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A Command is a change of the replicated state, as the log carries it. The set is closed:
//
//   - keys: [keyspace.PutRequest], [keyspace.DeleteRequest], [keyspace.TxnRequest], [Compact]
//   - leases: [Grant], [Revoke]
//   - names: [ownership.Claim], [ownership.Release], [ownership.Revoke], [ownership.Transfer], [ownership.Finish],
//     [ownership.RaiseMark], [ownership.Prefer], [ownership.Pin], [ownership.Unpin]
//   - users, roles and rights: every [access.Command]
//   - decisions of a leader's lessor: [Expire], [Checkpoint]
type Command interface{ Command() }

// Grant makes a lease. The proposer has already chosen the ID and limited the TTL.
type Grant struct {
	Lease lessor.ID
	TTL   time.Duration
	// Owner is the user that the lease is granted to; empty if the request names no user. The log has it as the command's
	// caller.
	Owner string
}

// Revoke ends a lease.
type Revoke struct{ Lease lessor.ID }

// Compact makes revisions below Revision unreadable.
type Compact struct {
	Revision int64
	// Physical means that the requester waits until the answering member has removed the revisions from its
	// database. It concerns that member only, so the log does not carry it.
	Physical bool
}

// Expire ends leases whose time has run out by the lessor of one leader. All were decided together, so they share the
// term and the position of the decision.
type Expire []lessor.Expiry

// Checkpoint replicates the remaining times of leases by the lessor of one leader. All of Quiet were decided
// together, as in [Expire].
type Checkpoint struct {
	Quiet   []lessor.Checkpoint
	Cleared []lessor.Cleared // leases whose holders renew again
}

func (Grant) Command()      {}
func (Revoke) Command()     {}
func (Compact) Command()    {}
func (Expire) Command()     {}
func (Checkpoint) Command() {}

// Weight is roughly the work of applying a command: 1, or the number of its leases or operations.
func Weight(c Command) int {
	switch c := c.(type) {
	case Expire:
		return len(c)
	case Checkpoint:
		return len(c.Quiet) + len(c.Cleared)
	case keyspace.TxnRequest:
		return max(1, c.Weight())
	}
	return 1
}

var _ = []Command{
	keyspace.PutRequest{}, keyspace.DeleteRequest{}, keyspace.TxnRequest{},
	ownership.Claim{}, ownership.Release{}, ownership.Revoke{}, ownership.Transfer{}, ownership.Pin{}, ownership.Unpin{},
	ownership.Finish{}, ownership.RaiseMark{}, ownership.Prefer{},
}
