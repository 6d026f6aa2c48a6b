package remote

import (
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Compare returns the condition that makes a transaction of one's own, through the server's etcd API, commit
// only if the lease, which must have been told to hold its name, still does: put it among the Compare of a
// TxnRequest. l is what Raw of the root package's Lease returns.
func Compare(l backend.Lease) (*pb.Compare, error) {
	own, err := gated(l)
	if err != nil {
		return nil, err
	}
	return own.compare(), nil
}

// Key returns the ownership key and its create revision, for those who build the condition of [Compare] with
// another library: that the create revision of this key is this.
func Key(l backend.Lease) (key []byte, createRevision int64, err error) {
	own, err := gated(l)
	if err != nil {
		return nil, 0, err
	}
	return own.key(), int64(own.token), nil
}

// LeaseID returns the lease as the server's etcd API knows it, to which keys of one's own can be bound: they
// are deleted when it is released or ends.
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
	return b.known(l)
}

// key is the ownership key.
func (l *lease) key() []byte {
	return []byte(l.wire + "/" + strconv.FormatInt(l.id, 16))
}

// compare holds exactly while the key is there. In line it is there as well.
func (l *lease) compare() *pb.Compare {
	return &pb.Compare{
		Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, Key: l.key(),
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: int64(l.token)},
	}
}
