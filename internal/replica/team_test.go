package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
)

// team is a cluster of several worlds, with a network that loses nothing but what is cut.
type team struct {
	t       testing.TB
	ids     []uint64
	members map[uint64]*world
	down    map[uint64]bool
	slow    uint64             // the member whose disk never finishes
	cut     func(Message) bool // messages for which it is true are lost
	rewrite func(*Message)     // changes messages before they are sent; nil changes none
	replies map[uint64][]Effect
	sent    []Message // since it was last set to nil

	holdShips bool   // states stay on their way
	onTheWay  []Ship // that do

	vanishAt uint64 // a request: the member that answers it is down from then on, and what it sends in the same Step is lost
	requests uint64 // made up so far
}

func newTeam(t testing.TB, size int) *team {
	return newTeamOf(t, size, func(*Config) {})
}

func newTeamOf(t testing.TB, size int, set func(*Config)) *team {
	g := &team{t: t, members: make(map[uint64]*world), down: make(map[uint64]bool), replies: make(map[uint64][]Effect)}
	g.cut = func(Message) bool { return false }
	for i := range size {
		g.ids = append(g.ids, uint64(i+1))
	}
	for _, id := range g.ids {
		g.members[id] = newWorldOf(t, func(w *world) {
			w.clock = clock.NewManual(clock.Instant{Raw: int64(id) * int64(time.Hour), Boot: int64(id) * int64(time.Minute)})
			w.configure = func(c *Config) {
				c.MemberID, c.Incarnation, c.Members = id, 0x100+id, g.ids
				set(c)
			}
		})
	}
	t.Cleanup(func() {
		for _, id := range g.ids {
			g.members[id].close()
		}
	})
	g.awaitFounding()
	return g
}

// awaitFounding lets the members get to know each other, which takes no time.
func (g *team) awaitFounding() {
	g.t.Helper()
	for _, id := range g.ids {
		g.step(id, Tick{})
	}
	for _, id := range g.ids {
		if r := g.members[id].replica; r.fresh != nil {
			g.t.Fatalf("member %d is still new: %s", id, r.Awaits())
		}
	}
	g.sent = nil
}

// step lets a member process events, and continues until no member has anything to do.
func (g *team) step(id uint64, events ...Event) {
	g.perform(id, g.members[id].step(events...))
	g.rest()
}

func (g *team) perform(id uint64, effects []Effect) {
	if g.vanishAt != 0 && slices.ContainsFunc(effects, func(e Effect) bool { reply, ok := e.(Reply); return ok && reply.ID == g.vanishAt }) {
		g.down[id] = true
	}
	for _, effect := range effects {
		switch e := effect.(type) {
		case Send:
			g.deliver(e.Message)
		case Reply, ReadAt, Renewed:
			g.replies[id] = append(g.replies[id], e)
		case Ship:
			g.carryState(e)
		}
	}
}

func (g *team) deliver(m Message) {
	if g.rewrite != nil {
		g.rewrite(&m)
	}
	g.sent = append(g.sent, m)
	if g.cut(m) || g.down[m.To] || g.down[m.From] || g.members[m.To] == nil || g.members[m.To].halted != nil {
		return
	}
	again, err := message.Parse(m.From, m.To, m.AppendTo(nil))
	if err != nil {
		g.t.Fatalf("a message cannot be read: %v: %+v", err, m)
	}
	w := g.members[m.To]
	w.inbox = append(w.inbox, Received{Message: again, Incarnation: g.members[m.From].replica.Incarnation()})
}

// rest continues until no write and no message is in flight.
func (g *team) rest() {
	for range 10_000 {
		busy := false
		for _, id := range g.ids {
			w := g.members[id]
			if g.down[id] {
				continue
			}
			if len(w.inbox) > 0 {
				events := w.inbox
				w.inbox, busy = nil, true
				g.perform(id, w.step(events...))
			}
			if id != g.slow && len(w.writes)+len(w.replica.deferred) > 0 {
				busy = true
				g.perform(id, w.settle())
			}
		}
		if !busy {
			return
		}
	}
	g.t.Fatal("the cluster never rests")
}

// pass lets time pass for all.
func (g *team) pass(d time.Duration) {
	const step = 5 * time.Millisecond
	for ; d > 0; d -= step {
		for _, id := range g.ids {
			g.members[id].clock.Advance(step)
		}
		for _, id := range g.ids {
			if !g.down[id] {
				g.step(id, Tick{})
			}
		}
	}
}

// elected lets time pass until a member serves, and returns it.
func (g *team) elected() uint64 {
	g.t.Helper()
	for range 1000 {
		for _, id := range g.ids {
			if r := g.members[id].replica; !g.down[id] && r.Serving() && r.Authority().Holds(g.members[id].clock.Now()) {
				return id
			}
		}
		g.pass(5 * time.Millisecond)
	}
	g.t.Fatal("no member leads with authority")
	return 0
}

func (g *team) follower(leader uint64) uint64 {
	i := slices.IndexFunc(g.ids, func(id uint64) bool { return id != leader && !g.down[id] })
	return g.ids[i]
}

func (g *team) replyTo(id, request uint64) Effect {
	for _, effect := range g.replies[id] {
		switch e := effect.(type) {
		case Reply:
			if e.ID == request {
				return e
			}
		case ReadAt:
			if e.ID == request {
				return e
			}
		case Renewed:
			if e.ID == request {
				return e
			}
		}
	}
	return nil
}

// do requests a change of a member and returns its reply.
func (g *team) do(id, request uint64, c entry.Command) Reply {
	g.t.Helper()
	return g.order(id, request, Request{ID: request, Command: c})
}

// order has a member handle the event with that request's number, and returns its reply.
func (g *team) order(id, request uint64, event Event) Reply {
	g.t.Helper()
	g.step(id, event)
	reply, ok := g.replyTo(id, request).(Reply)
	if !ok {
		g.t.Fatalf("request %d at member %d has no reply: %v", request, id, g.replies[id])
	}
	return reply
}

// crash cuts a member's power and starts it again after the others went on for a while.
func (g *team) crash(id uint64, away time.Duration) {
	g.down[id] = true
	g.pass(away)
	old := g.members[id]
	w := old.crashed(nil)
	w.clock = clock.NewManual(old.clock.Now())
	w.start()
	old.close()
	g.members[id] = w
	delete(g.down, id)
}

func (g *team) same() {
	g.t.Helper()
	g.pass(2 * TickInterval)
	want := ""
	for _, id := range g.ids {
		if g.down[id] {
			continue
		}
		if dump := g.members[id].dump(); want == "" {
			want = dump
		} else if dump != want {
			g.t.Fatalf("members differ:\n%s\nand\n%s", want, dump)
		}
	}
}

func put1(key, value string) keyspace.PutRequest {
	return keyspace.PutRequest{Key: []byte(key), Value: []byte(value)}
}
