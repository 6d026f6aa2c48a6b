package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Compare returns the condition that makes a transaction of one's own commit only if the lease, which must
// have been told to hold its name, still does: put it among the Compare of a TxnRequest. l is what Raw of the
// root package's Lease returns.
func Compare(l backend.Lease) (*pb.Compare, error) {
	own, err := gated(l)
	if err != nil {
		return nil, err
	}
	return own.condition(), nil
}

// Key returns the ownership key and its create revision, for those who build the condition of [Compare] with
// another library: that the create revision of this key is this.
func Key(l backend.Lease) (key []byte, createRevision int64, err error) {
	own, err := gated(l)
	if err != nil {
		return nil, 0, err
	}
	return []byte(own.key), own.created, nil
}

// LeaseID returns the etcd lease, to which keys of one's own can be bound: they are deleted when it is
// released or ends.
func LeaseID(l backend.Lease) (int64, error) {
	own, err := gated(l)
	if err != nil {
		return 0, err
	}
	return own.id, nil
}

// gated is known for functions that need no connection.
func gated(l backend.Lease) (*lease, error) {
	var b *Backend
	if own, ok := l.(*lease); ok && own != nil {
		b = own.b
	}
	return endpoints.Known[*lease](b, l)
}
