package server

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// Who asks for too much is told so, and nothing has happened then.
func TestNamesAreLimited(t *testing.T) {
	cfg := anyPort()
	cfg.MaxRequests, cfg.MaxWatchers = 1, 1
	f := startWith(t, cfg, nil)
	f.hold("n", 1, 60_000)
	waiting := f.wait("n", 2, 60_000)
	_, err := f.acquire(&leasekeeperv1.AcquireRequest{Name: "n", Lease: 3, TtlMs: 60_000, Wait: true}).stream.Recv()
	wantReason(t, err, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED)
	wantEqual(t, "waiting", f.info("n").Waiting, 1)
	f.release("n", 1) // which is no matter of those who wait
	waiting.next(leasekeeperv1.AcquireResponse_YOURS)

	f.watchNames("")
	stream, err := f.names().Watch(f.ctx(), &leasekeeperv1.WatchRequest{})
	wantOK(t, err)
	_, err = stream.Recv()
	wantReason(t, err, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED)
}

// A waiter's stream that its client leaves takes nothing with it, and leaves nothing behind in the server.
func TestWaiterLeaves(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	waiting := f.wait("n", 2, 60_000)
	wantEqual(t, "streams", f.server.limits.waiting.Load(), 1)
	waiting.cancel()
	eventually(t, "the stream has ended", func() bool { return f.server.limits.waiting.Load() == 0 })
	wantEqual(t, "waiting", f.info("n").Waiting, 1)
	f.release("n", 1)
	wantEqual(t, "holder", f.info("n").Lease, 2)
}
