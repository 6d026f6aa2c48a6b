package remote

import (
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Compare returns the condition that the lease holds its name. Put it among the Compare of a TxnRequest to our server's etcd
// API: the transaction then commits only while the lease holds the name. The lease must have been granted its name. l is what
// Raw of the root package's Lease returns.
func Compare(l backend.Lease) (*pb.Compare, error) {
	own, err := gated(l)
	if err != nil {
		return nil, err
	}
	return own.condition(), nil
}

// Key returns the ownership key and its create revision. With another library, the condition of [Compare] is that the create
// revision of this key is the one returned.
func Key(l backend.Lease) (key []byte, createRevision int64, err error) {
	own, err := gated(l)
	if err != nil {
		return nil, 0, err
	}
	return own.ownershipKey(), int64(own.token()), nil
}

// LeaseID returns the id of the lease in the server's etcd API. The server deletes keys that are attached to it when the
// lease is released or ends.
func LeaseID(l backend.Lease) (int64, error) {
	own, err := gated(l)
	if err != nil {
		return 0, err
	}
	return own.id, nil
}

// gated returns a lease of any backend of this package, if it has a token.
func gated(l backend.Lease) (*lease, error) {
	var b *Backend
	if own, ok := l.(*lease); ok && own != nil {
		b = own.b
	}
	return endpoints.Known[*lease](b, l)
}

// ownershipKey is the key that owns the name on the server.
func (l *lease) ownershipKey() []byte {
	return []byte(l.wire + "/" + strconv.FormatInt(l.id, 16))
}

// condition is the condition that the ownership key is there. It is there while the lease waits, too.
func (l *lease) condition() *pb.Compare {
	return &pb.Compare{
		Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, Key: l.ownershipKey(),
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: int64(l.token())},
	}
}
