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
//   - names: [ownership.Claim], [ownership.Release], [ownership.Revoke], [ownership.Transfer], [ownership.Pin],
//     [ownership.Unpin]
//   - what a leader's lessor decides: [Expire], [Checkpoint]
type Command interface{ Command() }

// Grant makes a lease. The id and the TTL are final: the proposer has chosen and clamped them.
type Grant struct {
	Lease lessor.ID
	TTL   time.Duration
}

// Revoke ends a lease.
type Revoke struct{ Lease lessor.ID }

// Compact makes revisions below one unreadable.
type Compact struct {
	Revision int64
	// Physical is set if the requester waits until the revisions are removed from the database of the member that
	// answers. It concerns that member only: the log does not carry it.
	Physical bool
}

// Expire ends leases whose time has run out by the lessor of one leader. All of them were decided together: they share
// the term and the position of the decision.
type Expire []lessor.Expiry

// Checkpoint replicates what the lessor of one leader knows of leases' remaining time. What is in Quiet was decided
// together, as for [Expire].
type Checkpoint struct {
	Quiet   []lessor.Checkpoint
	Cleared []lessor.Cleared // leases that are being renewed again
}

func (Grant) Command()      {}
func (Revoke) Command()     {}
func (Compact) Command()    {}
func (Expire) Command()     {}
func (Checkpoint) Command() {}

// Weight is about how much there is to apply: 1, or the number of the leases or operations in the command.
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
}
