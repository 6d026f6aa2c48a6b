package ways

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/leasekeeper/leasekeeper/driver"
)

// CheckClaim returns nil if a claim can be made at a store of those limits, else a [driver.ErrInvalid].
func (s Store) CheckClaim(c driver.Claim, l driver.Limits) error {
	if err := driver.CheckName(c.Name); err != nil {
		return err
	}
	if err := driver.CheckHolder(c.Holder); err != nil {
		return err
	}
	if c.ID == (driver.ID{}) {
		return fmt.Errorf("%w: the claim of %s has no ID", driver.ErrInvalid, c.Name)
	}
	if c.TTL < l.MinTTL || c.TTL > l.MaxTTL {
		return fmt.Errorf("%w: a TTL of %v: %s's are between %v and %v", driver.ErrInvalid, c.TTL, s.Name, l.MinTTL, l.MaxTTL)
	}
	return nil
}

// LeaseID makes the id of a lease, as etcd and our server have them, from that of a claim: positive, the same
// each time, and no more likely to be in use than random ones.
func LeaseID(id driver.ID) int64 {
	folded := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:])
	return max(1, int64(folded&math.MaxInt64))
}
