package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

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
