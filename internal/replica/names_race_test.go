package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// together has requests come before any of them is in the log, and returns what becomes of them.
func (w *world) together(events ...Event) []Effect {
	w.t.Helper()
	return append(w.step(events...), w.settle()...)
}

// A release that overtakes its claim makes that come too late, also while the release is on its way itself.
func TestReleaseThatOvertakesItsClaimEndsIt(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	claim := ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour, Wait: true}
	got := w.together(Request{ID: 1, Command: ownership.Release{Name: "n", Lease: 1}}, Request{ID: 2, Command: claim})
	if r := w.replyTo(1, got); r.Result != (ownership.Released{}) {
		t.Errorf("released: %+v", r)
	}
	if r := w.replyTo(2, got); !errors.Is(r.Err, ownership.ErrLost) {
		t.Errorf("claimed behind its release: %+v", r)
	}
	if n := w.replica.lessor.Len(); n != 0 {
		t.Errorf("%d leases live", n)
	}
	if w.replica.intake.Releasing(1) {
		t.Error("a release is in flight after its answer")
	}
}

// A claim that is made again while its lease is ending does not bring it back.
func TestRepeatedClaimDoesNotReviveAnEndingLease(t *testing.T) {
	for what, end := range map[string]entry.Command{
		"released": ownership.Release{Name: "n", Lease: 1}, "revoked": entry.Revoke{Lease: 1}, "deleted": keyspace.DeleteRequest{Key: ownership.Key("n", 1)},
		"revoked by name": ownership.Revoke{Name: "n", Now: true},
	} {
		w := newWorld(t).serve()
		claim := ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour, Holder: []byte("me"), Wait: true}
		first := w.do(1, claim).Result.(ownership.Claimed)
		got := w.together(Request{ID: 2, Command: end}, Request{ID: 3, Command: claim})
		// Its end is not decided yet, so the claim is reported as it is.
		if again, ok := w.replyTo(3, got).Result.(ownership.Claimed); !ok || again.Token != first.Token || string(again.Holder) != "me" {
			t.Errorf("%s: made again: %+v, first: %+v", what, w.replyTo(3, got), first)
		}
		if n := w.replica.lessor.Len(); n != 0 {
			t.Errorf("%s: the lease is back", what)
		}
		if r := w.do(4, claim); !errors.Is(r.Err, ownership.ErrLost) {
			t.Errorf("%s: made again later: %+v", what, r)
		}
		w.close()
	}
}

// A lease can have several names, by etcd's clients. A pin of one keeps the lease from being revoked by way of
// another. All names of a revoked lease say that it was revoked.
func TestPinProtectsOtherNamesOfALease(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, entry.Grant{Lease: 1, TTL: time.Hour})
	w.do(2, keyspace.PutRequest{Key: []byte("a/1"), Lease: 1})
	w.do(3, keyspace.PutRequest{Key: []byte("b/1"), Lease: 1})
	w.do(4, ownership.Pin{Name: "b", Reason: "stays"})
	for id, now := range []bool{false, true} {
		if r := w.do(uint64(10+id), ownership.Revoke{Name: "a", Now: now}); !errors.Is(r.Err, ownership.ErrPinned) {
			t.Errorf("revoked, now %v: %+v", now, r)
		}
	}
	w.do(5, ownership.Unpin{Name: "b"})
	w.do(6, ownership.Revoke{Name: "a", Note: "why"})
	got := w.replyTo(7, w.step(Inspection{ID: 7, Query: NamesQuery{Names: []string{"a", "b"}}})).Result.(NameStates).Names
	for _, s := range got {
		if s.Revoked == nil || *s.Revoked != "why" {
			t.Errorf("%s", showState(s))
		}
	}
	if r := w.do(8, ownership.Pin{Name: "b", Reason: "stays"}); r.Err == nil {
		t.Error("a name that is being revoked is pinned")
	}
}
