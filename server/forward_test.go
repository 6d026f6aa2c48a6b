package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// The leader serves these requests. The client of a follower sees no difference except the member in the header.
func TestFollowersForwardWrites(t *testing.T) {
	p := startPair(t)
	follower := p.fronts[1]
	put, err := follower.kv.Put(follower.ctx(), &pb.PutRequest{Key: []byte("k"), Value: []byte("v")})
	wantOK(t, err)
	wantEqual(t, "member", put.Header.MemberId, p.ids[1])
	wantEqual(t, "cluster", put.Header.ClusterId, p.fronts[0].node.Header().ClusterID)
	follower.grant(60, 7)
	ttl, err := follower.lease.LeaseTimeToLive(follower.ctx(), &pb.LeaseTimeToLiveRequest{ID: 7})
	wantOK(t, err)
	wantEqual(t, "granted TTL", ttl.GrantedTTL, 60)
	leases, err := follower.lease.LeaseLeases(follower.ctx(), &pb.LeaseLeasesRequest{})
	wantOK(t, err)
	wantEqual(t, "leases", len(leases.Leases), 1)
	txn, err := follower.kv.Txn(follower.ctx(), &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("l"), Lease: 7}}},
	}})
	wantOK(t, err)
	wantEqual(t, "succeeded", txn.Succeeded, true)
	_, err = follower.kv.DeleteRange(follower.ctx(), &pb.DeleteRangeRequest{Key: []byte("k")})
	wantOK(t, err)
	_, err = follower.kv.Compact(follower.ctx(), &pb.CompactionRequest{Revision: 2, Physical: true})
	wantOK(t, err)
	locked, err := v3lockpb.NewLockClient(follower.conn).Lock(follower.ctx(), &v3lockpb.LockRequest{Name: []byte("m")})
	wantOK(t, err)
	_, err = v3lockpb.NewLockClient(follower.conn).Unlock(follower.ctx(), &v3lockpb.UnlockRequest{Key: locked.Key})
	wantOK(t, err)
	won, err := v3electionpb.NewElectionClient(follower.conn).Campaign(follower.ctx(), &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: 7})
	wantOK(t, err)
	_, err = v3electionpb.NewElectionClient(follower.conn).Resign(follower.ctx(), &v3electionpb.ResignRequest{Leader: won.Leader})
	wantOK(t, err)
	_, err = follower.lease.LeaseRevoke(follower.ctx(), &pb.LeaseRevokeRequest{ID: 7})
	wantOK(t, err)

	wantEqual(t, "revision of the follower", p.fronts[1].node.Header().Revision, 1)
	if revision := p.fronts[0].node.Header().Revision; revision < 8 {
		t.Errorf("the leader is at revision %d", revision)
	}
}

func TestFollowersForwardRequestsForNames(t *testing.T) {
	p := startPair(t)
	follower := p.fronts[1]
	names := leasekeeperv1.NewLeasekeeperClient(follower.conn)
	token := acquireAt(t, follower, "jobs/a", 5)
	got, err := names.Get(follower.ctx(), &leasekeeperv1.GetRequest{Name: "jobs/a"})
	wantOK(t, err)
	wantEqual(t, "token", got.Info.Token, token)
	list, err := names.List(follower.ctx(), &leasekeeperv1.ListRequest{})
	wantOK(t, err)
	wantEqual(t, "names", len(list.Names), 1)
	_, err = names.Announce(follower.ctx(), &leasekeeperv1.AnnounceRequest{Name: "jobs/a", Lease: 5, Text: "x"})
	wantOK(t, err)
	_, err = names.Pin(follower.ctx(), &leasekeeperv1.PinRequest{Name: "jobs/a"})
	wantOK(t, err)
	_, err = names.Unpin(follower.ctx(), &leasekeeperv1.UnpinRequest{Name: "jobs/a"})
	wantOK(t, err)
	_, err = names.RaiseMark(follower.ctx(), &leasekeeperv1.RaiseMarkRequest{Name: "jobs/a", Lease: 5, Tick: "1"})
	wantOK(t, err)
	acquireAt(t, follower, "jobs/b", 6)
	_, err = names.Finish(follower.ctx(), &leasekeeperv1.FinishRequest{Name: "jobs/b", Lease: 6, Tick: "2"})
	wantOK(t, err)
	_, err = names.Prefer(follower.ctx(), &leasekeeperv1.PreferRequest{Name: "jobs/a", To: "nobody"})
	wantEqual(t, "reason", reasonIn(err), "NO_WAITER")
	replaced, err := names.ReplaceMark(follower.ctx(), &leasekeeperv1.ReplaceMarkRequest{Name: "jobs/c", New: &leasekeeperv1.Mark{Tick: "3"}})
	wantOK(t, err)
	wantEqual(t, "replaced", replaced.Replaced, true)
	released, err := names.Release(follower.ctx(), &leasekeeperv1.ReleaseRequest{Name: "jobs/a", Lease: 5})
	wantOK(t, err)
	wantEqual(t, "released", released.Ended, true)
	history, err := names.History(follower.ctx(), &leasekeeperv1.HistoryRequest{Name: "jobs/a"})
	wantOK(t, err)
	wantEqual(t, "tenures", len(history.Tenures), 1)
	wantEqual(t, "revision of the follower", follower.node.Header().Revision, 1)
}

// acquireAt acquires a name that is free.
func acquireAt(t *testing.T, f *front, name string, lease int64) (token uint64) {
	t.Helper()
	stream, err := leasekeeperv1.NewLeasekeeperClient(f.conn).Acquire(f.ctx(), &leasekeeperv1.AcquireRequest{
		Name: name, Lease: lease, TtlMs: 60_000, Holder: &leasekeeperv1.Holder{Id: "me"},
	})
	wantOK(t, err)
	resp, err := stream.Recv()
	wantOK(t, err)
	wantEqual(t, "state", resp.State, leasekeeperv1.AcquireResponse_HELD)
	if _, err = stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	return resp.Token
}

// Errors are the leader's, with all details.
func TestForwardedErrorsAreUnchanged(t *testing.T) {
	p := startPair(t)
	p.fronts[0].grant(60, 3)
	acquireAt(t, p.fronts[0], "held", 9)
	for what, call := range map[string]func(f *front) error{
		"lease exists": func(f *front) error {
			_, err := f.lease.LeaseGrant(f.ctx(), &pb.LeaseGrantRequest{TTL: 60, ID: 3})
			return err
		},
		"lease not found": func(f *front) error {
			_, err := f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 4})
			return err
		},
		"empty key": func(f *front) error { _, err := f.kv.Put(f.ctx(), &pb.PutRequest{}); return err },
		"too large": func(f *front) error {
			_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 2<<20)})
			return err
		},
		"session expired": func(f *front) error {
			_, err := v3lockpb.NewLockClient(f.conn).Lock(f.ctx(), &v3lockpb.LockRequest{Name: []byte("x"), Lease: 99})
			return err
		},
		"not held": func(f *front) error {
			_, err := leasekeeperv1.NewLeasekeeperClient(f.conn).Revoke(f.ctx(), &leasekeeperv1.RevokeRequest{Name: "free"})
			return err
		},
		"other token": func(f *front) error {
			_, err := leasekeeperv1.NewLeasekeeperClient(f.conn).Revoke(f.ctx(), &leasekeeperv1.RevokeRequest{Name: "held", Token: 1 << 40})
			return err
		},
		"invalid, on a stream": func(f *front) error {
			stream, err := leasekeeperv1.NewLeasekeeperClient(f.conn).Acquire(f.ctx(), &leasekeeperv1.AcquireRequest{Name: "//"})
			wantOK(t, err)
			_, err = stream.Recv()
			return err
		},
	} {
		at, through := status.Convert(call(p.fronts[0])), status.Convert(call(p.fronts[1]))
		if at.Code() == codes.OK || !proto.Equal(at.Proto(), through.Proto()) {
			t.Errorf("%s: the leader says %v, and through the other member it is %v", what, at.Proto(), through.Proto())
		}
	}
}

// A follower serves ranges, watches and maintenance itself.
func TestFollowersServeReadsAndMaintenance(t *testing.T) {
	p := startPair(t)
	follower := p.fronts[1]
	p.fronts[0].put("k", "leader")
	for _, serializable := range []bool{true, false} {
		got, err := follower.kv.Range(follower.ctx(), &pb.RangeRequest{Key: []byte("k"), Serializable: serializable})
		wantOK(t, err)
		wantEqual(t, "keys", len(got.Kvs), 0)
	}
	read, err := follower.kv.Txn(follower.ctx(), &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}},
	}})
	wantOK(t, err)
	wantEqual(t, "keys of a txn", len(read.Responses[0].GetResponseRange().Kvs), 0)
	st, err := follower.maintenance.Status(follower.ctx(), &pb.StatusRequest{})
	wantOK(t, err)
	wantEqual(t, "member", st.Header.MemberId, p.ids[1])
	wantEqual(t, "requests sent on", follower.server.forwarder.Sent(), 0)
}

// A member that another one wrongly regards as the leader forwards nothing.
func TestForwardedRequestIsNotForwardedAgain(t *testing.T) {
	p := startPair(t)
	p.lead(1)
	conn := p.cable.conns[p.ids[0]]
	_, err := pb.NewKVClient(conn).Put(limited(t, t.Context()), &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, rpctypes.ErrGRPCLeaderChanged)
	stream, err := leasekeeperv1.NewLeasekeeperClient(conn).Acquire(limited(t, t.Context()), &leasekeeperv1.AcquireRequest{
		Name: "n", TtlMs: 1000, Holder: &leasekeeperv1.Holder{Id: "me"},
	})
	wantOK(t, err)
	_, err = stream.Recv()
	wantCode(t, err, codes.Unavailable)
	for _, f := range p.fronts {
		wantEqual(t, "sent on", f.server.forwarder.Sent(), 0)
		wantEqual(t, "revision", f.node.Header().Revision, 1)
	}
}

// A follower is wrong about the leader for a while. It then looks again, and its client does not notice.
func TestForwardingRetriesAfterALeaderChange(t *testing.T) {
	p := startPair(t)
	p.nodes[0].put = func(context.Context) error {
		p.lead(1) // this was the leader when the other member looked
		return &replica.NotLeaderError{Leader: p.ids[1]}
	}
	p.fronts[1].put("k", "v")
	wantEqual(t, "revision of the new leader", p.fronts[1].node.Header().Revision, 2)
}

func TestForwardingWithoutLeaderFails(t *testing.T) {
	p := startPair(t)
	p.leader.Store(0)
	_, err := p.fronts[1].kv.Put(p.fronts[1].ctx(), &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	stream, err := leasekeeperv1.NewLeasekeeperClient(p.fronts[1].conn).Acquire(p.fronts[1].ctx(), &leasekeeperv1.AcquireRequest{Name: "n"})
	wantOK(t, err)
	_, err = stream.Recv()
	wantCode(t, err, codes.Unavailable)
}

// reasonIn returns the reason in an error of leasekeeper.v1.
func reasonIn(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}

// stuckPut makes puts at the leader hang until their context ends.
func stuckPut(p *pair) (reached chan struct{}) {
	reached = make(chan struct{})
	var once sync.Once
	p.nodes[0].put = func(ctx context.Context) error {
		once.Do(func() { close(reached) })
		<-ctx.Done()
		return ctx.Err()
	}
	return reached
}

// A deadline that the leader notices is one that the follower sent. If it is not the client's own, it is the follower's
// time limit.
func TestDeadlineAtTheLeaderIsTheFollowersTimeLimit(t *testing.T) {
	p := startPair(t)
	p.nodes[0].put = func(context.Context) error { return rpctypes.ErrGRPCDeadlineExceeded }
	_, err := p.fronts[1].kv.Put(p.fronts[1].ctx(), &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, rpctypes.ErrGRPCTimeout)
	wantEqual(t, "unknown outcomes", p.fronts[1].server.metrics.refused["unknown_outcome"].Load(), 1)
}

// A write that was sent may have taken effect if its answer is lost with the connection.
func TestLostAnswerOfAForwardedWriteIsAnUnknownOutcome(t *testing.T) {
	p := startPair(t)
	reached := stuckPut(p)
	result := make(chan error, 1)
	go func() {
		_, err := p.fronts[1].kv.Put(p.fronts[1].ctx(), &pb.PutRequest{Key: []byte("k")})
		result <- err
	}()
	<-reached
	p.cable.cut(p.ids[0])
	wantStatus(t, <-result, rpctypes.ErrGRPCTimeout)
	if p.fronts[1].server.metrics.refused["unknown_outcome"].Load() != 1 {
		t.Error("it does not count as an unknown outcome")
	}
	// From here on no request arrives, and the error says so.
	_, err := p.fronts[1].kv.Put(p.fronts[1].ctx(), &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	_, err = leasekeeperv1.NewLeasekeeperClient(p.fronts[1].conn).Get(p.fronts[1].ctx(), &leasekeeperv1.GetRequest{Name: "n"})
	wantEqual(t, "reason", reasonIn(err), "UNAVAILABLE")
}

// The former leader does not know yet that another member leads, or is cut off.
func TestForwardedRequestDoesNotWaitForAFormerLeader(t *testing.T) {
	p := startPair(t)
	reached := stuckPut(p)
	result := make(chan error, 1)
	go func() {
		_, err := p.fronts[1].kv.Put(p.fronts[1].ctx(), &pb.PutRequest{Key: []byte("k")})
		result <- err
	}()
	<-reached
	p.lead(1)
	wantStatus(t, <-result, rpctypes.ErrGRPCTimeout)
}

// The client's deadline is forwarded with the request.
func TestDeadlineOfAForwardedRequestIsKept(t *testing.T) {
	p := startPair(t)
	left := make(chan time.Duration, 1)
	p.nodes[0].put = func(ctx context.Context) error {
		end, _ := ctx.Deadline()
		left <- time.Until(end)
		return replica.ErrTooLarge
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := p.fronts[1].kv.Put(ctx, &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, rpctypes.ErrGRPCRequestTooLarge)
	if got := <-left; got > 3*time.Second {
		t.Errorf("the leader has %v", got)
	}
}
