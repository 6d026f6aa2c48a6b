package rightsmatrix

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// snapshotAhead bounds the parts that the server sends ahead of the client. The window and gRPC's queue take two parts each, and
// one waits at each end.
const snapshotAhead = 8

// snapshots open both kinds of snapshots. The function that they return reads one part.
var snapshots = map[string]func(context.Context, *grpc.ClientConn) (next func() error, err error){
	"etcd's": func(ctx context.Context, conn *grpc.ClientConn) (func() error, error) {
		stream, err := pb.NewMaintenanceClient(conn).Snapshot(ctx, &pb.SnapshotRequest{})
		return func() error { return errorOf(stream.Recv()) }, err
	},
	"a member's": func(ctx context.Context, conn *grpc.ClientConn) (func() error, error) {
		stream, err := leasekeeperv1.NewMembersClient(conn).Snapshot(ctx, &leasekeeperv1.SnapshotRequest{})
		return func() error { return errorOf(stream.Recv()) }, err
	},
}

// TestSnapshotEndsWithTheRoleRoot takes the role root from a user who reads snapshots part by part. The parts on their way
// arrive, and no other: the streams end with PermissionDenied. The end of a token ends none.
func TestSnapshotEndsWithTheRoleRoot(t *testing.T) {
	w := newWorld(t, false)
	random := rand.NewChaCha8([32]byte{})
	for i := range 4 {
		value := make([]byte, 1<<20)
		random.Read(value) // so that no format can make it smaller
		ctx, cancel := w.as("root")
		_, err := pb.NewKVClient(w.leader.conn).Put(ctx, &pb.PutRequest{Key: fmt.Append(nil, "half/long/", i), Value: value})
		cancel()
		wantOK(t, err)
	}
	w.makeRoot()
	for what, open := range snapshots {
		for through := range w.through {
			begin := func() func() error {
				next, err := open(withToken(w.context(), w.tokens["half"]), w.narrow(through))
				wantOK(t, err)
				wantOK(t, next())
				return next
			}
			kept := begin()
			w.endTokens(t)
			if parts, end := restOf(kept); parts < 4<<20/(32<<10) || end != "end" {
				t.Errorf("%s through the %s, after the token has ended: %d more parts, and %s", what, through, parts, end)
			}
			cut := begin()
			rootRevoked.take(w)
			w.login("root")
			if parts, end := restOf(cut); parts > snapshotAhead || end != denied {
				t.Errorf("%s through the %s, after the loss of the role root: %d more parts, and %s", what, through, parts, end)
			}
			rootRevoked.giveBack(w)
			w.login()
		}
	}
}

// restOf reads what follows of a stream. It returns the number of its parts, and how it ends.
func restOf(next func() error) (parts int, end outcome) {
	for ; ; parts++ {
		if err := next(); err == io.EOF {
			return parts, "end"
		} else if err != nil {
			return parts, outcomeOf(status.Code(err), status.Convert(err).Message())
		}
	}
}
