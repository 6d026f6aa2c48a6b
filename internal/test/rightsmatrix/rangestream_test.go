package rightsmatrix

import (
	"context"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// rangeParts is the number of parts of the long answer. The server reads at most two parts ahead of the client: one waits in the
// connection, and one for room in it.
const rangeParts = 6

// longRange is a RangeStream of half, through one member.
type longRange struct {
	through string
	stream  grpc.ServerStreamingClient[pb.RangeStreamResponse]
}

// narrow connects to a member with a window of a fixed size, which keeps the server from sending far ahead.
func (w *world) narrow(through string) *grpc.ClientConn {
	w.t.Helper()
	conn, err := grpc.NewClient(w.through[through].server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
	wantOK(w.t, err)
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// openLongRange reads the first part of the long answer.
func (w *world) openLongRange(ctx context.Context, through string) *longRange {
	w.t.Helper()
	conn := w.narrow(through)
	for {
		stream, err := pb.NewKVClient(conn).RangeStream(withToken(ctx, w.tokens["half"]), &pb.RangeRequest{Key: []byte("half/long/"), RangeEnd: []byte("half/long0")})
		wantOK(w.t, err)
		part, err := stream.Recv()
		if status.Code(err) == codes.Unavailable {
			continue // the cluster has no leader for a moment
		}
		wantOK(w.t, err)
		if keys := len(part.GetRangeResponse().GetKvs()); keys != 1 {
			w.t.Fatalf("the first part has %d keys", keys)
		}
		return &longRange{through, stream}
	}
}

// rest reads the rest of the answer. It returns the number of its parts, and how it ends.
func (l *longRange) rest() (parts int, end outcome) {
	return restOf(func() error { return errorOf(l.stream.Recv()) })
}

// TestRangeStreamEndsWithTheRight withdraws the right to a range in each way while a client reads it part by part. The server
// sends the parts that it has read before, and no other: the stream ends with PermissionDenied. The end of a token ends no stream.
func TestRangeStreamEndsWithTheRight(t *testing.T) {
	w := newWorld(t, false)
	for i := range rangeParts {
		ctx, cancel := w.as("root")
		_, err := pb.NewKVClient(w.leader.conn).Put(ctx, &pb.PutRequest{Key: fmt.Append(nil, "half/long/", i), Value: make([]byte, 1<<20)})
		cancel()
		wantOK(t, err)
	}
	play := func(by withdrawal) {
		t.Helper()
		var open []*longRange
		for through := range w.through {
			open = append(open, w.openLongRange(w.context(), through))
			kept := w.openLongRange(w.context(), through)
			w.endTokens(t)
			if parts, end := kept.rest(); parts != rangeParts-1 || end != "end" {
				t.Errorf("through the %s, after the token has ended: %d more parts, and %s", through, parts, end)
			}
		}
		by.take(w)
		w.login("root")
		for _, l := range open {
			if parts, end := l.rest(); parts > 2 || end != denied {
				t.Errorf("through the %s, after %s: %d more parts, and %s", l.through, by.name, parts, end)
			}
		}
		by.giveBack(w)
		w.login()
	}
	for _, by := range withdrawals {
		play(by)
	}
	w.makeRoot()
	play(rootRevoked)
}
