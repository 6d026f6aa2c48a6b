package intake

import (
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A HoldOff keeps a restored member from granting names for a time. The member does not know which names were granted
// after its data was copied, and their holders act until their leases are over. So until then no lease begins or ends,
// and no key is attached to a lease or taken from one. Then nobody becomes the holder of a name, or of a lock that
// clients make of keys. The zero HoldOff is over.
type HoldOff struct {
	Until clock.Instant // as record.LoadHoldOff returns it
}

// Left returns how long the hold-off still lasts, 0 if it is over.
func (h HoldOff) Left(now clock.Instant) time.Duration {
	if h == (HoldOff{}) || now.After(h.Until) {
		return 0
	}
	return max(1, now.Until(h.Until))
}

// Refuses reports whether the hold-off refuses a command. The member makes h the zero HoldOff once it is over.
func (h HoldOff) Refuses(c entry.Command, leases *lessor.Lessor) bool {
	return h != (HoldOff{}) && mayGrant(c, leases)
}

// mayGrant reports whether a command can begin or end a lease, or change which keys are attached to one.
func mayGrant(c entry.Command, leases *lessor.Lessor) bool {
	attached := func(key []byte) bool { return leases.GetLease(lessor.Item{Key: string(key)}) != lessor.NoLease }
	switch c := c.(type) {
	case keyspace.PutRequest:
		return c.Lease != 0 || attached(c.Key)
	case keyspace.DeleteRequest:
		return len(c.End) > 0 || attached(c.Key)
	case keyspace.TxnRequest:
		may := func(op keyspace.TxnOp) bool {
			c, writes := op.(entry.Command)
			return writes && mayGrant(c, leases)
		}
		return slices.ContainsFunc(c.Success, may) || slices.ContainsFunc(c.Failure, may)
	case entry.Compact, ownership.Pin, ownership.Unpin, ownership.RaiseMark:
		return false
	}
	return true
}
