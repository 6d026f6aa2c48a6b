package intake

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// What waited in a queue that took several entries is not kept by the memory of one of them.
func TestReusedQueuesKeepNothing(t *testing.T) {
	q := New()
	for i := range 64 {
		q.short = append(q.short, q.Prepare(uint64(i+1), keyspace.PutRequest{Key: []byte("k")}, access.Caller{}))
	}
	all := q.short
	var proposals [][]Pending
	for len(q.short) > 0 {
		proposals = append(proposals, q.takeShort(min(8, len(q.short))))
	}
	next := uint64(0)
	for _, taken := range proposals {
		for _, p := range taken {
			if next++; p.ID != next {
				t.Fatalf("request %d is taken where %d was to be", p.ID, next)
			}
		}
	}
	for _, taken := range proposals {
		q.Recycle(taken)
	}
	if len(q.spares) != maxSpareQueues {
		t.Errorf("%d queues are kept, not %d", len(q.spares), maxSpareQueues)
	}
	for _, spare := range q.spares {
		if len(spare) > 0 || slices.ContainsFunc(spare[:cap(spare)], func(p Pending) bool { return p.ID != 0 }) {
			t.Errorf("a queue to be used again holds %v", spare[:cap(spare)])
		}
	}
	for i, p := range all[:len(all)-8] { // the last entry may have gone on as it is, and was the last to be given up
		if p.ID != 0 {
			t.Fatalf("request %d of %d is kept by those that share its memory", i+1, len(all))
		}
	}
}

// A queue that was emptied, in whatever way, has room for as many bytes as a new one.
func TestEmptiedQueueHasNoBytes(t *testing.T) {
	now := clock.Instant{Raw: 1, Boot: 1}
	rng := rand.New(rand.NewPCG(1, 2))
	q := New()
	fill := func() {
		for i := range 200 {
			value := make([]byte, rng.IntN(4*entry.BulkBytes))
			q.Add(now, string(rune('a'+i%3)), q.Prepare(uint64(i+1), keyspace.PutRequest{Key: []byte("k"), Value: value}, access.Caller{}))
			if i%10 == 0 {
				q.AddOwn(entry.Compact{Revision: 1})
			}
		}
	}
	for name, empty := range map[string]func(){
		"taken": func() {
			for q.Len() > 0 {
				q.Done(q.Take(now))
			}
		},
		"drained": func() { q.Done(q.Drain()) },
		"removed": func() { q.Done(q.Remove(func(entry.Command) bool { return true })) },
	} {
		fill()
		empty()
		if q.Len() != 0 || q.shortBytes != 0 || q.bulk.bytes() != 0 {
			t.Errorf("%s: %d commands are left, with %d and %d bytes", name, q.Len(), q.shortBytes, q.bulk.bytes())
		}
	}
}

// Only the unwanted commands are removed, and the others keep their places.
func TestRemovedCommandsLeaveTheOthersInOrder(t *testing.T) {
	now := clock.Instant{Raw: 1, Boot: 1}
	q := New()
	large := make([]byte, entry.BulkBytes)
	for i, c := range []entry.Command{
		keyspace.PutRequest{Key: []byte("a"), Value: large}, keyspace.DeleteRequest{Key: []byte("b")}, keyspace.PutRequest{Key: []byte("c")},
		entry.Revoke{Lease: 1}, keyspace.DeleteRequest{Key: []byte("d"), End: []byte("e")},
	} {
		q.Add(now, "c", q.Prepare(uint64(i+1), c, access.Caller{}))
	}
	ids := func(commands []Pending) (ids []uint64) {
		for _, p := range commands {
			ids = append(ids, p.ID)
		}
		return ids
	}
	if got, want := ids(q.Remove(entry.NeedsSpace)), []uint64{3, 1}; !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v", got, want)
	}
	if got, want := ids(q.Drain()), []uint64{2, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
}

// Requests join only the same claim, as many as may, and only while it is in flight.
func TestOnlyTheSameClaimIsJoined(t *testing.T) {
	now := clock.Instant{Raw: 1, Boot: 1}
	q := New()
	claim := ownership.Claim{Lease: 7, TTL: time.Second, Name: "n", Holder: []byte("h")}
	other := claim
	other.Name = "m"
	if joined, full := q.Join(2, claim, ""); joined || full {
		t.Error("a request joins a claim that is not in flight")
	}
	first := q.Prepare(1, claim, access.Caller{})
	q.Add(now, "c", first)
	if joined, full := q.Join(2, other, ""); joined || full {
		t.Error("a request joins another claim of its lease")
	}
	if joined, full := q.Join(2, claim, "another"); joined || full {
		t.Error("a request joins the claim of another user")
	}
	for i := range maxJoined {
		if joined, full := q.Join(uint64(2+i), claim, ""); !joined || full {
			t.Fatalf("request %d does not join", 2+i)
		}
	}
	if joined, full := q.Join(1000, claim, ""); joined || !full {
		t.Error("more requests join than may")
	}
	if got := first.Duplicates(); len(got) != maxJoined || got[0] != 2 {
		t.Errorf("the duplicates are %v", got)
	}
	if q.Making() != 1 {
		t.Errorf("%d leases are being made", q.Making())
	}
	q.Done(q.Take(now))
	if joined, full := q.Join(2, claim, ""); joined || full || q.Making() != 0 {
		t.Error("a claim is in flight after its end")
	}
}

// A lease counts as being released until the last of its releases is done.
func TestReleasesInFlightAreCounted(t *testing.T) {
	now := clock.Instant{Raw: 1, Boot: 1}
	q := New()
	for id := range uint64(2) {
		q.Add(now, "c", q.Prepare(id+1, ownership.Release{Lease: 7, Name: "n"}, access.Caller{}))
	}
	releases := q.Take(now)
	if len(releases) != 2 {
		t.Fatalf("%d releases are taken", len(releases))
	}
	for i, want := range []bool{true, false} {
		if q.Done(releases[i : i+1]); q.Releasing(7) != want {
			t.Errorf("after %d of 2 releases: releasing is %v", i+1, !want)
		}
	}
}

// A claim is the same as another only if they agree in everything.
func TestClaimsDifferInEveryField(t *testing.T) {
	claim := ownership.Claim{Lease: 7, TTL: time.Second, Name: "n", Holder: []byte("h")}
	first := claimInFlight{claim: claim}
	if !first.of(claim, "") {
		t.Error("a claim is not the same as itself")
	}
	for what, change := range map[string]func(*ownership.Claim){
		"the lease": func(c *ownership.Claim) { c.Lease++ }, "the TTL": func(c *ownership.Claim) { c.TTL++ }, "the name": func(c *ownership.Claim) { c.Name = "m" },
		"the holder": func(c *ownership.Claim) { c.Holder = []byte("g") }, "waiting": func(c *ownership.Claim) { c.Wait = true },
	} {
		other := claim
		if change(&other); first.of(other, "") {
			t.Errorf("a claim that differs in %s is taken for the same", what)
		}
	}
}
