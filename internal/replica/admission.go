package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// admit returns why a command of a client is refused; nil if it is taken on.
func (r *Replica) admit(client string, c entry.Command) error {
	if r.intake.Full(client, c) {
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

// leasesFull reports whether one more lease would be too many. Grants in flight count as if they succeeded, so the
// limit holds however many come together. A lease that ends makes room only when its end is applied. A grant of an id
// that exists passes, so that its client learns that.
func (r *Replica) leasesFull(id lessor.ID) bool {
	if r.cfg.MaxLeases <= 0 || r.lessor.Len()+r.intake.Making() < r.cfg.MaxLeases {
		return false
	}
	_, exists := r.lessor.Lookup(id)
	return !exists
}

// DefaultMaxRequestBytes is the size of the largest request, as in etcd.
const DefaultMaxRequestBytes = 3 << 19

// maxCommandBytes bounds the bytes of one command of a client. Its keys and values were bounded before it came here;
// this bound adds what their encoding takes.
func (r *Replica) maxCommandBytes() int {
	return max(r.cfg.MaxRequestBytes, DefaultMaxRequestBytes) + commandOverhead
}

// commandOverhead is more bytes than encoding adds to the keys and values of the largest transaction.
const commandOverhead = 512 << 10
