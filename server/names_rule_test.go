package server

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// bulkRenewal is an open Renew stream.
type bulkRenewal struct {
	f      *front
	stream leasekeeperv1.Leasekeeper_RenewClient
	number uint64
}

func (f *front) renewing() *bulkRenewal {
	f.t.Helper()
	stream, err := f.names().Renew(f.ctx())
	wantOK(f.t, err)
	return &bulkRenewal{f: f, stream: stream}
}

func (b *bulkRenewal) renew(ids ...int64) *leasekeeperv1.RenewResponse {
	b.f.t.Helper()
	b.number++
	wantOK(b.f.t, b.stream.Send(&leasekeeperv1.RenewRequest{Number: b.number, Leases: ids}))
	resp, err := b.stream.Recv()
	wantOK(b.f.t, err)
	wantEqual(b.f.t, "number", resp.Number, b.number)
	return resp
}

// refusal returns the only refusal in an answer.
func (b *bulkRenewal) refusal(resp *leasekeeperv1.RenewResponse) *leasekeeperv1.RefusedRenewal {
	b.f.t.Helper()
	if len(resp.Refused) != 1 {
		b.f.t.Fatalf("got %v, want one refusal", resp)
	}
	return resp.Refused[0]
}

func (f *front) revoke(r *leasekeeperv1.RevokeRequest) *leasekeeperv1.RevokeResponse {
	f.t.Helper()
	resp, err := f.names().Revoke(f.ctx(), r)
	wantOK(f.t, err)
	return resp
}

// An answer names only the leases that were not renewed, by their index.
func TestRenewNamesOnlyRefusedLeases(t *testing.T) {
	f := startFront(t)
	const many = 300
	ids := make([]int64, many)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	for _, id := range ids {
		f.grant(60, id)
	}
	ids[7] = 1 << 40
	renewals := f.renewing()
	resp := renewals.renew(ids...)
	refused := renewals.refusal(resp)
	wantEqual(t, "place", refused.Place, 7)
	wantEqual(t, "state", refused.State, leasekeeperv1.RefusedRenewal_GONE)
	wantEqual(t, "late", resp.Late, false)
	wantEqual(t, "pending", len(resp.Pending), 0)
	if resp := renewals.renew(1, 1, 2); len(resp.Refused)+len(resp.Pending) != 0 {
		t.Errorf("an id twice: %v", resp)
	}
	if resp := renewals.renew(); len(resp.Refused)+len(resp.Pending) != 0 {
		t.Errorf("no ids: %v", resp)
	}
}

func TestInvalidRenewMessagesEndTheStream(t *testing.T) {
	f := startFront(t)
	for _, r := range []*leasekeeperv1.RenewRequest{{Number: 0}, {Number: 1, Leases: make([]int64, 1<<14+1)}} {
		stream, err := f.names().Renew(f.ctx())
		wantOK(t, err)
		wantOK(t, stream.Send(r))
		_, err = stream.Recv()
		wantReason(t, err, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	}
}

// A renewal that must be replicated is answered later under the same number, and delays no other.
func TestRenewalThatMustBeReplicatedIsAnsweredLater(t *testing.T) {
	var deliver func(...replica.RenewedLease)
	asked := make(chan struct{})
	f := startWith(t, anyPort(), func(n *node.Node) member {
		return &faulty{Node: n, renew: func(_ []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error {
			deliver = func(leases ...replica.RenewedLease) { answer(replica.Header{}, leases) }
			asked <- struct{}{}
			return nil
		}}
	})
	renewals := f.renewing()
	ask := func(number uint64, ids ...int64) {
		t.Helper()
		wantOK(t, renewals.stream.Send(&leasekeeperv1.RenewRequest{Number: number, Leases: ids}))
		<-asked
	}
	answer := func(number uint64, late bool, places, pending []uint32, refused ...uint32) {
		t.Helper()
		resp, err := renewals.stream.Recv()
		wantOK(t, err)
		var got []uint32
		for _, r := range resp.Refused {
			got = append(got, r.Place)
		}
		if resp.Number != number || resp.Late != late || !slices.Equal(resp.Places, places) ||
			!slices.Equal(resp.Pending, pending) || !slices.Equal(got, refused) {
			t.Errorf("got %v", resp)
		}
	}
	renewed := func(id lessor.ID) replica.RenewedLease { return replica.RenewedLease{ID: id, TTL: time.Minute} }
	gone := func(id lessor.ID) replica.RenewedLease { return replica.RenewedLease{ID: id, Err: lessor.ErrNotFound} }

	ask(1, 7, 8, 9, 8)
	deliver(renewed(7), gone(9))
	answer(1, false, nil, []uint32{1, 3}, 2)
	first := deliver
	ask(2, 10, 11)
	deliver(renewed(11), renewed(10)) // all of them together, but late and in another order
	answer(2, false, nil, nil)
	first(renewed(8))
	answer(1, true, []uint32{1}, nil)
	first(gone(8))
	answer(1, true, nil, nil, 3)
	wantOK(t, renewals.stream.CloseSend())
	if _, err := renewals.stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last answer: %v", err)
	}
}

// By default a revoked holder keeps the name for the promised time, and no longer.
func TestRevokedHolderKeepsThePromisedTime(t *testing.T) {
	f := startFront(t)
	const ttl = 3000
	held := f.hold("n", 1, ttl)
	waiting := f.wait("n", 2, 60_000)
	renewals := f.renewing()
	start := time.Now()
	renewals.renew(1)

	_, err := f.names().Revoke(f.ctx(), &leasekeeperv1.RevokeRequest{Name: "n", Token: held.Token + 1})
	wantReason(t, err, codes.FailedPrecondition, leasekeeperv1.ErrorReason_OTHER_TOKEN)
	_, err = f.names().Revoke(f.ctx(), &leasekeeperv1.RevokeRequest{Name: "free"})
	wantReason(t, err, codes.FailedPrecondition, leasekeeperv1.ErrorReason_NOT_HELD)

	revoked := f.revoke(&leasekeeperv1.RevokeRequest{Name: "n", Token: held.Token, Reason: "maintenance"})
	if revoked.Token != held.Token || revoked.EndsInMs <= 0 || revoked.EndsInMs > ttl {
		t.Errorf("revoked: %v", revoked)
	}
	refused := renewals.refusal(renewals.renew(1))
	if refused.State != leasekeeperv1.RefusedRenewal_REVOKED || refused.Note != "maintenance" || refused.Why != leasekeeperv1.Why_REVOKED {
		t.Errorf("its renewal: %v", refused)
	}
	info := f.info("n")
	if !info.Held || !info.Revoked || info.RevokeReason != "maintenance" || info.Lease != 1 {
		t.Errorf("while it lasts: %v", info)
	}
	// etcd's keep-alive reports the revocation too.
	stream, err := f.lease.LeaseKeepAlive(f.ctx())
	wantOK(t, err)
	wantOK(t, stream.Send(&pb.LeaseKeepAliveRequest{ID: 1}))
	kept, err := stream.Recv()
	wantOK(t, err)
	wantEqual(t, "TTL", kept.TTL, 0)

	waiting.next(leasekeeperv1.AcquireResponse_HELD)
	if took := time.Since(start); took < ttl*time.Millisecond {
		t.Errorf("the name was free after %v, although its holder was promised %d ms", took, ttl)
	}
	past := f.history("n")[1]
	if past.Why != leasekeeperv1.Why_REVOKED || past.Note != "maintenance" {
		t.Errorf("history: %v", past)
	}
	refused = renewals.refusal(renewals.renew(1))
	if refused.State != leasekeeperv1.RefusedRenewal_GONE || refused.Why != leasekeeperv1.Why_REVOKED || refused.Note != "maintenance" {
		t.Errorf("its renewal after the end: %v", refused)
	}
}

func TestRevokeNowFreesTheNameAtOnce(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	waiting := f.wait("n", 2, 60_000)
	wantEqual(t, "ends in", f.revoke(&leasekeeperv1.RevokeRequest{Name: "n", Now: true, Reason: "stuck"}).EndsInMs, 0)
	waiting.next(leasekeeperv1.AcquireResponse_HELD)
	renewals := f.renewing()
	refused := renewals.refusal(renewals.renew(1))
	if refused.State != leasekeeperv1.RefusedRenewal_GONE || refused.Note != "stuck" {
		t.Errorf("its renewal: %v", refused)
	}
}

// A pinned name stays with its holder even if the holder never renews.
func TestPinnedNameStaysWithItsHolder(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 2000)
	waiting := f.wait("n", 2, 60_000)
	pin := func(reason string) error {
		_, err := f.names().Pin(f.ctx(), &leasekeeperv1.PinRequest{Name: "n", Reason: reason})
		return err
	}
	wantOK(t, pin("upgrade"))
	wantOK(t, pin("long upgrade"))
	eventually(t, "its time is up", func() bool { return f.info("n").RemainingMs == 0 })
	time.Sleep(300 * time.Millisecond) // the lease would end in this time
	info := f.info("n")
	if !info.Held || info.Lease != 1 || !info.Pinned || info.PinReason != "long upgrade" {
		t.Fatalf("pinned: %v", info)
	}
	_, err := f.names().Revoke(f.ctx(), &leasekeeperv1.RevokeRequest{Name: "n", Now: true})
	wantReason(t, err, codes.FailedPrecondition, leasekeeperv1.ErrorReason_PINNED)
	_, err = f.names().Transfer(f.ctx(), &leasekeeperv1.TransferRequest{Name: "n", Lease: 1})
	wantReason(t, err, codes.FailedPrecondition, leasekeeperv1.ErrorReason_PINNED)
	if resp := f.renewing().renew(1); len(resp.Refused) != 0 {
		t.Errorf("a renewal of what is pinned: %v", resp)
	}
	unpin := func() {
		t.Helper()
		_, err := f.names().Unpin(f.ctx(), &leasekeeperv1.UnpinRequest{Name: "n"})
		wantOK(t, err)
	}
	unpin()
	waiting.next(leasekeeperv1.AcquireResponse_HELD)
	wantEqual(t, "why", f.history("n")[1].Why, leasekeeperv1.Why_EXPIRED)
	wantEqual(t, "pinned", f.info("n").Pinned, false)
	unpin() // there is no pin

	wantOK(t, pin("again"))
	f.release("n", 2) // the holder itself may release
	wantReason(t, pin("nobody"), codes.FailedPrecondition, leasekeeperv1.ErrorReason_NOT_HELD)
}

func TestTransferGivesTheNameToTheFirstWaiter(t *testing.T) {
	f := startFront(t)
	first := f.hold("n", 1, 60_000)
	transfer := func(lease int64) (*leasekeeperv1.TransferResponse, error) {
		return f.names().Transfer(f.ctx(), &leasekeeperv1.TransferRequest{Name: "n", Lease: lease})
	}
	_, err := transfer(1)
	wantReason(t, err, codes.FailedPrecondition, leasekeeperv1.ErrorReason_NO_WAITER)
	wantEqual(t, "holder", f.info("n").Lease, 1)
	second := f.wait("n", 2, 60_000)
	f.wait("n", 3, 60_000)
	_, err = transfer(3)
	wantReason(t, err, codes.NotFound, leasekeeperv1.ErrorReason_LOST)
	before := f.node.Header().Revision
	resp, err := transfer(1)
	wantOK(t, err)
	yours := second.next(leasekeeperv1.AcquireResponse_HELD)
	if yours.Token != resp.Token || yours.Token <= first.Token {
		t.Errorf("transferred under %d, held under %d", resp.Token, yours.Token)
	}
	wantEqual(t, "revision", f.node.Header().Revision, before+1)
	wantEqual(t, "why", f.history("n")[1].Why, leasekeeperv1.Why_TRANSFERRED)
	_, err = transfer(1)
	wantReason(t, err, codes.NotFound, leasekeeperv1.ErrorReason_LOST)
}

func TestAnnounceReplacesTheHoldersText(t *testing.T) {
	f := startFront(t)
	held := f.hold("n", 1, 60_000)
	f.wait("n", 2, 60_000)
	announce := func(lease int64, text string) error {
		_, err := f.names().Announce(f.ctx(), &leasekeeperv1.AnnounceRequest{Name: "n", Lease: lease, Text: text})
		return err
	}
	wantOK(t, announce(1, "listening on :80"))
	info := f.info("n")
	if info.Holder.GetText() != "listening on :80" || info.Holder.GetId() != "me" || info.Token != held.Token || info.Lease != 1 {
		t.Errorf("announced: %v", info)
	}
	wantReason(t, announce(2, "me too"), codes.NotFound, leasekeeperv1.ErrorReason_LOST)
	wantReason(t, announce(3, "who"), codes.NotFound, leasekeeperv1.ErrorReason_LOST)
	f.release("n", 1)
	wantReason(t, announce(1, "late"), codes.NotFound, leasekeeperv1.ErrorReason_LOST)
	wantEqual(t, "card in the history", f.history("n")[1].Holder.GetText(), "listening on :80")
}

// Names are listed in the order of their bytes, which differs from the order of their keys.
func TestListReturnsPagesInByteOrder(t *testing.T) {
	f := startFront(t)
	names := []string{"a", "a-b", "a/b", "a/b/c", "a0", "b"}
	for i, name := range names {
		f.hold(name, int64(i+1), 60_000)
	}
	f.hold("a/free", 99, 60_000)
	f.release("a/free", 99)
	list := func(prefix string, limit int32) (found []string) {
		t.Helper()
		after := ""
		for {
			resp, err := f.names().List(f.ctx(), &leasekeeperv1.ListRequest{Prefix: prefix, After: after, Limit: limit})
			wantOK(t, err)
			for _, info := range resp.Names {
				found = append(found, info.Name)
			}
			if !resp.More {
				return found
			}
			after = resp.Last
		}
	}
	for limit := range int32(8) {
		if got := list("", limit); !slices.Equal(got, names) {
			t.Errorf("%d at a time: %v", limit, got)
		}
	}
	if got := list("a/", 2); !slices.Equal(got, []string{"a/b", "a/b/c"}) {
		t.Errorf("a/: %v", got)
	}
	if got := list("a", 1); len(got) != 5 {
		t.Errorf("a: %v", got)
	}
	if got := list("zz", 0); got != nil {
		t.Errorf("zz: %v", got)
	}
}

// The server keeps a bounded number of tenures, and returns the newest first.
func TestHistoryIsBoundedAndNewestFirst(t *testing.T) {
	f := startFront(t)
	for i := range int64(20) {
		f.hold("n", i+1, 60_000)
		f.release("n", i+1)
	}
	past := f.history("n")
	wantEqual(t, "tenures", len(past), 16)
	for i, tenure := range past {
		wantEqual(t, fmt.Sprintf("lease of tenure %d", i), tenure.Lease, int64(20-i))
	}
	resp, err := f.names().History(f.ctx(), &leasekeeperv1.HistoryRequest{Name: "n", Limit: 3})
	wantOK(t, err)
	wantEqual(t, "with a limit", len(resp.Tenures), 3)
	wantEqual(t, "of a name that was never held", len(f.history("never")), 0)
}

// watched is an open Watch stream.
type watched struct {
	f      *front
	stream leasekeeperv1.Leasekeeper_WatchClient
	queue  []*leasekeeperv1.WatchEvent
}

// watchNames opens a Watch and reads the listing, which it returns.
func (f *front) watchNames(prefix string) (*watched, []*leasekeeperv1.WatchEvent) {
	f.t.Helper()
	stream, err := f.names().Watch(f.ctx(), &leasekeeperv1.WatchRequest{Prefix: prefix})
	wantOK(f.t, err)
	w := &watched{f: f, stream: stream}
	var present []*leasekeeperv1.WatchEvent
	for i := 0; ; i++ {
		resp, err := stream.Recv()
		wantOK(f.t, err)
		wantEqual(f.t, "begin", resp.Begin, i == 0)
		present = append(present, resp.Events...)
		if resp.Synced {
			return w, present
		}
	}
}

func (w *watched) next(kind leasekeeperv1.WatchEvent_Kind, name string, lease int64) *leasekeeperv1.WatchEvent {
	w.f.t.Helper()
	for len(w.queue) == 0 {
		resp, err := w.stream.Recv()
		wantOK(w.f.t, err)
		w.queue = resp.Events
	}
	e := w.queue[0]
	w.queue = w.queue[1:]
	if e.Kind != kind || e.Info.Name != name || e.Info.Lease != lease {
		w.f.t.Fatalf("got %v, want %v of %s by %d", e, kind, name, lease)
	}
	return e
}

func TestWatchListsNamesAndThenSendsChanges(t *testing.T) {
	f := startFront(t)
	f.hold("jobs/a", 1, 60_000)
	f.hold("other", 2, 60_000)
	w, present := f.watchNames("jobs/")
	if len(present) != 1 || present[0].Info.Name != "jobs/a" || present[0].Kind != leasekeeperv1.WatchEvent_PRESENT {
		t.Fatalf("at first: %v", present)
	}
	f.hold("jobs/b", 3, 60_000)
	e := w.next(leasekeeperv1.WatchEvent_ACQUIRED, "jobs/b", 3)
	wantEqual(t, "holder", e.Info.Holder.GetId(), "me")
	f.hold("others", 4, 60_000)
	f.wait("jobs/a", 5, 60_000)
	f.release("jobs/a", 1)
	e = w.next(leasekeeperv1.WatchEvent_ACQUIRED, "jobs/a", 5)
	wantEqual(t, "why the one before ended", e.Why, leasekeeperv1.Why_RELEASED)
	_, err := f.names().Announce(f.ctx(), &leasekeeperv1.AnnounceRequest{Name: "jobs/a", Lease: 5, Text: "hello"})
	wantOK(t, err)
	e = w.next(leasekeeperv1.WatchEvent_ANNOUNCED, "jobs/a", 5)
	wantEqual(t, "text", e.Info.Holder.GetText(), "hello")
	_, err = f.names().Pin(f.ctx(), &leasekeeperv1.PinRequest{Name: "jobs/a", Reason: "why not"})
	wantOK(t, err)
	e = w.next(leasekeeperv1.WatchEvent_CHANGED, "jobs/a", 5)
	wantEqual(t, "pinned", e.Info.PinReason, "why not")
	f.revoke(&leasekeeperv1.RevokeRequest{Name: "jobs/b", Now: true, Reason: "enough"})
	e = w.next(leasekeeperv1.WatchEvent_VACATED, "jobs/b", 0)
	if e.Why != leasekeeperv1.Why_REVOKED || e.Note != "enough" {
		t.Errorf("got %v", e)
	}
	// The watch also shows holders by etcd's recipe.
	f.grant(60, 9)
	_, err = f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("jobs/c/9"), Lease: 9, Value: []byte("by hand")})
	wantOK(t, err)
	e = w.next(leasekeeperv1.WatchEvent_ACQUIRED, "jobs/c", 9)
	wantEqual(t, "text", e.Info.Holder.GetText(), "by hand")
	_, err = f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{Key: []byte("jobs/"), RangeEnd: []byte("jobs0")})
	wantOK(t, err)
	w.next(leasekeeperv1.WatchEvent_VACATED, "jobs/a", 0)
	e = w.next(leasekeeperv1.WatchEvent_VACATED, "jobs/c", 0)
	wantEqual(t, "why", e.Why, leasekeeperv1.Why_DELETED)
}

// Whatever happens while a watcher receives the listing, it ends with the right state.
func TestWatchListingIncludesConcurrentChanges(t *testing.T) {
	f := startFront(t)
	const names = 600 // several pages
	name := func(i int) string { return fmt.Sprintf("n/%04d", i) }
	for i := range names {
		f.hold(name(i), int64(i+1), 60_000)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i = (i + 7) % names {
			select {
			case <-stop:
				return
			default:
			}
			f.names().Release(f.ctx(), &leasekeeperv1.ReleaseRequest{Name: name(i), Lease: int64(i + 1)})
			a, err := f.names().Acquire(f.ctx(), &leasekeeperv1.AcquireRequest{Name: name(i), TtlMs: 60_000})
			if err == nil {
				a.Recv()
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for range 5 {
		w, present := f.watchNames("n/")
		holders := make(map[string]int64)
		note := func(e *leasekeeperv1.WatchEvent) { holders[e.Info.Name] = e.Info.Lease }
		for _, e := range present {
			note(e)
		}
		for range 20 {
			resp, err := w.stream.Recv()
			wantOK(t, err)
			for _, e := range resp.Events {
				note(e)
			}
		}
		for i := range names {
			if _, known := holders[name(i)]; !known {
				t.Fatalf("nothing is known of %s", name(i))
			}
		}
	}
}
