package server

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// names returns a client of leasekeeper.v1.
func (f *front) names() leasekeeperv1.LeasekeeperClient {
	return leasekeeperv1.NewLeasekeeperClient(f.conn)
}

// wantReason checks the code and the reason, by which programs tell errors apart.
func wantReason(t testing.TB, err error, code codes.Code, reason leasekeeperv1.ErrorReason) {
	t.Helper()
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == "leasekeeper" && info.Reason == reason.String() && status.Code(err) == code {
			return
		}
	}
	t.Errorf("got %v with details %v, want %v %v", err, status.Convert(err).Details(), code, reason)
}

func holder(id string) *leasekeeperv1.Holder {
	return &leasekeeperv1.Holder{Id: id, Host: "here", Pid: 7}
}

// acquiring is an open Acquire stream.
type acquiring struct {
	f      *front
	stream leasekeeperv1.Leasekeeper_AcquireClient
	cancel context.CancelFunc
}

func (f *front) acquire(r *leasekeeperv1.AcquireRequest) *acquiring {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.ctx())
	f.t.Cleanup(cancel)
	stream, err := f.names().Acquire(ctx, r)
	wantOK(f.t, err)
	return &acquiring{f, stream, cancel}
}

// next returns the next answer, which must have the given state.
func (a *acquiring) next(state leasekeeperv1.AcquireResponse_State) *leasekeeperv1.AcquireResponse {
	a.f.t.Helper()
	resp, err := a.stream.Recv()
	wantOK(a.f.t, err)
	if resp.State != state {
		a.f.t.Fatalf("got %v, want %v", resp, state)
	}
	return resp
}

func (a *acquiring) ends() {
	a.f.t.Helper()
	if resp, err := a.stream.Recv(); !errors.Is(err, io.EOF) {
		a.f.t.Errorf("the stream goes on with %v, %v", resp, err)
	}
}

// hold acquires a free name.
func (f *front) hold(name string, lease, ttl int64) *leasekeeperv1.AcquireResponse {
	f.t.Helper()
	a := f.acquire(&leasekeeperv1.AcquireRequest{Name: name, Lease: lease, TtlMs: ttl, Holder: holder("me")})
	resp := a.next(leasekeeperv1.AcquireResponse_HELD)
	a.ends()
	return resp
}

// wait queues a claim for a held name.
func (f *front) wait(name string, lease, ttl int64) *acquiring {
	f.t.Helper()
	a := f.acquire(&leasekeeperv1.AcquireRequest{Name: name, Lease: lease, TtlMs: ttl, Holder: holder("me"), Wait: true})
	a.next(leasekeeperv1.AcquireResponse_WAITING)
	return a
}

func (f *front) info(name string) *leasekeeperv1.NameInfo {
	f.t.Helper()
	resp, err := f.names().Get(f.ctx(), &leasekeeperv1.GetRequest{Name: name})
	wantOK(f.t, err)
	return resp.Info
}

func (f *front) history(name string) []*leasekeeperv1.Tenure {
	f.t.Helper()
	resp, err := f.names().History(f.ctx(), &leasekeeperv1.HistoryRequest{Name: name})
	wantOK(f.t, err)
	return resp.Tenures
}

func (f *front) release(name string, lease int64) bool {
	f.t.Helper()
	resp, err := f.names().Release(f.ctx(), &leasekeeperv1.ReleaseRequest{Name: name, Lease: lease})
	wantOK(f.t, err)
	return resp.Ended
}

// A free name is acquired with one log entry. Its token is the create revision of its key.
func TestAcquiredNameHasOneLogEntryAndTheKeysToken(t *testing.T) {
	f := startFront(t)
	before, err := f.node.Status(f.ctx())
	wantOK(t, err)
	got := f.hold("jobs/nightly", 0x2a, 1500)
	after, err := f.node.Status(f.ctx())
	wantOK(t, err)
	wantEqual(t, "log entries", after.LogIndex-before.LogIndex, 1)
	wantEqual(t, "ttl", got.TtlMs, 1500)
	keys, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("jobs/nightly/2a")})
	wantOK(t, err)
	wantEqual(t, "keys", keys.Count, 1)
	wantEqual(t, "token", got.Token, uint64(keys.Kvs[0].CreateRevision))
	wantEqual(t, "lease of the key", keys.Kvs[0].Lease, 0x2a)

	info := f.info("jobs/nightly")
	if !info.Held || info.Lease != 0x2a || info.Token != got.Token || info.TtlMs != 1500 || info.Holder.GetId() != "me" ||
		info.Holder.GetHost() != "here" || info.RemainingMs <= 0 || info.RemainingMs > 1500 || info.Waiting != 0 {
		t.Errorf("got %v", info)
	}
	wantEqual(t, "released", f.release("jobs/nightly", 0x2a), true)
	wantEqual(t, "released again", f.release("jobs/nightly", 0x2a), false)
	if info := f.info("jobs/nightly"); info.Held || info.Token != got.Token || info.Lease != 0 {
		t.Errorf("after the release: %v", info)
	}
	past := f.history("jobs/nightly")
	if len(past) != 1 || past[0].Why != leasekeeperv1.Why_RELEASED || past[0].Token != got.Token || past[0].Holder.GetId() != "me" {
		t.Fatalf("history: %v", past)
	}
	if from, to := past[0].From.AsTime(), past[0].To.AsTime(); from.After(to) || time.Since(from) > time.Minute || time.Since(from) < -time.Second {
		t.Errorf("held from %v to %v", from, to)
	}
	if again := f.hold("jobs/nightly", 0x2b, 1500); again.Token <= got.Token {
		t.Errorf("token %d after %d", again.Token, got.Token)
	}
}

// A claim that does not wait leaves nothing behind. A waiting claim learns its place, and later its turn.
func TestAcquireOfAHeldNameIsRefusedOrWaits(t *testing.T) {
	f := startFront(t)
	first := f.hold("n", 1, 60_000)
	revision := f.node.Header().Revision
	refused := f.acquire(&leasekeeperv1.AcquireRequest{Name: "n", Lease: 2, TtlMs: 60_000, Holder: holder("you")})
	current := refused.next(leasekeeperv1.AcquireResponse_REFUSED).Current
	refused.ends()
	if current.GetToken() != first.Token || current.GetHolder().GetId() != "me" || current.GetRemainingMs() <= 0 {
		t.Errorf("it is held by %v", current)
	}
	wantEqual(t, "revision", f.node.Header().Revision, revision)
	leases, err := f.lease.LeaseLeases(f.ctx(), &pb.LeaseLeasesRequest{})
	wantOK(t, err)
	wantEqual(t, "leases", len(leases.Leases), 1)

	second := f.acquire(&leasekeeperv1.AcquireRequest{Name: "n", Lease: 3, TtlMs: 60_000, Holder: holder("a"), Wait: true})
	place := second.next(leasekeeperv1.AcquireResponse_WAITING)
	wantEqual(t, "place", place.Place, 1)
	third := f.acquire(&leasekeeperv1.AcquireRequest{Name: "n", Lease: 4, TtlMs: 60_000, Holder: holder("b"), Wait: true})
	wantEqual(t, "place", third.next(leasekeeperv1.AcquireResponse_WAITING).Place, 2)
	wantEqual(t, "waiting", f.info("n").Waiting, 2)

	f.release("n", 1)
	yours := second.next(leasekeeperv1.AcquireResponse_HELD)
	second.ends()
	wantEqual(t, "token", yours.Token, place.Token)
	f.release("n", 3)
	if last := third.next(leasekeeperv1.AcquireResponse_HELD); last.Token <= yours.Token {
		t.Errorf("token %d after %d", last.Token, yours.Token)
	}
	wantEqual(t, "holder", f.info("n").GetHolder().GetId(), "b")
}

// Rule G1: a repeated request receives the first answer again. Another request with the same id is refused.
func TestRepeatedAcquireReturnsTheSameLease(t *testing.T) {
	f := startFront(t)
	first := f.hold("n", 1, 60_000)
	revision := f.node.Header().Revision
	again := f.hold("n", 1, 60_000)
	wantEqual(t, "token", again.Token, first.Token)
	wantEqual(t, "revision", f.node.Header().Revision, revision)

	for what, r := range map[string]*leasekeeperv1.AcquireRequest{
		"name":   {Name: "other", Lease: 1, TtlMs: 60_000, Holder: holder("me")},
		"TTL":    {Name: "n", Lease: 1, TtlMs: 50_000, Holder: holder("me")},
		"holder": {Name: "n", Lease: 1, TtlMs: 60_000, Holder: holder("you")},
	} {
		_, err := f.acquire(r).stream.Recv()
		t.Log(what)
		wantReason(t, err, codes.AlreadyExists, leasekeeperv1.ErrorReason_LEASE_TAKEN)
	}
	f.grant(60, 9)
	_, err := f.acquire(&leasekeeperv1.AcquireRequest{Name: "m", Lease: 9, TtlMs: 60_000}).stream.Recv()
	wantReason(t, err, codes.AlreadyExists, leasekeeperv1.ErrorReason_LEASE_TAKEN)

	waiting := f.wait("n", 2, 60_000)
	waiting.cancel()
	if _, err := waiting.stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("a stream that its client leaves ends with %v", err)
	}
	wantEqual(t, "waiting", f.info("n").Waiting, 1)
	resumed := f.wait("n", 2, 60_000)
	f.release("n", 1)
	resumed.next(leasekeeperv1.AcquireResponse_HELD)
	wantEqual(t, "token of the holder", f.info("n").Lease, 2)
}

// A claim that arrives after its own release makes no lease.
func TestAcquireAfterItsReleaseMakesNoLease(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	f.release("n", 1)
	f.release("n", 2) // whose claim is still on its way
	for lease := range int64(2) {
		_, err := f.acquire(&leasekeeperv1.AcquireRequest{Name: "n", Lease: lease + 1, TtlMs: 60_000, Holder: holder("me")}).stream.Recv()
		wantReason(t, err, codes.NotFound, leasekeeperv1.ErrorReason_LOST)
	}
	wantEqual(t, "held", f.info("n").Held, false)
}

func TestInvalidAcquireIsRefused(t *testing.T) {
	f := startFront(t)
	for _, r := range []*leasekeeperv1.AcquireRequest{
		{Name: "", TtlMs: 1000}, {Name: "a//b", TtlMs: 1000}, {Name: "..", TtlMs: 1000}, {Name: "a\x00", TtlMs: 1000},
		{Name: strings.Repeat("n", 10_000), TtlMs: 1000},
		{Name: "n"}, {Name: "n", TtlMs: -1}, {Name: "n", TtlMs: 9_000_000_000_001}, {Name: "n", TtlMs: 1 << 62},
		{Name: "n", TtlMs: 1000, Lease: -1},
		{Name: "n", TtlMs: 1000, Holder: &leasekeeperv1.Holder{Text: strings.Repeat("t", 5000)}},
	} {
		_, err := f.acquire(r).stream.Recv()
		wantReason(t, err, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	}
	wantEqual(t, "the least TTL", f.hold("n", 1, 1).TtlMs, MinClaimTTL.Milliseconds())
	chosen := f.hold("m", 0, 1000)
	if chosen.Lease <= 0 {
		t.Errorf("the server chose lease %d", chosen.Lease)
	}
}

// A claim ends with its key, whatever deletes the key.
func TestDeletedOwnershipKeyEndsTheClaim(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	waiting := f.wait("n", 2, 60_000)
	_, err := f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{Key: []byte("n/1")})
	wantOK(t, err)
	waiting.next(leasekeeperv1.AcquireResponse_HELD)
	wantEqual(t, "why", f.history("n")[1].Why, leasekeeperv1.Why_DELETED)
	ttl, err := f.lease.LeaseTimeToLive(f.ctx(), &pb.LeaseTimeToLiveRequest{ID: 1})
	wantOK(t, err)
	wantEqual(t, "TTL of its lease", ttl.TTL, -1)

	// A key that was overwritten with another lease, or without one, no longer represents the claim.
	another := f.wait("n", 3, 60_000)
	f.put("n/2", "mine")
	another.next(leasekeeperv1.AcquireResponse_HELD)

	// A waiter learns that its claim has ended.
	lost := f.wait("n", 4, 60_000)
	_, err = f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{Key: []byte("n/4")})
	wantOK(t, err)
	_, err = lost.stream.Recv()
	wantReason(t, err, codes.NotFound, leasekeeperv1.ErrorReason_LOST)
}

// Only keys one level below the name that end in the id of their own lease enter its queue.
func TestOnlyOwnershipKeysEnterTheQueue(t *testing.T) {
	f := startFront(t)
	f.hold("jobs/nightly", 1, 60_000)
	f.hold("jobs", 2, 60_000)
	f.grant(60, 0xabc)
	f.put("free/xyz", "")
	f.put("free/ab", "")
	for _, key := range []string{"free/deep/abc", "free/0abc", "free/ABC", "free/abd"} {
		_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte(key), Lease: 0xabc})
		wantOK(t, err)
	}
	f.hold("free", 3, 60_000)
	wantEqual(t, "holder of free/deep", f.info("free/deep").Lease, 0xabc)
}

func TestWaiterExpiresInTheQueue(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	waiting := f.wait("n", 2, 300)
	_, err := waiting.stream.Recv()
	wantReason(t, err, codes.NotFound, leasekeeperv1.ErrorReason_LOST)
	if !strings.Contains(err.Error(), "EXPIRED") {
		t.Errorf("it does not say why: %v", err)
	}
	wantEqual(t, "waiting", f.info("n").Waiting, 0)
}
