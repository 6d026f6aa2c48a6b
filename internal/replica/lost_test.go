package replica

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
)

// A member's directory was emptied, and its leader still runs. By the leader's heartbeat the member learns what it
// had acknowledged. It halts, and reports why. The others never count its vote.
func TestMemberThatLostAcknowledgedEntriesHalts(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.do(leader, 1, put1("k", "v"))
	g.pass(time.Second)
	victim := g.follower(leader)
	g.down[victim] = true
	emptied := newWorldOf(t, func(w *world) {
		w.clock = clock.NewManual(g.members[victim].clock.Now())
		w.configure = func(c *Config) { c.MemberID, c.Incarnation, c.Members = victim, 0xbad, g.ids }
	})
	defer emptied.close()
	var beat *Message
	g.cut = func(m Message) bool {
		if m.To == victim && m.Raft.GetType() == raftpb.MsgHeartbeat {
			beat = &m
		}
		return false
	}
	g.pass(2 * TickInterval)
	if beat == nil || beat.Raft.GetCommit() < 2 {
		t.Fatalf("the leader tells it nothing: %+v", beat)
	}
	heard := Received{Message: *beat, Incarnation: 0x100 + leader}
	emptied.step(heard) // gets to know the leader
	emptied.settle()
	effects := emptied.replica.Step(emptied.clock.Now(), heard, heard)
	halt, ok := effects[len(effects)-1].(Halt)
	if !ok || !strings.Contains(halt.Err.Error(), "emptied") {
		t.Fatalf("it goes on: %+v", effects)
	}
	if more := emptied.replica.Step(emptied.clock.Now(), Tick{}); more != nil {
		t.Errorf("after it halted: %+v", more)
	}
}
