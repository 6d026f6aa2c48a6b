package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// Each test here names guards of what concerns other members, and fails if exactly one of them is removed.

// reopenedWith starts a member again with another configuration, and returns the error.
func reopenedWith(t *testing.T, w *world, set func(*Config)) error {
	t.Helper()
	again := w.crashed(nil)
	before := again.configure
	again.configure = func(c *Config) {
		if before != nil {
			before(c)
		}
		set(c)
	}
	err := again.tryOpen()
	again.close()
	return err
}

// A member of a cluster starts with the names that it was founded with only. A cluster's only member needs none.
func TestMemberOfAClusterStartsOnlyWithTheNamesItWasFoundedWith(t *testing.T) {
	g := newTeam(t, 3)
	for what, c := range map[string]struct {
		set   func(*Config)
		opens bool
	}{
		"the same":          {func(c *Config) { slices.Reverse(c.Members) }, true},
		"another cluster":   {func(c *Config) { c.ClusterID++ }, false},
		"another member":    {func(c *Config) { c.MemberID = 3 }, false},
		"other members":     {func(c *Config) { c.Members = []uint64{1, 2, 4} }, false},
		"no other members":  {func(c *Config) { c.Members = nil }, false},
		"one member fewer":  {func(c *Config) { c.Members = []uint64{1, 2} }, false},
		"a drift too large": {func(c *Config) { c.Drift = clock.MaxDrift + 1 }, false},
	} {
		if err := reopenedWith(t, g.members[1], func(config *Config) {
			config.Members = slices.Clone(config.Members)
			c.set(config)
		}); (err == nil) != c.opens {
			t.Errorf("with %s: %v", what, err)
		}
	}
	w := newWorld(t).serve()
	defer w.close()
	if err := reopenedWith(t, w, func(c *Config) { c.ClusterID, c.MemberID = 0, 0 }); err != nil {
		t.Errorf("the only member of a cluster, without ids: %v", err)
	}
}

// A member whose own records contradict each other does not start.
func TestContradictoryOwnRecordsAreRefused(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	r := w.replica
	batch := r.db.NewBatch()
	record.Put(batch, record.KeyPromised, &logpb.Promised{LongestNs: -1})
	if err := batch.Commit(w.sync); err != nil {
		t.Fatal(err)
	}
	if err := r.join(); err == nil {
		t.Error("a negative promise on record is believed")
	}
}

// A message in the member's own name is not acquainted and leaves no record. Nor is one of a member that is not in the
// list, once there are too many of those.
func TestStrangersAreNotAcquainted(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	w := g.members[leader]
	for id := range uint64(maxPeers) {
		w.replica.peers[1000+id] = 1
	}
	for _, from := range []uint64{leader, 99} {
		before, writes := w.replica.Counts().RejectedPeers, len(w.replica.persisting)
		if w.replica.acquainted(from, 0x777) || w.replica.Counts().RejectedPeers != before+1 || len(w.replica.persisting) != writes {
			t.Errorf("a message of %d counts", from)
		}
	}
}

// peersOnRecord returns what the newest write says of the others.
func peersOnRecord(t *testing.T, w *world) map[uint64]uint64 {
	t.Helper()
	for _, effect := range slices.Backward(lasting(w.replica.effects)) {
		if p, ok := effect.(Persist); ok {
			if err := p.Batch.Commit(w.sync); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	m, known := new(logpb.Peers), make(map[uint64]uint64)
	if _, err := record.Load(w.db, record.KeyPeers, m); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Peers {
		if _, twice := known[p.MemberId]; twice {
			t.Errorf("member %d stands twice in the record", p.MemberId)
		}
		known[p.MemberId] = p.Incarnation
	}
	return known
}

// A member writes down the numbers of those it has heard, once each, and the newest number of one whose folder is new.
func TestRecordOfPeersHasWhoWasHeard(t *testing.T) {
	w := unfounded(t, 3).members[1]
	r := w.replica
	r.effects, r.persisting = nil, nil
	r.acquaint(2, 0x22)
	if known := peersOnRecord(t, w); len(known) != 1 || known[2] != 0x22 {
		t.Errorf("the record has %v", known)
	}
	r.acquaint(2, 0x22)
	if n := len(r.persisting); n != 1 {
		t.Errorf("%d writes of the same number are under way", n)
	}
	r.effects, r.persisting = nil, nil
	r.peers[2] = 0x22
	r.acquaint(2, 0x23)
	if known := peersOnRecord(t, w); len(known) != 1 || known[2] != 0x23 {
		t.Errorf("the record has %v", known)
	}
	r.effects, r.persisting = nil, nil
	r.rememberPromise(time.Second)
	r.rememberPromise(time.Second)
	if n := len(r.persisting); n != 1 {
		t.Errorf("%d writes of the same promise are under way", n)
	}
	r.effects, r.persisting = nil, nil
}

// A member says which data directory of another member it knows. It says so only when that number is on its disk: the other one
// founds the cluster because of it, and a directory that came in its place must then be refused.
func TestMemberNamesOnlyDirectoriesThatAreOnItsDisk(t *testing.T) {
	w := unfounded(t, 3).members[1]
	asks := func(effects []Effect) (known []uint64) {
		for _, effect := range lasting(effects) {
			if m, ok := effect.(Send); ok && m.Message.To == 2 && m.Message.Standing != nil {
				known = append(known, m.Message.Standing.Known)
			}
		}
		return known
	}
	question := Message{From: 2, To: 1, Standing: &message.Standing{Ask: true}}
	during := asks(w.step(Received{Message: question, Incarnation: 0x222}))
	if len(w.writes) != 1 || len(during) == 0 || slices.ContainsFunc(during, func(n uint64) bool { return n != 0 }) {
		t.Errorf("with %d writes under way, it says that it knows %x", len(w.writes), during)
	}
	after := asks(w.settle())
	if !slices.Contains(after, 0x222) {
		t.Errorf("when the number is on the disk, it says that it knows %x", after)
	}
	again := w.crashed(nil)
	again.start()
	defer again.close()
	if known := again.replica.peers[2]; known != 0x222 {
		t.Errorf("after a power cut it knows %x", known)
	}
}

// A new folder of a known member takes the former one's place only at a member that is new and has nothing.
func TestOnlyANewMemberTakesAnotherFolder(t *testing.T) {
	w := unfounded(t, 3).members[1]
	r := w.replica
	if !r.mayReplaceDirectory(0x22) {
		t.Fatal("a new member does not")
	}
	if r.mayReplaceDirectory(0) {
		t.Error("a folder without a number takes a place")
	}
	if r.installing = true; r.mayReplaceDirectory(0x22) {
		t.Error("a member does that is receiving a state")
	}
	r.installing = false
	if r.fresh.Founding = true; r.mayReplaceDirectory(0x22) {
		t.Error("a member does that founds the cluster")
	}
	r.fresh.Founding = false
	at := r.applied.Index
	if r.applied.Index = 0; r.log.Written() == 0 && r.hasData() {
		t.Error("a member with nothing has data")
	}
	r.applied.Index = at
}

// Entries that are not applied yet are data as well.
func TestEntriesAreData(t *testing.T) {
	g := newTeam(t, 3)
	r := g.members[g.elected()].replica
	at := r.applied.Index
	r.applied.Index = 0
	if !r.hasData() {
		t.Error("a member with entries has no data")
	}
	r.applied.Index = at
}

// What a member says under another folder's number does not make it agree.
func TestStandingOfAnotherFolderDoesNotCount(t *testing.T) {
	w := unfounded(t, 3).members[1]
	r := w.replica
	r.peers[2] = 0x22
	w.emitted(func(r *Replica) { r.onStanding(2, message.Standing{Known: r.incarnation}, false) })
	if r.fresh.Agrees(2, r.peers) {
		t.Error("it agrees")
	}
}

// Only a new member without data founds a cluster without those that are missing.
func TestOnlyANewMemberWithoutDataFounds(t *testing.T) {
	g := newTeam(t, 3)
	if reply := g.order(g.elected(), 1, Found{ID: 1}); !errors.Is(reply.Err, ErrFounding) || !strings.Contains(reply.Err.Error(), "belongs to it already") {
		t.Errorf("a member of a cluster: %v", reply.Err)
	}
	if awaits := g.members[1].replica.Awaits(); awaits != "" {
		t.Errorf("a member of a cluster waits: %s", awaits)
	}
	r := unfounded(t, 3).members[1].replica
	for _, id := range []uint64{2, 3} {
		r.peers[id], r.fresh.Stands[id] = 0x22, message.Standing{Known: r.incarnation}
	}
	if err := r.mayFoundWithout(); err != nil {
		t.Fatal(err)
	}
	if awaits := r.Awaits(); awaits != "" {
		t.Errorf("all agree, and it waits: %s", awaits)
	}
	if r.applied.Index = 1; r.mayFoundWithout() == nil {
		t.Error("a member with data may")
	}
	r.applied.Index = 0
}

// A new member says of each other member why it waits.
func TestNewMemberSaysWhyItWaits(t *testing.T) {
	r := unfounded(t, 3).members[1].replica
	for _, c := range []struct {
		stands *message.Standing
		want   string
	}{
		{nil, "does not answer"},
		{&message.Standing{}, "is not yet acquainted"},
		{&message.Standing{Data: true}, "is not yet acquainted"},
		{&message.Standing{Known: r.incarnation, Data: true}, "is not yet acquainted"},
		{&message.Standing{Known: 7}, "knows another data directory of this member"},
		{&message.Standing{Known: 7, Data: true}, "has data, and knows another data directory of this member"},
	} {
		delete(r.fresh.Stands, 2)
		if c.stands != nil {
			r.fresh.Stands[2] = *c.stands
		}
		if got := r.Awaits(); got != "member 2 "+c.want+", member 3 does not answer" {
			t.Errorf("%+v: %s", c.stands, got)
		}
	}
}

// heard has a member receive a message of raft, and returns what it sends.
func (g *team) heard(from, to uint64, m *raftpb.Message) []Effect {
	m.From, m.To = &from, &to
	return g.members[to].step(Received{Incarnation: 0x100 + from, Message: message.Message{From: from, To: to, Raft: m}})
}

// An order to campaign that a promise refuses is dropped. A member that may not vote yet keeps it, unless it is new.
func TestRefusedOrderToCampaignIsKeptInTheHoldOffOnly(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	g.cut = func(message.Message) bool { return true }
	member := g.follower(leader)
	r := g.members[member].replica
	order := func() *raftpb.Message {
		return &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), Term: new(r.term)}
	}
	if g.heard(leader, member, order()); r.ordered != nil {
		t.Error("an order that a promise refuses is kept")
	}
	g.crash(member, 10*time.Millisecond)
	r = g.members[member].replica
	if g.heard(leader, member, order()); r.ordered == nil {
		t.Error("an order in the hold-off is not kept")
	}
	r.ordered, r.fresh = nil, new(fresh)
	g.heard(leader, member, order())
	if r.fresh = nil; r.ordered != nil {
		t.Error("a new member keeps an order")
	}
}

// A vote that comes while a promise binds is dropped; a refusal is not.
func TestVotesAreDroppedWhileAPromiseBinds(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	member := g.follower(leader)
	w := g.members[member]
	for _, reject := range []bool{false, true} {
		before := w.replica.grantor.Stats(w.clock.Now()).Dropped
		g.heard(6-leader-member, member, &raftpb.Message{Type: raftpb.MsgVoteResp.Enum(), Term: new(w.replica.term), Reject: &reject})
		if dropped := w.replica.grantor.Stats(w.clock.Now()).Dropped - before; (dropped > 0) == reject {
			t.Errorf("of an answer that refuses (%v) %d are dropped", reject, dropped)
		}
	}
}

// A follower passes no question on, and takes no snapshot that comes without its state.
func TestFollowerTakesOnlyWholeMessages(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	member := g.follower(leader)
	r := g.members[member].replica
	effects := g.heard(6-leader-member, member, &raftpb.Message{Type: raftpb.MsgReadIndex.Enum(), Entries: []*raftpb.Entry{{Data: []byte("key")}}})
	if n := sends(effects, raftpb.MsgReadIndex); n != 0 {
		t.Errorf("%d questions are passed on", n)
	}
	g.heard(leader, member, &raftpb.Message{Type: raftpb.MsgSnap.Enum(), Term: new(r.term), Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(r.log.Last() + 9), Term: new(r.term), ConfState: &raftpb.ConfState{Voters: g.ids},
	}}})
	if r.installing {
		t.Error("a snapshot without a state is installed")
	}
}

// A follower believes a leader's answer about an entry that it knows or does not have yet. One about an entry that its log
// no longer reaches does not show that both have the same.
func TestAnswerAboutATruncatedEntryConfirmsNothing(t *testing.T) {
	g := newTeamOf(t, 3, func(c *Config) { c.LogKeep = 5 })
	leader := g.elected()
	for id := range uint64(30) {
		g.do(leader, id+1, put1("k", "v"))
	}
	g.pass(time.Second)
	member := g.follower(leader)
	r := g.members[member].replica
	if r.log.Truncated().Index < 3 {
		t.Fatalf("the log is truncated at %d", r.log.Truncated().Index)
	}
	for _, c := range []struct {
		index    uint64
		believed bool
	}{{r.log.Truncated().Index - 1, false}, {r.settled, true}, {r.settled + 1, true}} {
		key := strings.Repeat("k", roundKey)
		r.confirming.round, r.confirming.key, r.confirming.since, r.confirming.pending = []unconfirmed{{ReadAt{ID: 1}, r.now.Add(time.Hour)}}, key, r.now, nil
		g.heard(leader, member, &raftpb.Message{Type: raftpb.MsgReadIndexResp.Enum(), Term: new(r.term), Index: new(c.index), Entries: []*raftpb.Entry{{Data: []byte(key)}}})
		if believed := r.confirming.key != key; believed != c.believed {
			t.Errorf("about entry %d, of %d to %d: believed is %v", c.index, r.log.Truncated().Index, r.settled, believed)
		}
		r.confirming.round, r.confirming.key, r.confirming.pending = nil, "", nil
	}
}

// A message of a term that is over does not put off the next election.
func TestMessageOfAnEarlierTermIsNoSignOfALeader(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	g.step(leader, HandOver{ID: 1})
	leader = g.elected()
	g.pass(time.Second)
	g.cut = func(message.Message) bool { return true }
	member := g.follower(leader)
	w := g.members[member]
	w.clock.Advance(100 * time.Millisecond)
	before := w.replica.heard
	for _, from := range []uint64{leader, 6 - leader - member} {
		g.heard(from, member, &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), Term: new(w.replica.term - 1)})
		if w.replica.heard != before {
			t.Errorf("a heartbeat of member %d of the earlier term counts", from)
		}
	}
	if g.heard(leader, member, &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), Term: new(w.replica.term)}); w.replica.heard == before {
		t.Error("one of this term does not")
	}
}

// A member asks itself whether requests work through it. Its driver hears nothing of that.
func TestProbesAreAnsweredToNobody(t *testing.T) {
	g := newTeam(t, 3)
	g.elected()
	g.pass(3 * time.Second)
	for _, id := range g.ids {
		for _, effect := range g.replies[id] {
			t.Errorf("member %d answers what nobody asked: %+v", id, effect)
		}
	}
}

// An eager member waits for no leader.
func TestEagerMemberWaitsForNobody(t *testing.T) {
	r := &Replica{cfg: Config{Eager: true, ElectionTimeout: time.Second}}
	if silence := r.silence(); silence != 0 {
		t.Errorf("it waits for %v", silence)
	}
}

// Only what raft has processed counts beyond raft: not the grant beside an answer that is refused, nor the leader of a
// snapshot that came without its state.
func TestRefusedMessagesCountForNothing(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	member := g.follower(leader)
	g.cut = func(message.Message) bool { return true }
	w := g.members[leader]
	before := w.replica.holder.Stats(w.clock.Now()).OtherTerm
	grant := masterlease.Grant{Term: 99, Epoch: 1}
	w.step(Received{Incarnation: 0x100 + member, Message: message.Message{
		From: member, To: leader, Lease: masterlease.Header{Grant: &grant}, Raft: &raftpb.Message{
			Type: raftpb.MsgHeartbeatResp.Enum(), From: &member, To: &leader, Term: new(w.replica.term), Context: []byte("no round"),
		}}})
	if after := w.replica.holder.Stats(w.clock.Now()).OtherTerm; after != before {
		t.Error("the grant beside an answer to a round that never was counts")
	}
	w = g.members[member]
	w.clock.Advance(100 * time.Millisecond)
	heard := w.replica.heard
	g.heard(leader, member, &raftpb.Message{Type: raftpb.MsgSnap.Enum(), Term: new(w.replica.term), Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(w.replica.log.Last() + 9), Term: new(w.replica.term), ConfState: &raftpb.ConfState{Voters: g.ids},
	}}})
	if w.replica.heard != heard {
		t.Error("a snapshot without its state is a sign of the leader")
	}
}
