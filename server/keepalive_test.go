package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

func (f *front) keepAlive(ctx context.Context) pb.Lease_LeaseKeepAliveClient {
	f.t.Helper()
	stream, err := f.lease.LeaseKeepAlive(ctx)
	wantOK(f.t, err)
	return stream
}

func send(t *testing.T, stream pb.Lease_LeaseKeepAliveClient, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		wantOK(t, stream.Send(&pb.LeaseKeepAliveRequest{ID: id}))
	}
}

func TestKeepAliveAnswersZeroForMissingLeases(t *testing.T) {
	f := startFront(t)
	f.grant(60, 7)
	stream := f.keepAlive(f.ctx())
	for _, c := range []struct{ id, ttl int64 }{{7, 60}, {99, 0}, {0, 0}, {7, 60}, {-1, 0}} {
		send(t, stream, c.id)
		resp, err := stream.Recv()
		wantOK(t, err)
		f.header(resp.Header, 1)
		wantEqual(t, "id and ttl", fmt.Sprint(resp.ID, resp.TTL), fmt.Sprint(c.id, c.ttl))
	}
}

func TestKeepAliveExtendsTheLease(t *testing.T) {
	t.Parallel()
	f := startFront(t)
	f.grant(2, 1)
	stream := f.keepAlive(f.ctx())
	for begun := time.Now(); time.Since(begun) < 3*time.Second; time.Sleep(200 * time.Millisecond) {
		send(t, stream, 1)
		resp, err := stream.Recv()
		wantOK(t, err)
		wantEqual(t, "ttl", resp.TTL, 2)
	}
}

// A client that has no more requests still receives all its answers, one for each request.
func TestKeepAliveAnswersAllAfterTheLastRequest(t *testing.T) {
	f := startFront(t)
	const leases, each = 40, 50
	for id := range int64(leases) {
		f.grant(60, id+1)
	}
	stream := f.keepAlive(f.ctx())
	for range each {
		for id := range int64(leases) {
			send(t, stream, id+1)
		}
	}
	wantOK(t, stream.CloseSend())
	answered := make(map[int64]int)
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		wantOK(t, err)
		wantEqual(t, "ttl", resp.TTL, 60)
		answered[resp.ID]++
	}
	for id := range int64(leases) {
		wantEqual(t, "answers", answered[id+1], each)
	}
	st, err := f.node.Status(f.ctx())
	wantEqual(t, "status", err, nil)
	wantEqual(t, "renewed", st.Renewed, leases*each)
}

// held is a member that answers renewals of id 1 only when the test lets it.
type held struct {
	mu      sync.Mutex
	waiting []func()
}

func (h *held) renew(n *node.Node) func([]lessor.ID, func(replica.Header, []replica.RenewedLease)) error {
	return func(ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error {
		var others []lessor.ID
		for _, id := range ids {
			if id != 1 {
				others = append(others, id)
				continue
			}
			h.mu.Lock()
			h.waiting = append(h.waiting, func() {
				answer(n.Header(), []replica.RenewedLease{{ID: 1, TTL: time.Minute}})
			})
			h.mu.Unlock()
		}
		return n.Renew(context.Background(), others, answer)
	}
}

func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, answer := range h.waiting {
		go answer()
	}
	h.waiting = nil
}

func TestSlowRenewalDoesNotDelayOthers(t *testing.T) {
	var h held
	f := startWith(t, anyPort(), func(n *node.Node) member { return &faulty{Node: n, renew: h.renew(n)} })
	f.grant(60, 2)
	stream := f.keepAlive(f.ctx())
	send(t, stream, 1, 2)
	resp, err := stream.Recv()
	wantOK(t, err)
	wantEqual(t, "first answer", resp.ID, 2)
	// Neither later requests nor the end of the requests wait for the slow renewal. Its answer still arrives.
	send(t, stream, 2)
	resp, err = stream.Recv()
	wantOK(t, err)
	wantEqual(t, "second answer", resp.ID, 2)
	wantOK(t, stream.CloseSend())
	h.release()
	resp, err = stream.Recv()
	wantOK(t, err)
	wantEqual(t, "last answer", resp.ID, 1)
	if _, err = stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last answer: %v", err)
	}
}

func TestKeepAliveEndsWithARetriableError(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		{replica.ErrNoLeader, rpctypes.ErrGRPCNoLeader},
		{node.ErrStopped, rpctypes.ErrGRPCStopped},
		{replica.ErrTooManyRequests, status.Error(codes.Unavailable, "etcdserver: too many requests")},
		{replica.ErrUnknownOutcome, rpctypes.ErrGRPCTimeout},
	} {
		outcome := func(ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error {
			if len(ids) == 1 && ids[0] == 1 {
				return c.err
			}
			for _, id := range ids {
				go answer(replica.Header{}, []replica.RenewedLease{{ID: id, Err: c.err}})
			}
			return nil
		}
		f := startWith(t, anyPort(), func(n *node.Node) member { return &faulty{Node: n, renew: outcome} })
		for _, id := range []int64{1, 2} {
			stream := f.keepAlive(f.ctx())
			send(t, stream, id)
			_, err := stream.Recv()
			wantStatus(t, err, c.want)
			wantCode(t, err, codes.Unavailable)
		}
	}
}

// A client sends without pause and never reads. Its own unread answers stop it: the server holds no more than its
// bound.
func TestKeepAliveStopsReadingFromSlowClient(t *testing.T) {
	t.Parallel()
	const bound = 64
	var asked atomic.Int64
	var started *node.Node
	cfg := anyPort()
	cfg.MaxRenewals = bound
	f := startWith(t, cfg, func(n *node.Node) member {
		started = n
		return &faulty{Node: n, renew: func(ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error {
			asked.Add(int64(len(ids)))
			return started.Renew(context.Background(), ids, answer)
		}}
	})
	f.grant(600, 1)
	stream := f.keepAlive(f.ctx())
	var sent atomic.Int64
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		for stream.Send(&pb.LeaseKeepAliveRequest{ID: 1}) == nil {
			sent.Add(1)
		}
	}()
	// Both windows of flow control fill up. The number of sent requests stops growing long before memory is short.
	last := int64(-1)
	eventually(t, "the client can send no more", func() bool {
		now := sent.Load()
		still := now == last && now > bound
		last = now
		time.Sleep(300 * time.Millisecond)
		return still
	})
	if ahead := sent.Load() - asked.Load(); ahead <= 0 {
		t.Errorf("all %d requests went to the member although no answer was read", sent.Load())
	}
	// When the client reads, the stream continues.
	for range sent.Load() {
		_, err := stream.Recv()
		wantOK(t, err)
	}
	eventually(t, "the client sends again", func() bool { return sent.Load() > last })
	stop := f.conn.Close()
	wantOK(t, stop)
	<-sending
}

func TestKeepAliveEndsWhenTheLeaderIsLost(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	f := startWith(t, anyPort(), func(n *node.Node) member {
		return &faulty{
			Node: n,
			serving: func() error {
				if lost.Load() {
					return replica.ErrNoLeader
				}
				return n.Serving()
			},
			renew: func([]lessor.ID, func(replica.Header, []replica.RenewedLease)) error { return nil }, // never answers
		}
	})
	stream := f.keepAlive(f.ctx())
	send(t, stream, 1)
	lost.Store(true)
	_, err := stream.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
}
