package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// admit says why a client's command is not taken on; nil if it is.
func (r *Replica) admit(c entry.Command) error {
	if r.intake.Full(c) {
		return ErrTooManyRequests
	}
	if id, ok := entry.LeaseMade(c); ok && r.leasesFull(id) {
		return ErrTooManyLeases
	}
	if r.lacksMemory(c) {
		return ErrNoMemory
	}
	return nil
}

// leasesFull says whether one more lease would be too many. Grants under way count as if they succeeded, so
// that the limit holds however many come at once; what ends meanwhile makes room only when its end is
// applied. A grant of an id that is taken is let through, to be told that.
func (r *Replica) leasesFull(id lessor.ID) bool {
	if r.cfg.MaxLeases <= 0 || r.lessor.Len()+r.intake.Making() < r.cfg.MaxLeases {
		return false
	}
	_, exists := r.lessor.Lookup(id)
	return !exists
}

// DefaultMaxRequestBytes is the size of the largest request, as in etcd.
const DefaultMaxRequestBytes = 3 << 19

// maxCommandBytes bounds one command of a client. Its keys and values were bounded before it came here, so
// this is for what encoding adds to them.
func (r *Replica) maxCommandBytes() int {
	return max(r.cfg.MaxRequestBytes, DefaultMaxRequestBytes) + commandOverhead
}

// commandOverhead is more than encoding adds to the keys and values of the largest txn.
const commandOverhead = 512 << 10
