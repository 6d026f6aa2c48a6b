package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// leads reports whether a member leads and serves.
func (g *team) leads(id uint64) bool { return !g.down[id] && g.members[id].replica.Serving() }

// A voter that was added at once, and lost its data directory before others knew of the directory, has acknowledged
// entries that it no longer has. With its vote, a member without these entries would be elected.
func TestVoteOfAMemberWithoutAKnownDirectoryDoesNotCount(t *testing.T) {
	g := newTeam(t, 1)
	g.elected()
	g.grow(2)
	leader := g.elected()
	behind := g.follower(leader)
	g.change(roster.Add, roster.Member{ID: 3})
	g.pass(2 * TickInterval) // the other member applies that before it is away
	g.cut = func(m Message) bool { return m.From == behind || m.To == behind }
	g.join(3)
	g.pass(5 * TickInterval)
	if g.elected() != leader {
		t.Fatal("the leader changed")
	}
	if reply := g.do(leader, 10, put1("k", "acknowledged")); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	if r := g.members[behind].replica; !r.roster.Unbound(3) {
		t.Fatal("the member that is away knows the directory")
	}

	g.down[leader] = true
	g.cut = func(Message) bool { return false }
	g.joinWith(3, 0x203)
	g.members[3].mayHalt = true
	for range 1000 {
		g.pass(10 * time.Millisecond)
		if g.leads(behind) || g.leads(3) {
			t.Fatalf("a leader without the acknowledged entry: %v", g.members[behind].dump())
		}
	}
	if g.members[behind].replica.Counts().Campaigns == 0 {
		t.Fatal("the member did not campaign")
	}

	delete(g.down, leader)
	leader = g.elected()
	if reply := g.do(leader, 11, put1("k2", "more")); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	g.pass(2 * TickInterval)
	if kv := g.members[behind].get("k"); kv != "acknowledged" {
		t.Errorf("the other member has %q", kv)
	}
}

// A member that joined and lost its data directory later counts for nothing under its old id. It is removed, and joins
// under another one.
func TestJoinedMemberWithAnEmptiedDirectoryCountsForNothing(t *testing.T) {
	g := newTeam(t, 1)
	g.elected()
	g.grow(2)
	g.grow(3)
	g.pass(5 * TickInterval)
	leader := g.elected()
	g.do(leader, 10, put1("k", "1"))
	g.members[3].mayHalt = true
	g.joinWith(3, 0x203)
	g.members[3].mayHalt = true
	g.pass(10 * TickInterval)
	if applied := g.members[3].replica.Applied(); applied != 0 {
		t.Errorf("the emptied member has applied %d entries", applied)
	}

	// With one of the other two away, nothing is committed and nobody leads with authority.
	leader = g.elected()
	other := uint64(3) - leader
	g.down[other] = true
	g.step(leader, Request{ID: 11, Command: put1("k", "2")})
	g.pass(5 * time.Second)
	if reply, ok := g.replyTo(leader, 11).(Reply); ok && reply.Err == nil {
		t.Error("the emptied member acknowledged a write")
	}
	for _, id := range []uint64{leader, 3} {
		if r := g.members[id].replica; r.Authority().Holds(g.members[id].clock.Now()) {
			t.Errorf("member %d leads with the promise of the emptied member", id)
		}
	}
	delete(g.down, other)

	g.elected()
	g.change(roster.Remove, roster.Member{ID: 3})
	g.members[3].close()
	g.ids = g.ids[:2]
	delete(g.members, 3)
	g.grow(4)
	g.do(g.elected(), 12, put1("k", "3"))
	g.same()
}

// A member that was removed comes back with a copy of its data directory from before. It learns that it was removed, ends,
// and has disturbed nobody.
func TestOldCopyOfARemovedMembersDirectoryEndsWithoutAVote(t *testing.T) {
	g := newTeam(t, 1)
	g.elected()
	g.grow(2)
	g.grow(3)
	g.pass(5 * TickInterval)
	leader := g.elected()
	gone := g.follower(leader)
	old := g.members[gone].crashed(nil)
	g.shrink(gone)
	g.do(leader, 10, put1("k", "1"))
	g.elected()
	_, term := g.members[leader].replica.Leader()

	old.clock.Advance(time.Minute)
	old.start()
	old.mayHalt = true
	g.members[gone], g.ids = old, append(g.ids, gone)
	g.pass(5 * time.Second)
	var removed *RemovedError
	if !errors.As(old.halted, &removed) {
		t.Errorf("the old copy goes on: %v", old.halted)
	}
	if old.replica.Serving() {
		t.Error("the old copy serves")
	}
	if _, now := g.members[leader].replica.Leader(); now != term || !g.leads(leader) {
		t.Errorf("the leader of term %d is disturbed: term %d", term, now)
	}
	g.do(leader, 11, put1("k", "2"))

	// The removal is on its disk, so it does not start again.
	again := old.crashed(nil)
	defer func() { again.close() }()
	if err := again.tryOpen(); !errors.As(err, &removed) {
		t.Errorf("the old copy starts again: %v", err)
	}
}

// A joining member loses its data directory before the leader has heard it, and only a follower knows the first one. The
// list binds the member to the second one, so the follower accepts it too, and leads with this member's vote.
func TestDirectoryInTheListReplacesOneThatWasHeardBefore(t *testing.T) {
	g := newTeam(t, 1)
	g.elected()
	g.grow(2)
	leader := g.elected()
	follower := g.follower(leader)
	g.change(roster.Add, roster.Member{ID: 3, Learner: true})
	g.pass(2 * TickInterval)
	g.step(follower, Received{Message: Message{From: 3, To: follower}, Incarnation: 0x103})
	g.joinWith(3, 0x203)
	g.pass(10 * TickInterval)
	g.change(roster.Promote, roster.Member{ID: 3})
	g.pass(10 * TickInterval)
	if bound, _ := g.members[follower].replica.roster.Member(3); bound.Incarnation != 0x203 {
		t.Fatalf("the list binds the member to %x", bound.Incarnation)
	}

	g.down[leader] = true
	g.pass(10 * time.Second)
	now := g.elected()
	if reply := g.do(now, 10, put1("k", "of two")); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	g.pass(2 * TickInterval)
	for _, id := range []uint64{follower, 3} {
		if kv := g.members[id].get("k"); kv != "of two" {
			t.Errorf("member %d has %q", id, kv)
		}
	}
}

// get returns the value that a member has of a key; "" if it has none.
func (w *world) get(key string) string {
	result, err := w.replica.Store().Range(context.Background(), keyspace.RangeRequest{Key: []byte(key)})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(result.KVs) == 0 {
		return ""
	}
	return string(result.KVs[0].Value)
}
