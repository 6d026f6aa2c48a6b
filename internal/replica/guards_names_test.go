package replica

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Each test of this file checks guards of commands on names, and fails if exactly one of them is removed. Most commands are
// also checked before they go into the log. A command that shares its entry with others is not.

// inOneEntry has requests come in one entry, and returns a function for their replies. Ids are numbered from 100.
func (w *world) inOneEntry(ops ...entry.Command) (reply func(i int) Reply) {
	w.t.Helper()
	effects := w.step(Request{ID: 99, Command: put1("before", "v")}) // so that what comes next waits for the disk
	var events []Event
	for i, op := range ops {
		events = append(events, Request{ID: uint64(100 + i), Command: op})
	}
	effects = append(effects, w.step(events...)...)
	effects = append(effects, w.settle()...)
	return func(i int) Reply { return w.replyTo(uint64(100+i), effects) }
}

func claimOf(id lessor.ID, name string, wait bool) ownership.Claim {
	return ownership.Claim{Lease: id, TTL: time.Minute, Name: name, Holder: []byte("h"), Wait: wait}
}

// A claim that does not wait leaves nothing behind if the name was taken by another one in the same entry.
func TestClaimWithoutWaitingIsNotQueued(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	reply := w.inOneEntry(claimOf(7, "n", false), claimOf(8, "n", false), claimOf(7, "n", true))
	first := reply(0).Result.(ownership.Claimed)
	if first.Lease != 7 || first.Token == 0 || first.Current != nil {
		t.Errorf("the first: %+v", first)
	}
	if second := reply(1).Result.(ownership.Claimed); second.Lease != 0 || second.Current == nil || second.Current.Lease != 7 {
		t.Errorf("the second: %+v", second)
	}
	if r := reply(2); r.Err != nil || r.Result.(ownership.Claimed).Token != first.Token {
		t.Errorf("the first once more: %+v, %v", r.Result, r.Err)
	}
	if n := w.replica.lessor.Len(); n != 1 {
		t.Errorf("%d leases", n)
	}
}

// What cannot be is refused by the state as well, the same on every member.
func TestInvalidClaimsAreRefusedWhenApplied(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	bad := []ownership.Claim{claimOf(7, "", false), claimOf(0, "n", false), claimOf(-1, "n", false), claimOf(7, "n", false), claimOf(7, "n", false)}
	bad[3].TTL, bad[4].TTL = 0, lessor.MaxTTL+1
	for i, claim := range bad {
		if r := w.do(uint64(i+1), claim); !errors.Is(r.Err, ownership.ErrInvalidClaim) {
			t.Errorf("%+v: %+v, %v", claim, r.Result, r.Err)
		}
	}
	w.do(10, entry.Grant{Lease: 7, TTL: time.Minute})
	if r := w.do(11, claimOf(7, "n", false)); !errors.Is(r.Err, ownership.ErrLeaseTaken) {
		t.Errorf("a claim with the lease of another request: %+v, %v", r.Result, r.Err)
	}
	if n := w.replica.lessor.Len(); n != 1 {
		t.Errorf("%d leases", n)
	}
}

// A release ends the claim that it names, and no other lease.
func TestReleaseEndsNothingElse(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	reply := w.inOneEntry(entry.Grant{Lease: 7, TTL: time.Minute}, claimOf(8, "n", false), ownership.Release{Name: "n", Lease: 7}, ownership.Release{Name: "m", Lease: 8})
	for i, what := range []string{"a lease without a claim", "a claim of another name"} {
		if r := reply(2 + i); !errors.Is(r.Err, ownership.ErrLeaseTaken) {
			t.Errorf("%s was released: %+v, %v", what, r.Result, r.Err)
		}
	}
	if n := w.replica.lessor.Len(); n != 2 {
		t.Errorf("%d leases are left", n)
	}
	if w.replica.names.RecentlyEnded(7) {
		t.Error("a lease that goes on is remembered as ended")
	}
}

// A revocation that names a token ends the tenure of that token only.
func TestRevocationOfATokenEndsNoOtherTenure(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	token := w.do(1, claimOf(7, "n", false)).Result.(ownership.Claimed).Token
	for i, now := range []bool{true, false} {
		if r := w.do(uint64(2+i), ownership.Revoke{Name: "n", Token: token + 1, Now: now}); !errors.Is(r.Err, ownership.ErrOtherToken) {
			t.Errorf("revoked under another token: %+v, %v", r.Result, r.Err)
		}
	}
	if lease, ok := w.replica.lessor.Lookup(7); !ok || lease.RenewalRefused {
		t.Errorf("the lease is %+v, %v", lease, ok)
	}
	if r := w.do(4, ownership.Revoke{Name: "n", Token: token, Now: true}); r.Err != nil || w.replica.lessor.Len() != 0 {
		t.Errorf("not revoked under its token: %v", r.Err)
	}
}

// A lease that holds two names that are pinned stays pinned until both are unpinned. A lease that was not pinned is not
// renewed by that.
func TestLeaseStaysPinnedForItsOtherName(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, entry.Grant{Lease: 7, TTL: time.Minute})
	for i, name := range []string{"a", "b"} {
		w.do(uint64(2+i), keyspace.PutRequest{Key: ownership.Key(name, 7), Lease: 7})
	}
	w.do(4, claimOf(8, "c", false))
	for i, name := range []string{"a", "b"} {
		if r := w.do(uint64(5+i), ownership.Pin{Name: name, Reason: "why"}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	pinned := func() bool {
		lease, _ := w.replica.lessor.Lookup(7)
		return lease.Pinned
	}
	if r := w.do(7, ownership.Unpin{Name: "a"}); r.Err != nil || !pinned() {
		t.Errorf("the lease is pinned: %v; %v", pinned(), r.Err)
	}
	if r := w.do(8, ownership.Unpin{Name: "b"}); r.Err != nil || pinned() {
		t.Errorf("the lease is pinned: %v; %v", pinned(), r.Err)
	}
}

// A question for an index is answered from the lease by a leader that has one. Another one asks the others first.
func TestReadIndexIsAnsweredFromAValidLeaseOnly(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	follower := g.follower(leader)
	w := g.members[leader]
	ask := func() (answered bool) {
		term := w.replica.term
		for _, effect := range w.step(Received{Incarnation: 0x100 + follower, Message: Message{From: follower, To: leader, Raft: &raftpb.Message{
			Type: raftpb.MsgReadIndex.Enum(), From: &follower, To: &leader, Term: new(uint64(0)), Entries: []*raftpb.Entry{{Data: []byte("a key of 24 bytes in all.")}},
		}}}) {
			if e, ok := effect.(Send); ok && e.Message.Raft.GetType() == raftpb.MsgReadIndexResp && e.Message.Raft.GetTerm() == term {
				answered = true
			}
		}
		return answered
	}
	if !ask() {
		t.Fatal("a leader with a lease does not answer at once")
	}
	g.cut = func(Message) bool { return true }
	w.clock.Advance(2 * time.Second)
	if ask() {
		t.Error("a leader without a lease answers without asking the others")
	}
}

// Of two orders to hand over the second is refused while the first is in progress, and each is answered. An order to the
// leader to hand over to itself changes nothing.
func TestEachOrderToHandOverIsAnswered(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	if r := g.order(leader, 1, HandOver{ID: 1, To: leader}); r.Err != nil || !g.members[leader].replica.Serving() {
		t.Errorf("to itself: %v", r.Err)
	}
	other := g.follower(leader)
	g.step(leader, HandOver{ID: 2, To: other}, HandOver{ID: 3, To: other})
	for range 400 {
		g.pass(5 * time.Millisecond)
	}
	first, _ := g.replyTo(leader, 2).(Reply)
	second, ok := g.replyTo(leader, 3).(Reply)
	if first.ID != 2 || first.Err != nil || !ok || !errors.Is(second.Err, ErrTooManyRequests) {
		t.Errorf("the first: %+v, the second: %+v", first, second)
	}
}
