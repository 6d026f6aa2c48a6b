package replica

import (
	"time"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// admit returns why a client's request is refused; nil if its command is taken on.
func (r *Replica) admit(client string, e Request) error {
	c := e.Command
	switch id, makes := entry.LeaseMade(c); {
	case r.lacksSpace(c):
		return ErrNoSpace
	case r.intake.Full(client, e.Caller, c):
		return ErrTooManyRequests
	case makes && r.leasesFull(id):
		return ErrTooManyLeases
	case r.lacksMemory(c):
		return ErrNoMemory
	case r.heldOff.Refuses(c, r.lessor):
		return ErrHeldOff
	}
	return nil
}

// repeats reports whether a command is a claim that exists already. It may be repeated, whatever is short.
func (r *Replica) repeats(c entry.Command) bool {
	claim, _ := c.(ownership.Claim) // of other commands there is none, and no lease has the id 0
	_, exists := r.names.ClaimOf(claim.Lease)
	return exists
}

// HoldOff returns for how long names are still not granted after a restore; 0 if they are.
func (r *Replica) HoldOff() time.Duration { return r.heldOff.Left(r.now) }

// endHoldOff removes the record of a hold-off that is over, so that none begins after the next restart of the machine.
func (r *Replica) endHoldOff() {
	if r.heldOff == (intake.HoldOff{}) || r.HoldOff() > 0 || r.halted || r.installing {
		return
	}
	r.heldOff = intake.HoldOff{}
	batch := r.db.NewBatch()
	record.Remove(batch, record.KeyHoldOff)
	r.persistOwn(persisting{}, batch)
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
