package endpoints

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Lease is a backend's own type of lease. B is the backend's type.
type Lease[B any] interface {
	comparable
	backend.Lease
	// Backend returns the backend that made the lease.
	Backend() B
	// Known reports whether the lease has a token. Without one, it is unknown whether its claim took effect.
	Known() bool
}

// Own returns a lease as the backend's own type, if that backend has made it. Otherwise it returns a [backend.ErrInvalid].
func Own[L Lease[B], B comparable](b B, l backend.Lease) (L, error) {
	var none L
	if own, ok := l.(L); ok && own != none && own.Backend() == b {
		return own, nil
	}
	return none, errForeign
}

var errForeign = fmt.Errorf("%w: another backend made that lease: use the one that claimed it", backend.ErrInvalid)

// Known is Own for calls that need a lease with a token.
func Known[L Lease[B], B comparable](b B, l backend.Lease) (L, error) {
	own, err := Own[L](b, l)
	if err == nil && !own.Known() {
		err = fmt.Errorf("%w: it is unknown whether the claim of %s took effect: claim it again with the same ID, or release it",
			backend.ErrInvalid, own.Name())
	}
	return own, err
}

// CheckClaim returns nil if a store with those limits can take a claim. Otherwise it returns a [backend.ErrInvalid].
func (s *Store) CheckClaim(c backend.Claim, l backend.Limits) error {
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

// LeaseID makes the id of a lease, as etcd and our server have them, from the ID of a claim. It is positive, the same each
// time, and no more likely to be in use than a random one.
func LeaseID(id backend.ID) int64 {
	folded := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:])
	return max(1, int64(folded&math.MaxInt64))
}

// Unit is the unit in which a store counts TTLs.
type Unit time.Duration

// Count returns a duration in that unit, rounded up.
func (u Unit) Count(d time.Duration) int64 {
	n := int64(d / time.Duration(u))
	if d%time.Duration(u) > 0 {
		n++
	}
	return n
}

// Duration returns the duration of n units, or the longest duration if that is beyond it.
func (u Unit) Duration(n int64) time.Duration {
	if n > math.MaxInt64/int64(u) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Duration(u)
}
