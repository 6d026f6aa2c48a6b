package replica

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// E5 (docs/design/master-leases.md): answers to heartbeats name rounds that never were: half a number, a moment in
// time, more rounds than there were. raft would crash, or take a read for confirmed. Only true answers confirm.
func TestForgedHeartbeatAnswersConfirmNothing(t *testing.T) {
	number := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for _, round := range [][]byte{
		{1}, {1, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0}, append(number(1), 0), append(number(1), number(0)...),
		number(1000), number(1_763_786_400_000_000_000), number(math.MaxUint64), []byte("\x00stamps!"),
	} {
		for _, answering := range []int{1, 2} {
			t.Run(fmt.Sprintf("%x of %d", round, answering), func(t *testing.T) { nothingConfirms(t, round, answering) })
		}
	}
}

func nothingConfirms(t *testing.T, round []byte, answering int) {
	w := newWitness(t, false)
	leader := w.begin(time.Second)
	r, term := w.members[leader].replica, w.term(leader)
	w.members[leader].clock.Advance(2 * time.Second) // its lease is over, and it knows nothing of the others
	w.cut = func(m Message) bool { return m.Raft.GetType() == raftpb.MsgHeartbeat }
	read := w.requests + 1
	if w.tryRead(leader) || r.confirming.key == "" {
		t.Fatal("no round is under way")
	}
	a, b := w.others(leader)
	for _, from := range []uint64{a, b}[:answering] {
		w.arrive(Message{From: from, To: leader, Raft: &raftpb.Message{
			Type: raftpb.MsgHeartbeatResp.Enum(), From: new(from), To: new(leader), Term: new(term), Context: round,
		}})
	}
	if answer := w.replyTo(leader, read); answer != nil {
		t.Errorf("the read is answered: %+v", answer)
	}
	if malformed := r.Counts().Malformed; malformed != uint64(answering) {
		t.Errorf("%d messages were malformed", malformed)
	}
	w.cut = func(Message) bool { return false }
	w.team.pass(5 * TickInterval)
	if _, ok := w.replyTo(leader, read).(ReadAt); !ok {
		t.Errorf("true answers do not confirm: %+v", w.replyTo(leader, read))
	}
}

// raft takes a message without a term for its own, in whatever term it is. So the member drops it.
func TestMessagesWithoutATermAreDropped(t *testing.T) {
	w := newWitness(t, false)
	leader := w.begin(time.Second)
	follower, _ := w.others(leader)
	before := w.term(leader)
	for _, kind := range []raftpb.MessageType{raftpb.MsgHeartbeatResp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgTimeoutNow} {
		w.arrive(Message{From: follower, To: leader, Raft: &raftpb.Message{
			Type: kind.Enum(), From: new(follower), To: new(leader), Index: new(uint64(99)),
		}})
	}
	if malformed := w.members[leader].replica.Counts().Malformed; malformed != 6 {
		t.Errorf("%d messages were malformed", malformed)
	}
	if w.mustWrite(leader); w.term(leader) != before {
		t.Errorf("term %d", w.term(leader))
	}
}

// E6 (docs/design/master-leases.md): acknowledgements to a new leader arrive cut down to what the others had before
// its election, as if they were late. So nothing of its own term commits. It answers nothing, and has no authority
// although it has promises. Once the true acknowledgements arrive, all waiting requests are answered.
func TestNewLeaderAnswersNothingBeforeItsTermCommits(t *testing.T) {
	w := newWitness(t, true)
	old := w.begin(time.Second)
	a, b := w.others(old)
	before := max(w.members[a].replica.log.Last(), w.members[b].replica.log.Last())
	var whole []Message
	w.isolate(old)
	isolated := w.cut
	w.cut = func(m Message) bool {
		if isolated(m) || m.Raft.GetType() != raftpb.MsgAppResp || m.Raft.GetIndex() <= before || m.Raft.GetReject() {
			return isolated(m)
		}
		whole = append(whole, m)
		less := proto.CloneOf(m.Raft)
		less.Index = new(before)
		to := w.members[m.To]
		to.inbox = append(to.inbox, Received{Message: Message{From: m.From, To: m.To, Raft: less, Lease: m.Lease}, Incarnation: 0x100 + m.From})
		return true
	}
	next := uint64(0)
	for i := 0; next == 0; i++ {
		if i == 1000 {
			t.Fatal("no leader is elected")
		}
		w.pass(5 * time.Millisecond)
		for _, id := range []uint64{a, b} {
			if w.members[id].replica.leading {
				next = id
			}
		}
	}
	w.requests += 2
	write, read, r := w.requests-1, w.requests, w.members[next].replica
	w.step(next, Request{ID: write, Command: put1("k", "late")}, Read{ID: read})
	for range 50 {
		w.team.pass(5 * time.Millisecond)
		if now := w.members[next].clock.Now(); r.Serving() || r.Authority().Holds(now) {
			t.Fatalf("it serves %v, with authority %v", r.Serving(), r.Authority().Holds(now))
		}
	}
	if !r.leading || r.holder.Stats(w.members[next].clock.Now()).Accepted == 0 || len(w.replies[next]) > 0 {
		t.Fatalf("it leads %v, and has answered %+v", r.leading, w.replies[next])
	}
	w.cut = isolated
	for _, m := range whole {
		w.arrive(m)
	}
	answer, _ := w.replyTo(next, read).(ReadAt)
	if reply, ok := w.replyTo(next, write).(Reply); !ok || reply.Err != nil || answer.ID != read {
		t.Errorf("after all is acknowledged: %+v", w.replies[next])
	}
}

// E7 (docs/design/master-leases.md): a member that cannot reach the leader asks a voter for its vote for twenty
// election timeouts. The voter has promised the leader, and does not even let raft see the requests. No term changes,
// and the leader reads all along.
func TestPromisedVoterIgnoresCandidates(t *testing.T) {
	for _, eager := range []bool{false, true} {
		t.Run(fmt.Sprintf("eager %v", eager), func(t *testing.T) {
			w := newWitness(t, eager)
			leader := w.begin(time.Second)
			candidate, voter := w.others(leader)
			term := w.term(leader)
			w.sever(leader, candidate)
			for range 20 * 20 {
				w.pass(DefaultElectionTimeout / 20)
				if !w.tryRead(leader) {
					t.Fatal("the leader does not read")
				}
			}
			if parked := w.members[voter].replica.grantor.Stats(w.members[voter].clock.Now()).Parked; parked < 20 {
				t.Errorf("the voter was asked %d times", parked)
			}
			for _, id := range w.ids {
				if w.term(id) != term {
					t.Errorf("member %d went from term %d to %d", id, term, w.term(id))
				}
			}
		})
	}
}

// E8 (docs/design/master-leases.md): both followers make raft forget the leader, and one campaigns without asking the
// gate. raft alone would elect it at once. The other holds its vote back until its promise has ended. Then the old
// leader's master lease has ended too.
func TestForgottenLeaderKeepsItsPromise(t *testing.T) {
	w := newWitness(t, false)
	old := w.begin(time.Second)
	a, b := w.others(old)
	w.isolate(old)
	for _, id := range []uint64{a, b} {
		if err := w.members[id].replica.raft.ForgetLeader(); err != nil {
			t.Fatal(err)
		}
		w.members[id].replica.observe()
	}
	if err := w.members[a].replica.raft.Campaign(); err != nil {
		t.Fatal(err)
	}
	w.members[a].replica.observe()
	w.step(a, Tick{})
	voter := w.members[b]
	if parked := voter.replica.grantor.Stats(voter.clock.Now()).InParked; parked != 1 {
		t.Errorf("%d candidates wait", parked)
	}
	if w.term(a) != w.term(old) || w.term(b) != w.term(old) || !w.tryRead(old) {
		t.Errorf("terms are %d and %d, and the leader's is %d", w.term(a), w.term(b), w.term(old))
	}
	w.takeover(old)
}

// E9 (docs/design/master-leases.md): a cluster's only member restarts, and the commit of its newest entries was never
// synced. Before it has applied an entry of its own term it does not know that they are committed. So it reads
// nothing, not even older state.
func TestSingleMemberReadsNothingBeforeItsFirstEntry(t *testing.T) {
	w := newWorld(t).serve()
	for i := range 5 {
		if reply := w.do(uint64(i+1), put1("k", fmt.Sprint(i))); reply.Err != nil {
			t.Fatal(reply.Err)
		}
	}
	revision := w.replica.Store().Revision()
	before := w
	w = w.crashed(nil)
	w.start()
	before.close()
	defer w.close()
	if w.replica.log.HardState().GetCommit() >= w.replica.log.Last() {
		t.Fatal("it knows already that all is committed")
	}
	leading := false
	for id := uint64(1); !w.replica.Serving(); id += 3 {
		for _, question := range []Event{Read{ID: id}, Inspection{ID: id + 1, Query: TimeToLive{Lease: 7}}, Renewal{ID: id + 2, Leases: []lessor.ID{7}}} {
			if _, ok := w.replica.Answer(w.clock.Now(), question); ok {
				t.Errorf("%T is answered from memory", question)
			}
			noAnswer(t, w.step(question))
		}
		leading = leading || w.replica.leading
		if len(w.writes) == 0 {
			t.Fatal("it waits for nothing")
		}
		if effects := w.report(); !w.replica.Serving() {
			noAnswer(t, effects)
		} else {
			effects = append(effects, w.settle()...)
			allRead(t, effects, revision)
		}
	}
	if !leading {
		t.Error("it was never asked when it led and had applied nothing yet")
	}
}

func noAnswer(t *testing.T, effects []Effect) {
	t.Helper()
	for _, effect := range effects {
		switch effect.(type) {
		case ReadAt, Reply, Renewed:
			t.Fatalf("answered before the member serves: %+v", effect)
		}
	}
}

func allRead(t *testing.T, effects []Effect, revision int64) {
	t.Helper()
	reads := 0
	for _, effect := range effects {
		if read, ok := effect.(ReadAt); ok {
			reads++
			if read.Header.Revision != revision {
				t.Errorf("it reads at revision %d and not at %d", read.Header.Revision, revision)
			}
		}
	}
	if reads == 0 {
		t.Error("the reads were never answered")
	}
}
