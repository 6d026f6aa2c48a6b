package server

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

func (f *front) finish(r *leasekeeperv1.FinishRequest) error {
	_, err := f.names().Finish(f.ctx(), r)
	return err
}

func (f *front) mark(name string) *leasekeeperv1.Mark {
	f.t.Helper()
	resp, err := f.names().GetMark(f.ctx(), &leasekeeperv1.GetMarkRequest{Name: name})
	wantOK(f.t, err)
	return resp.Mark
}

func wantMark(t *testing.T, got *leasekeeperv1.Mark, tick string, token uint64) {
	t.Helper()
	if got.GetTick() != tick || got.GetToken() != token || (got == nil) != (tick == "") {
		t.Errorf("the mark is %v, want %s of token %d", got, tick, token)
	}
}

func TestFinishRaisesTheMarkAndReleasesTheName(t *testing.T) {
	f := startFront(t)
	first := f.hold("n", 1, 60_000)
	second := f.wait("n", 2, 60_000)
	wantMark(t, f.mark("n"), "", 0)
	before := f.node.Header().Revision
	finish := &leasekeeperv1.FinishRequest{Name: "n", Lease: 1, Token: first.Token, Tick: "7"}
	wantOK(t, f.finish(finish))
	second.next(leasekeeperv1.AcquireResponse_HELD)
	wantEqual(t, "revision", f.node.Header().Revision, before+1)
	wantMark(t, f.mark("n"), "7", first.Token)
	wantEqual(t, "why", f.history("n")[1].Why, leasekeeperv1.Why_RELEASED)
	wantOK(t, f.finish(finish)) // repeated
	wantEqual(t, "revision", f.node.Header().Revision, before+1)
	wantReason(t, f.finish(&leasekeeperv1.FinishRequest{Name: "n", Lease: 9, Tick: "8"}), codes.NotFound, leasekeeperv1.ErrorReason_LOST)
	wantReason(t, f.finish(&leasekeeperv1.FinishRequest{Name: "n", Lease: 2, Tick: "2026-03-01T12:00:00Z"}), codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	wantOK(t, f.finish(&leasekeeperv1.FinishRequest{Name: "n", Lease: 2, Tick: "6"})) // it never falls
	wantMark(t, f.mark("n"), "7", first.Token)

	// The mark is an ordinary key that clients of etcd's API can read.
	resp, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("/leasekeeper/marks/n")})
	wantOK(t, err)
	if len(resp.Kvs) != 1 || resp.Kvs[0].Lease != 0 || string(resp.Kvs[0].Value) != "2 7" {
		t.Errorf("the key is %v", resp.Kvs)
	}
}

func TestFinishHoldsTheNameOn(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	second := f.wait("n", 2, 60_000)
	w, _ := f.watchNames("n")
	wantOK(t, f.finish(&leasekeeperv1.FinishRequest{Name: "n", Lease: 1, HoldMs: 700}))
	e := w.next(leasekeeperv1.WatchEvent_CHANGED, "n", 1)
	if !e.Info.Finished || e.Info.Revoked || e.Info.TtlMs != 715 || e.Info.RemainingMs > 715 { // with the drift bound
		t.Errorf("held on: %v", e.Info)
	}
	answer := f.renewing().renew(1)
	if len(answer.Refused) != 1 || answer.Refused[0].State != leasekeeperv1.RefusedRenewal_REVOKED || answer.Refused[0].Why != leasekeeperv1.Why_RELEASED {
		t.Errorf("renewed: %v", answer)
	}
	wantEqual(t, "released again", f.release("n", 1), false)
	wantEqual(t, "holder", f.info("n").Lease, 1)
	began := time.Now()
	second.next(leasekeeperv1.AcquireResponse_HELD)
	if waited := time.Since(began); waited > 10*time.Second {
		t.Errorf("the next waited for %v", waited)
	}
	wantEqual(t, "why", f.history("n")[1].Why, leasekeeperv1.Why_EXPIRED)
	wantOK(t, f.finish(&leasekeeperv1.FinishRequest{Name: "n", Lease: 1, HoldMs: 700})) // repeated after its end
	wantEqual(t, "finished", f.info("n").Finished, false)
}

func TestFinishIsBoundedByTheLongestTTL(t *testing.T) {
	cfg := anyPort()
	cfg.MaxTTL = time.Minute
	f := startWith(t, cfg, nil)
	f.hold("n", 1, 60_000)
	for _, ms := range []int64{60_001, -1} {
		wantReason(t, f.finish(&leasekeeperv1.FinishRequest{Name: "n", Lease: 1, HoldMs: ms}), codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	}
	wantEqual(t, "finished", f.info("n").Finished, false)
	wantOK(t, f.finish(&leasekeeperv1.FinishRequest{Name: "n", Lease: 1, HoldMs: 1}))
	wantEqual(t, "TTL", f.info("n").TtlMs, MinClaimTTL.Milliseconds())
}

func TestRaiseMarkNeedsTheName(t *testing.T) {
	f := startFront(t)
	held := f.hold("n", 1, 60_000)
	f.wait("n", 2, 60_000)
	raise := func(lease int64, tick string) error {
		_, err := f.names().RaiseMark(f.ctx(), &leasekeeperv1.RaiseMarkRequest{Name: "n", Lease: lease, Tick: tick})
		return err
	}
	wantOK(t, raise(1, "2026-03-01T12:00:00Z"))
	wantOK(t, raise(1, "2026-02-01T12:00:00Z"))
	wantMark(t, f.mark("n"), "2026-03-01T12:00:00Z", held.Token)
	wantReason(t, raise(2, "2026-04-01T12:00:00Z"), codes.NotFound, leasekeeperv1.ErrorReason_LOST)
	wantReason(t, raise(1, "5"), codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	wantReason(t, raise(1, "soon"), codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	wantMark(t, f.mark("n"), "2026-03-01T12:00:00Z", held.Token)
}

// The answer to the first request may be lost, and the lease as well before the second.
func TestRepeatedRaiseIsRecognizedAfterARevocation(t *testing.T) {
	f := startFront(t)
	held := f.hold("n", 1, 60_000)
	raise := func(token uint64, tick string) error {
		_, err := f.names().RaiseMark(f.ctx(), &leasekeeperv1.RaiseMarkRequest{Name: "n", Lease: 1, Token: token, Tick: tick})
		return err
	}
	wantOK(t, raise(held.Token, "5"))
	_, err := f.names().Revoke(f.ctx(), &leasekeeperv1.RevokeRequest{Name: "n", Now: true})
	wantOK(t, err)
	wantOK(t, raise(held.Token, "5"))
	wantReason(t, raise(held.Token, "6"), codes.NotFound, leasekeeperv1.ErrorReason_LOST)
	wantReason(t, raise(0, "5"), codes.NotFound, leasekeeperv1.ErrorReason_LOST)
	wantMark(t, f.mark("n"), "5", held.Token)
}

func TestReplaceMarkNeedsThePresentMark(t *testing.T) {
	f := startFront(t)
	replace := func(before, after *leasekeeperv1.Mark) bool {
		t.Helper()
		resp, err := f.names().ReplaceMark(f.ctx(), &leasekeeperv1.ReplaceMarkRequest{Name: "n", Old: before, New: after})
		wantOK(t, err)
		return resp.Replaced
	}
	five, six := &leasekeeperv1.Mark{Tick: "5"}, &leasekeeperv1.Mark{Tick: "6", Token: 3}
	wantEqual(t, "none by 5", replace(nil, five), true)
	wantEqual(t, "none by 6", replace(nil, six), false)
	wantEqual(t, "5 by 6", replace(five, six), true)
	wantEqual(t, "5 by none", replace(five, nil), false)
	wantMark(t, f.mark("n"), "6", 3)
	revision := f.node.Header().Revision
	wantEqual(t, "6 by 6", replace(six, six), true)
	wantEqual(t, "revision", f.node.Header().Revision, revision)
	wantEqual(t, "6 by none", replace(six, nil), true)
	wantMark(t, f.mark("n"), "", 0)
	wantEqual(t, "none by none", replace(nil, nil), true)
	for _, r := range []*leasekeeperv1.ReplaceMarkRequest{
		{Name: "n", New: &leasekeeperv1.Mark{Tick: "soon"}}, {Name: "n", Old: &leasekeeperv1.Mark{}}, {Name: "/n", New: five},
	} {
		_, err := f.names().ReplaceMark(f.ctx(), r)
		wantReason(t, err, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	}
}

// A client of etcd's API can write anything. What is no mark is reported, not repaired.
func TestDamagedMarksAreReported(t *testing.T) {
	f := startFront(t)
	f.put("/leasekeeper/marks/n", "damaged")
	f.hold("n", 1, 60_000)
	_, err := f.names().GetMark(f.ctx(), &leasekeeperv1.GetMarkRequest{Name: "n"})
	wantReason(t, err, codes.DataLoss, leasekeeperv1.ErrorReason_CORRUPT)
	_, err = f.names().ReplaceMark(f.ctx(), &leasekeeperv1.ReplaceMarkRequest{Name: "n"})
	wantReason(t, err, codes.DataLoss, leasekeeperv1.ErrorReason_CORRUPT)
	wantReason(t, f.finish(&leasekeeperv1.FinishRequest{Name: "n", Lease: 1, Tick: "1"}), codes.DataLoss, leasekeeperv1.ErrorReason_CORRUPT)
	wantEqual(t, "holder", f.info("n").Lease, 1)
}

func TestInvalidFinishIsRefused(t *testing.T) {
	f := startFront(t)
	for _, r := range []*leasekeeperv1.FinishRequest{{Name: "/n", Lease: 1}, {Name: "n"}, {Name: "n", Lease: -1}, {Name: "n", Lease: 1, Tick: "soon"}} {
		wantReason(t, f.finish(r), codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	}
	_, err := f.names().GetMark(f.ctx(), &leasekeeperv1.GetMarkRequest{Name: "/n"})
	wantReason(t, err, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	_, err = f.names().RaiseMark(f.ctx(), &leasekeeperv1.RaiseMarkRequest{Name: "n", Tick: "1"})
	wantReason(t, err, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
}
