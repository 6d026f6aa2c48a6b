package simulation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

const (
	// callTimeout is when a client gives up a call. The outcome of the call is unknown then.
	callTimeout = 2500 * time.Millisecond
	// keysOfClients and namesOfClients are small, so that clients meet.
	keysOfClients, namesOfClients = 3, 3
)

// client sends requests to members, and relies on the answers.
type client struct {
	w      *world
	name   string
	clocks *clockPair
	calls  []*call // without an answer
	leases []*lease
	target int                // index of the member that it believes to lead
	still  int64              // the client is paused until this real time
	known  map[string]version // what it believes of registers
	former *lease             // a lease that held a name and is past its deadline; nil if there is none
}

func newClient(w *world, i int) *client {
	return &client{w: w, name: fmt.Sprintf("c%d", i+1), clocks: newClocks(w), target: w.dice.world.IntN(w.swarm.members), known: make(map[string]version)}
}

// act does one thing, and schedules the next.
func (c *client) act() {
	w := c.w
	if w.over {
		return
	}
	w.after(w.rhythm/2+w.upTo(w.dice.work, w.rhythm), c.act)
	if w.now < c.still {
		return
	}
	for _, l := range c.leases {
		// Once its deadline has passed, a claim is lost for good. A later answer does not change that.
		if !l.gone && l.granted && l.name != "" && !c.clocks.now(w).Before(l.deadline) {
			l.gone = true
			if l.holds {
				c.former = l
			}
		}
	}
	c.leases = slices.DeleteFunc(c.leases, func(l *lease) bool { return l.finish == nil && (l.gone || l.ended && !l.reliedOn(w)) })
	c.renew()
	if chance(w.dice.work, w.tenants) {
		c.useNames()
		return
	}
	switch dice := w.dice.work.IntN(100); {
	case dice < 18:
		c.put()
	case dice < 38:
		c.read()
	case dice < 45:
		if m := w.members[w.dice.work.IntN(len(w.members))]; m.up {
			m.readAsIs(anyRead(w))
			m.readOld(anyRead(w))
		}
	case dice < 54:
		c.grant()
	case dice < 72:
		c.claim()
	case dice < 77:
		c.inspect()
	case dice < 81:
		c.endOne()
	case dice < 83:
		c.compact()
	default:
		c.useNames()
	}
}

// useNames does something with names, the keys that they guard, or registers. Pins are rarer than their ends, so that
// names change holders.
func (c *client) useNames() {
	if c.w.finishers > 0 && chance(c.w.dice.finish, c.w.finishers) {
		c.finish()
		return
	}
	if c.w.ranks > 0 && chance(c.w.dice.ranks, 0.1) {
		c.prefer()
		return
	}
	switch dice := c.w.dice.work.IntN(100); {
	case dice < 35:
		c.swap()
	case dice < 60:
		c.guard()
	case dice < 80:
		c.claim()
	case dice < 93:
		c.transfer()
	case dice < 95:
		c.pin()
	default:
		c.unpin()
	}
}

// compact requests a compaction at a revision close to the newest that a client knows. That may be compacted already.
func (c *client) compact() {
	if floor := c.w.facts.floor; floor > 1 {
		revision := floor - c.w.dice.work.Int64N(min(floor, 10))
		c.ask(c.anyMember(0.95), &call{kind: compacting, event: replica.Request{Command: entry.Compact{Revision: revision}}})
	}
}

func anyKey(w *world) string { return string(rune('a' + w.dice.work.IntN(keysOfClients))) }

func anyName(w *world) string { return nthName(w.dice.work.IntN(namesOfClients)) }

func nthName(i int) string { return "n/" + string(rune('a'+i)) }

// anyMember returns the member that the client believes to lead with probability leader, or else any member.
func (c *client) anyMember(leader float64) *member {
	if chance(c.w.dice.work, leader) {
		return c.w.members[c.target]
	}
	return c.w.members[c.w.anyMachine()]
}

func (c *client) put() {
	w := c.w
	w.puts++
	k := &call{kind: putting, key: anyKey(w), value: sequence(w.puts)}
	request := keyspace.PutRequest{Key: []byte(k.key), Value: []byte(k.value)}
	if l := c.someLease(); l != nil && chance(w.dice.work, 0.2) {
		request.Lease, k.leases = int64(l.id), []*lease{l}
		request.Key = fmt.Appendf(nil, "l%d", l.id)
		k.key = string(request.Key)
	}
	if chance(w.dice.users, w.users) {
		k.user = "some"
	}
	k.event = replica.Request{Command: request}
	c.ask(c.anyMember(0.95), k)
}

func (c *client) read() {
	c.ask(c.anyMember(0.4), &call{kind: reading, key: anyRead(c.w), event: replica.Read{}})
}

func (c *client) someLease() *lease {
	if len(c.leases) == 0 {
		return nil
	}
	return c.leases[c.w.dice.work.IntN(len(c.leases))]
}

// newLease draws a lease. Many holders never renew theirs.
func (c *client) newLease(name string) *lease {
	w := c.w
	w.ids++
	ttls := []time.Duration{300 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second}
	l := &lease{id: lessor.ID(1000 + w.ids), ttl: ttls[w.dice.work.IntN(len(ttls))], holder: c, name: name}
	l.keep = chance(w.dice.work, 0.6)
	if name != "" {
		l.rank = w.drawRank()
	}
	w.facts.addLease(l)
	c.leases = append(c.leases, l)
	return l
}

func (c *client) grant() {
	if len(c.leases) >= 6 {
		return
	}
	l := c.newLease("")
	c.ask(c.anyMember(0.95), &call{kind: granting, leases: []*lease{l}, event: replica.Request{Command: entry.Grant{Lease: l.id, TTL: l.ttl}}})
}

// claim claims a name, repeats a claim without an answer, or asks for a waiting claim's place in the queue.
func (c *client) claim() {
	w := c.w
	for _, l := range c.leases {
		switch {
		case l.name == "" || l.holds || l.ending || chance(w.dice.work, 0.5):
		case l.granted: // and never claimed again: a repeated claim could be granted a second time, with another token
			c.ask(c.anyMember(0.95), &call{kind: placing, leases: []*lease{l}, event: replica.Inspection{Query: replica.PlaceQuery{Name: l.name, Lease: l.id}}})
			return
		case !c.awaits(l) || chance(w.dice.work, 0.2): // the answer was lost, or is not awaited
			c.ask(c.anyMember(0.95), c.claimOf(l, true))
			return
		}
	}
	if len(c.leases) >= 6 {
		return
	}
	l := c.newLease(anyName(w))
	c.ask(c.anyMember(0.95), c.claimOf(l, chance(w.dice.work, 0.6)))
}

// awaits reports whether an answer about a lease may still come.
func (c *client) awaits(l *lease) bool {
	return slices.ContainsFunc(c.calls, func(k *call) bool { return slices.Contains(k.leases, l) })
}

func (c *client) claimOf(l *lease, wait bool) *call {
	if l.first == (clock.Instant{}) {
		l.first = c.clocks.now(c.w)
	}
	op := ownership.Claim{Lease: l.id, TTL: l.ttl, Name: l.name, Holder: []byte(c.name), Wait: wait, Priority: l.rank}
	return &call{kind: claiming, leases: []*lease{l}, tenures: len(c.w.facts.learnedTenures(l.name)), event: replica.Request{Command: op}}
}

func (c *client) inspect() {
	if l := c.someLease(); l != nil && l.granted {
		c.ask(c.anyMember(0.95), &call{kind: asking, leases: []*lease{l}, event: replica.Inspection{Query: replica.TimeToLive{Lease: l.id}}})
	}
}

// endOne ends a lease, or the tenure of a name.
func (c *client) endOne() {
	w := c.w
	l := c.someLease()
	if l == nil {
		return
	}
	switch {
	case l.name != "" && chance(w.dice.work, 0.3): // its holder keeps it until its promised end
		c.ask(c.anyMember(0.95), &call{kind: revokingName, leases: []*lease{l}, event: replica.Request{Command: ownership.Revoke{Name: l.name, Token: l.token, Note: "moved"}}})
	case l.name != "":
		l.ending = true
		c.ask(c.anyMember(0.95), &call{kind: releasing, leases: []*lease{l}, event: replica.Request{Command: ownership.Release{Name: l.name, Lease: l.id}}})
	default:
		l.ending = true
		c.ask(c.anyMember(0.95), &call{kind: revoking, leases: []*lease{l}, event: replica.Request{Command: entry.Revoke{Lease: l.id}}})
	}
}

// renew renews all leases that are due in one call.
func (c *client) renew() {
	w := c.w
	k := &call{kind: renewing}
	var ids []lessor.ID
	for _, l := range c.leases {
		if l.granted && l.keep && !l.ending && !l.transferring && time.Duration(w.now-l.renewal) > l.ttl/4 {
			l.renewal = w.now
			ids, k.leases = append(ids, l.id), append(k.leases, l)
		}
	}
	if len(ids) > 0 {
		k.event = replica.Renewal{Leases: ids}
		c.ask(c.anyMember(0.6), k)
	}
}

// giveUp drops a call without an answer.
func (c *client) giveUp(k *call) {
	if i := slices.Index(c.calls, k); i >= 0 {
		c.calls = slices.Delete(c.calls, i, i+1)
		c.w.note(c.name, "gives up", k.id, 0)
		c.elsewhere()
		if k.kind == administering {
			c.w.administrator.heard(c.w, replica.ErrUnknownOutcome)
		}
		if k.steady && k.member.up {
			c.w.fail("when nothing is wrong every call is answered (I10)", "%s asked %s at %v (kind %d) and has no answer",
				c.name, k.member.name, time.Duration(k.invoked), k.kind)
		}
	}
}

func (c *client) elsewhere() { c.target = c.w.anyMachine() }

// hear handles an answer.
func (c *client) hear(k *call, answer any) {
	i := slices.Index(c.calls, k)
	if i < 0 {
		return // given up
	}
	if renewed, ok := answer.(replica.Renewed); ok {
		c.heardRenewed(k, renewed)
		if len(k.leases) > 0 {
			return
		}
	}
	c.calls = slices.Delete(c.calls, i, i+1)
	switch a := answer.(type) {
	case keyspace.RangeResult:
		c.w.facts.checkRead(k, a)
	case replica.Reply:
		c.heardReply(k, a)
	}
}

func (c *client) heardRenewed(k *call, renewed replica.Renewed) {
	w := c.w
	for _, answer := range renewed.Leases {
		i := slices.IndexFunc(k.leases, func(l *lease) bool { return l.id == answer.ID })
		if i < 0 {
			w.fail("a renewal is answered once for each lease", "%s answers %s for lease %d again, or without a request", k.member.name, c.name, answer.ID)
			return
		}
		l := k.leases[i]
		k.leases = slices.Delete(k.leases, i, i+1)
		switch {
		case answer.Err == nil:
			w.facts.checkNewest(k, renewed.Header)
			l.granted = true
			l.extend(w, k.sent, answer.TTL)
			w.mark("a renewal was acknowledged")
			if k.member != w.leader() {
				w.mark("a renewal was acknowledged through a follower")
			}
		case isGone(answer.Err):
			w.facts.checkGone(k, l)
			l.gone = l.granted
		}
	}
}

func (c *client) heardReply(k *call, reply replica.Reply) {
	w := c.w
	if k.kind == unpinning && !errors.Is(reply.Err, replica.ErrUnknownOutcome) {
		w.facts.unpinsOf(k.key).open--
	}
	if k.kind == administering {
		w.administrator.heard(w, reply.Err)
	}
	if reply.Err != nil {
		c.heardError(k, reply.Err)
		return
	}
	w.facts.learned(min(reply.Header.Revision, w.facts.newestRevision))
	switch k.kind {
	case putting:
		w.facts.checkRight(k)
		w.facts.checkPut(k, reply.Result.(keyspace.PutResult))
	case granting:
		l := k.leases[0]
		l.granted = true
		l.extend(w, k.sent, reply.Result.(replica.Granted).TTL)
		if l.since == 0 && !l.ended && !l.ending {
			w.fail("what is acknowledged is there (I6)", "%s acknowledges lease %d, which no member has", k.member.name, l.id)
		}
	case claiming:
		c.heardClaim(k, reply.Result.(ownership.Claimed))
	case placing:
		w.facts.checkNewest(k, reply.Header)
		place := reply.Result.(ownership.Place)
		c.placed(k.leases[0], place.Token, place.Before)
	case compacting:
		w.mark("history was compacted")
	case swapping:
		c.heardSwap(k, reply.Result.(keyspace.TxnResult))
	case guarding:
		c.heardGuard(k, reply.Result.(keyspace.TxnResult))
	case transferring:
		c.heardTransferred(k, reply.Result.(ownership.Transferred).Token)
	case pinning:
		w.facts.checkPinned(k)
	case preferring:
		k.leases[0].preferred = true
		w.mark("a waiting claim was preferred")
	case finishing:
		c.heardFinished(k)
	case asking:
		w.facts.checkNewest(k, reply.Header)
		w.mark("a leader reported the remaining time of a lease")
	}
}

func (c *client) heardClaim(k *call, claimed ownership.Claimed) {
	w, l := c.w, k.leases[0]
	if claimed.Lease == lessor.NoLease {
		w.facts.checkRefused(k, claimed)
		l.gone = true // nothing was changed
		return
	}
	l.granted = true
	l.extend(w, l.first, claimed.TTL) // counted from the first send: a repeated claim extends nothing
	c.placed(l, claimed.Token, claimed.Before)
}

// placed records the place of a claim in the queue; before is the number of claims ahead of it.
func (c *client) placed(l *lease, token int64, before int) {
	l.token = token
	if before > 0 {
		c.w.mark("a claim waited in the queue")
		return
	}
	if !l.holds {
		c.w.facts.checkSoleHolder(l)
	}
	l.holds = true
	c.w.facts.learnedTenure(l.name, l.token)
}

func (c *client) heardError(k *call, err error) {
	w := c.w
	var elsewhere *replica.NotLeaderError
	switch {
	case errors.As(err, &elsewhere) && elsewhere.Leader != 0:
		c.target = int(elsewhere.Leader) - 1
	case errors.Is(err, replica.ErrNoLeader), errors.Is(err, replica.ErrLeaseExpired):
		c.elsewhere()
	}
	if errors.Is(err, replica.ErrUnknownOutcome) {
		w.mark("an outcome was unknown")
		return
	}
	switch k.kind {
	case putting, swapping, guarding:
		w.facts.checkDenied(k, err)
		w.facts.checkFailedPut(k, err)
	case transferring:
		c.notTransferred(k, err)
	case finishing:
		c.notFinished(k, err)
	case asking, placing:
		if isGone(err) {
			w.facts.checkGone(k, k.leases[0])
		}
	case granting, claiming:
		if l := k.leases[0]; !l.granted && l.since == 0 {
			l.gone = true
		}
	}
}
