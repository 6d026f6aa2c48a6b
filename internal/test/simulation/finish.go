package simulation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// marked is the newest mark of a name, and its revision.
type marked struct {
	mark     backend.Mark
	revision int64
}

// drawFinishers returns the probability that a client that uses a name finishes a tenure. Most worlds have none.
func drawFinishers(seed uint64) float64 {
	return []float64{0, 0, 0.1}[rand.New(rand.NewPCG(seed, 7)).IntN(3)]
}

// finish repeats a finish without an answer, or finishes the tenure of a name that the client holds. Each tick is higher
// than all before it. Some names are held on.
func (c *client) finish() {
	w := c.w
	for _, l := range c.leases {
		if l.finish != nil && !c.awaits(l) {
			c.askFinish(l)
			return
		}
	}
	l := c.someHeld()
	if l == nil {
		return
	}
	w.puts++
	op := ownership.Finish{Name: l.name, Lease: l.id, Token: l.token, Tick: backend.TickNumber(int64(w.puts)).String()}
	if chance(w.dice.finish, 0.5) {
		op.Hold = time.Duration(100+w.dice.finish.IntN(2000)) * time.Millisecond
	}
	l.ending, l.finishing, l.finish = true, w.now, &op
	c.askFinish(l)
}

func (c *client) askFinish(l *lease) {
	op := *l.finish
	value := fmt.Sprintf("%d %s", op.Token, op.Tick)
	c.ask(c.anyMember(0.95), &call{kind: finishing, leases: []*lease{l}, value: value, event: replica.Request{Command: op}})
}

// heardFinished handles the acknowledgement of a finish.
func (c *client) heardFinished(k *call) {
	w, l := c.w, k.leases[0]
	op := k.event.(replica.Request).Command.(ownership.Finish)
	w.facts.checkFinished(k, op)
	l.finish = nil
	w.mark("a tenure was finished")
	if op.Hold == 0 {
		l.gone = true
		return
	}
	w.mark("a name was held on")
	// The member that ends the lease counts by its own clocks, and from a later moment than the first request.
	l.heldOn = l.finishing + int64(w.drift.RelyRemote(op.Hold))
	w.facts.checkHeldOn(l)
}

// notFinished handles the failure of a finish.
func (c *client) notFinished(k *call, err error) {
	if l := k.leases[0]; errors.Is(err, ownership.ErrLost) {
		c.w.facts.checkFailedPut(k, err)
		c.w.facts.checkGone(k, l)
		l.gone, l.finish = true, nil
	}
}

// checkFinished checks that the mark has the tick of an acknowledged finish, or a higher one, and that the lease has ended
// unless it is held on.
func (f *facts) checkFinished(k *call, op ownership.Finish) {
	l := k.leases[0]
	tick, err := backend.ParseTick(op.Tick)
	k.member.must(err)
	if m := f.marked[op.Name]; m.mark.IsZero() || m.mark.Tick.Compare(tick) < 0 {
		f.w.fail("what is acknowledged is there (I6)", "%s acknowledges the tick %s of %s, and the mark is %+v", k.member.name, op.Tick, op.Name, m)
	}
	if op.Hold == 0 && !l.ended {
		f.w.fail("a finish ends the tenure", "%s acknowledges the finish of %s, and no member has ended lease %d", k.member.name, op.Name, l.id)
	}
}

// expired records that the time of a lease that owned a name is over.
func (f *facts) expired(c ownership.Change) {
	if l := f.byID[int64(c.Lease)]; l != nil && c.Why == ownership.WhyExpired && l.expired == 0 {
		l.expired = f.w.now
		f.checkHeldOn(l)
	}
}

// checkHeldOn checks that the time of a name that is held on is not over too early.
func (f *facts) checkHeldOn(l *lease) {
	if l.expired != 0 && l.expired < l.heldOn {
		f.w.fail("a name is held on for as long as was acknowledged", "lease %d of %s expired %v before that", l.id, l.name, time.Duration(l.heldOn-l.expired))
	}
}

// watchMarks checks that the marks of names only rise.
func (f *facts) watchMarks(m *member, c keyspace.Change) {
	for _, e := range c.Events {
		name, isMark := strings.CutPrefix(string(e.KV.Key), backend.MarkPrefix)
		if !isMark || e.Type != keyspace.EventPut {
			continue
		}
		mark, err := backend.ParseMark(string(e.KV.Value))
		m.must(err)
		if before := f.marked[name]; !before.mark.IsZero() && mark.Tick.Compare(before.mark.Tick) <= 0 {
			f.w.fail("the mark of a name rises", "%s has the mark %+v of %s at revision %d, after %+v", m.name, mark, name, c.Revision, before)
		}
		f.marked[name] = marked{mark, c.Revision}
	}
}
