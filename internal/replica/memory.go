package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// Memory is an event: whether the process has memory left for more state. A replica that never got one refuses
// nothing. While memory is short, the replica refuses commands whose effects stay in memory: grants, claims, and keys
// attached to leases. Renewals, releases, deletes and the ends of leases continue.
type Memory struct{ Short bool }

func (Memory) event() {}

// lacksMemory reports whether a command is refused because memory is short. A claim that exists already may be
// repeated.
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
