package simulation

import (
	"errors"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
)

var (
	errDisk = errors.New("the disk failed")
	errLink = errors.New("the link broke")
)

// network is the links between members. The first index sends.
type network struct {
	w *world
	// cut is, for each link, the real time until which messages are lost.
	cut [][]int64
	// held is, for each link, the real time until which messages wait.
	held [][]int64
}

func newNetwork(w *world) network {
	n := network{w: w}
	for range w.slots() {
		n.cut = append(n.cut, make([]int64, w.slots()))
		n.held = append(n.held, make([]int64, w.slots()))
	}
	return n
}

// send sends a message.
func (n *network) send(from *member, message replica.Message) {
	w := n.w
	to := w.memberOf(message.To)
	if to == nil || message.From != from.id {
		w.fail("messages are for other members", "%s sends from %d to %d", from.name, message.From, message.To)
		return
	}
	w.facts.sent(from, to, message)
	bytes := message.AppendTo(nil)
	w.note(from.name, "sends "+kindOf(message), to.id, hashBytes(bytes))
	if message.Standing != nil { // sent only while the cluster is being founded, and then without faults, so that other draws stay the same
		if w.now >= n.cut[from.index][to.index] {
			w.after(w.delay, func() { n.deliver(from, to, bytes, from.incarnation) })
		}
		return
	}
	copies := 1
	if chance(w.dice.network, w.doubled) {
		copies++
	}
	for range copies {
		if delay, ok := n.delay(from, to, message); ok {
			w.after(delay, func() { n.deliver(from, to, bytes, from.incarnation) })
		} else if chance(w.dice.network, 0.2) {
			from.event(replica.Unreachable{Member: to.id})
		}
	}
}

// delay draws how long a message takes; false means that it is lost.
func (n *network) delay(from, to *member, message replica.Message) (time.Duration, bool) {
	w := n.w
	if w.now < n.cut[from.index][to.index] {
		return 0, false
	}
	delay := w.delay/2 + w.upTo(w.dice.network, w.delay)
	if w.calm {
		return delay, true
	}
	if chance(w.dice.network, w.lost) {
		return 0, false
	}
	late := w.late
	if message.Raft != nil && message.Raft.GetType() == raftpb.MsgTimeoutNow {
		late = max(late, w.lateOrders)
	}
	if chance(w.dice.network, late) {
		delay = w.upTo(w.dice.network, 3*time.Second)
		w.mark("a message arrived very late")
	}
	return delay + time.Duration(max(0, n.held[from.index][to.index]-w.now)), true
}

func (n *network) deliver(from, to *member, bytes []byte, incarnation uint64) {
	message, err := message.Parse(from.id, to.id, bytes)
	if err != nil {
		n.w.fail("messages can be read", "from %s to %s: %v", from.name, to.name, err)
		return
	}
	if r := message.Raft; r != nil && r.GetType() == raftpb.MsgAppResp && !r.GetReject() && !n.w.calm && to.up && chance(n.w.dice.network, n.w.boasts) {
		r.Index = new(to.replica.Last() + 1000)
		n.w.mark("a member acknowledged entries that no member has")
	}
	to.event(replica.Received{Message: message, Incarnation: incarnation})
}

// kindOf returns the name of a message's kind for the trace.
func kindOf(m replica.Message) string {
	switch {
	case m.Raft != nil:
		return raftpb.MessageType_name[int32(m.Raft.GetType())]
	case len(m.Renewals) > 0:
		return "Renewals"
	case len(m.Renewed) > 0:
		return "Renewed"
	case m.Lease.Release != nil:
		return "Release"
	}
	return "nothing"
}

func (w *world) memberOf(id uint64) *member {
	if id == 0 || id > uint64(len(w.members)) {
		return nil
	}
	return w.members[id-1]
}

// cutFor cuts a link for d, or with hold delays its messages.
func (n *network) cutFor(from, to int, d time.Duration, hold bool) {
	if from == to {
		return
	}
	table := n.cut
	if hold {
		table = n.held
	}
	table[from][to] = max(table[from][to], n.w.now+int64(d))
}

func (n *network) heal() {
	for i := range n.cut {
		clear(n.cut[i])
		clear(n.held[i])
	}
}
