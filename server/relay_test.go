package server

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

func waitingClaim(t *testing.T, f *front, name string, lease int64) leasekeeperv1.Leasekeeper_AcquireClient {
	t.Helper()
	stream, err := leasekeeperv1.NewLeasekeeperClient(f.conn).Acquire(f.ctx(), &leasekeeperv1.AcquireRequest{
		Name: name, Lease: lease, TtlMs: 60_000, Wait: true, Holder: &leasekeeperv1.Holder{Id: "me"},
	})
	wantOK(t, err)
	resp, err := stream.Recv()
	wantOK(t, err)
	wantEqual(t, "state", resp.State, leasekeeperv1.AcquireResponse_WAITING)
	return stream
}

// A claim that waits at the leader learns of its turn through the follower that received it.
func TestAcquireStreamIsRelayedToTheLeader(t *testing.T) {
	p := startPair(t)
	acquireAt(t, p.fronts[0], "n", 1)
	stream := waitingClaim(t, p.fronts[1], "n", 2)
	_, err := leasekeeperv1.NewLeasekeeperClient(p.fronts[1].conn).Release(p.fronts[1].ctx(), &leasekeeperv1.ReleaseRequest{Name: "n", Lease: 1})
	wantOK(t, err)
	resp, err := stream.Recv()
	wantOK(t, err)
	wantEqual(t, "state", resp.State, leasekeeperv1.AcquireResponse_HELD)
	_, err = stream.Recv()
	if !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestHoldStreamIsRelayedToTheLeader(t *testing.T) {
	p := startPair(t)
	stream, err := leasekeeperv1.NewLeasekeeperClient(p.fronts[1].conn).Hold(p.fronts[1].ctx())
	wantOK(t, err)
	for i := range uint64(100) {
		wantOK(t, stream.Send(&leasekeeperv1.HoldRequest{
			Holder: &leasekeeperv1.Holder{Id: "me"},
			Claims: []*leasekeeperv1.HoldClaim{{Number: i + 1, Name: "n", Lease: int64(i) + 1, TtlMs: 60_000, Wait: true}},
		}))
	}
	wantOK(t, stream.CloseSend())
	answered := make(map[uint64]bool)
	for len(answered) < 100 {
		resp, err := stream.Recv()
		wantOK(t, err)
		for _, a := range resp.Answers {
			answered[a.Number] = true
		}
	}
	wantEqual(t, "revision of the follower", p.fronts[1].node.Header().Revision, 1)
}

func TestWatchOfNamesIsRelayedToTheLeader(t *testing.T) {
	p := startPair(t)
	acquireAt(t, p.fronts[0], "n", 1)
	stream, err := leasekeeperv1.NewLeasekeeperClient(p.fronts[1].conn).Watch(p.fronts[1].ctx(), &leasekeeperv1.WatchRequest{})
	wantOK(t, err)
	for {
		resp, err := stream.Recv()
		wantOK(t, err)
		if len(resp.Events) > 0 {
			wantEqual(t, "name", resp.Events[0].Info.Name, "n")
			return
		}
	}
}

// When another member leads, streams that need the leader end, both at the relaying member and at the former leader.
func TestStreamsEndWithTheLeadership(t *testing.T) {
	p := startPair(t)
	acquireAt(t, p.fronts[0], "n", 1)
	relayed, local := waitingClaim(t, p.fronts[1], "n", 2), waitingClaim(t, p.fronts[0], "n", 3)
	hold, err := leasekeeperv1.NewLeasekeeperClient(p.fronts[1].conn).Hold(p.fronts[1].ctx())
	wantOK(t, err)
	wantOK(t, hold.Send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{{Number: 1, Name: "n", Lease: 4, TtlMs: 60_000}}}))
	_, err = hold.Recv() // so the claim has reached the leader
	wantOK(t, err)
	renew, err := leasekeeperv1.NewLeasekeeperClient(p.fronts[1].conn).Renew(p.fronts[1].ctx())
	wantOK(t, err)
	wantOK(t, renew.Send(&leasekeeperv1.RenewRequest{Number: 1}))
	_, err = renew.Recv()
	wantOK(t, err)
	p.lead(1)
	for _, recv := range []func() (*leasekeeperv1.AcquireResponse, error){relayed.Recv, local.Recv} {
		_, err := recv()
		wantCode(t, err, codes.Unavailable)
		wantEqual(t, "reason", reasonIn(err), "UNAVAILABLE")
	}
	_, err = hold.Recv()
	wantCode(t, err, codes.Unavailable)
	// Renewals reach the new leader on the same stream.
	wantOK(t, renew.Send(&leasekeeperv1.RenewRequest{Number: 2}))
	_, err = renew.Recv()
	wantOK(t, err)
}

// A claim that was sent to the leader may have been made if the connection breaks before the answer.
func TestLostAnswerOfARelayedClaimIsAnUnknownOutcome(t *testing.T) {
	p := startPair(t)
	acquireAt(t, p.fronts[0], "n", 1)
	waiting := waitingClaim(t, p.fronts[1], "n", 2)
	sent := make(chan struct{})
	p.nodes[0].claim = func(ctx context.Context) error {
		close(sent)
		<-ctx.Done()
		return ctx.Err()
	}
	stream, err := leasekeeperv1.NewLeasekeeperClient(p.fronts[1].conn).Acquire(p.fronts[1].ctx(), &leasekeeperv1.AcquireRequest{
		Name: "m", TtlMs: 1000, Holder: &leasekeeperv1.Holder{Id: "me"},
	})
	wantOK(t, err)
	<-sent
	p.cable.cut(p.ids[0])
	_, err = stream.Recv()
	wantEqual(t, "reason", reasonIn(err), "UNKNOWN_OUTCOME")
	_, err = waiting.Recv() // its client knows that it waits
	wantEqual(t, "reason", reasonIn(err), "UNAVAILABLE")
}

// A leader that is cut off does not know that another member leads. The members that relay streams to it do.
func TestRelayedStreamsEndAlthoughTheFormerLeaderIsCutOff(t *testing.T) {
	p := startPair(t)
	acquireAt(t, p.fronts[0], "n", 1)
	relayed := waitingClaim(t, p.fronts[1], "n", 2)
	p.deaf(0)
	p.lead(1)
	_, err := relayed.Recv()
	wantCode(t, err, codes.Unavailable)
	wantEqual(t, "reason", reasonIn(err), "UNAVAILABLE")
}
