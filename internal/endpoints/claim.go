package endpoints

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/leasekeeper/leasekeeper/backend"
)

// CheckClaim returns nil if a claim can be made at a store of those limits, else a [backend.ErrInvalid].
func (s Store) CheckClaim(c backend.Claim, l backend.Limits) error {
	if err := backend.CheckName(c.Name); err != nil {
		return err
	}
	if err := backend.CheckHolder(c.Holder); err != nil {
		return err
	}
	if c.ID == (backend.ID{}) {
		return fmt.Errorf("%w: the claim of %s has no ID", backend.ErrInvalid, c.Name)
	}
	if c.TTL < l.MinTTL || c.TTL > l.MaxTTL {
		return fmt.Errorf("%w: a TTL of %v: %s's are between %v and %v", backend.ErrInvalid, c.TTL, s.Name, l.MinTTL, l.MaxTTL)
	}
	return nil
}

// LeaseID makes the id of a lease, as etcd and our server have them, from that of a claim: positive, the same
// each time, and no more likely to be in use than random ones.
func LeaseID(id backend.ID) int64 {
	folded := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:])
	return max(1, int64(folded&math.MaxInt64))
}
