package server

import (
	"runtime"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// smallRange is the limit up to which a range of several keys is no bulk work.
const smallRange = 100

// newBulk returns the turns of bulk work: reads of history for watchers, and ranges of any number of keys. It leaves half
// of the processors to everything else, of which renewals and claims are.
func newBulk() *keyspace.Turns { return keyspace.NewTurns(runtime.GOMAXPROCS(0) / 2) }

// isBulk says whether a range may read much.
func isBulk(r *pb.RangeRequest) bool {
	return len(r.RangeEnd) > 0 && (r.Limit == 0 || r.Limit > smallRange)
}
