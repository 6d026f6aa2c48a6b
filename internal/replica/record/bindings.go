package record

import (
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Bindings gives the keyspace access to the lessor.
type Bindings struct {
	Lessor *lessor.Lessor
	// Attaching is called before a key is attached to a lease; nil is not called.
	Attaching func(lessor.ID)
}

// Generation returns the generation of a lease, and whether there is one.
func (b Bindings) Generation(id int64) (uint64, bool) {
	lease, ok := b.Lessor.Lookup(lessor.ID(id))
	return uint64(lease.Generation), ok
}

// Attach attaches a key to a lease that is there.
func (b Bindings) Attach(id int64, key []byte) {
	if b.Attaching != nil {
		b.Attaching(lessor.ID(id))
	}
	if err := b.Lessor.Attach(lessor.ID(id), []lessor.Item{{Key: string(key)}}); err != nil {
		panic(fmt.Sprintf("record: key %q cannot be attached to lease %x, which was there a moment ago: %v", key, uint64(id), err))
	}
}

// Detach detaches a key from its lease.
func (b Bindings) Detach(id int64, key []byte) {
	if err := b.Lessor.Detach(lessor.ID(id), []lessor.Item{{Key: string(key)}}); err != nil {
		panic(fmt.Sprintf("record: key %q cannot be detached from lease %x: %v", key, uint64(id), err))
	}
}

// RecoverBindings attaches every key to the lease that it names, and restores the waiters of names.
func RecoverBindings(store *keyspace.Store, names *ownership.Registry, leases *lessor.Lessor) error {
	var failed error
	err := store.Keys(func(kv keyspace.KV) bool {
		names.RestoreKey(kv.Key, lessor.ID(kv.Lease), kv.CreateRevision)
		if kv.Lease == 0 {
			return true
		}
		if err := leases.Attach(lessor.ID(kv.Lease), []lessor.Item{{Key: string(kv.Key)}}); err != nil {
			failed = &DamagedError{What: fmt.Sprintf("key %q is attached to lease %x", kv.Key, uint64(kv.Lease)), Err: err}
		}
		return failed == nil
	})
	return errors.Join(err, failed)
}
