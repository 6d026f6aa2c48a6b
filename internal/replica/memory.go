package replica

import (
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
	return entry.StaysInMemory(c)
}

// writeAnswerShare is the part of Config.AnswerBytes that the answer to one request that writes may take.
const writeAnswerShare = 16
