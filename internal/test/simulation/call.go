package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// kind is the purpose of a call.
type kind uint8

const (
	putting kind = iota
	reading
	granting
	renewing
	revoking
	claiming
	releasing
	asking  // for the remaining time of a lease
	placing // for the place of a claim in the queue
	revokingName
	compacting
	swapping // registers
	guarding // a key that a name guards
	transferring
	pinning
	unpinning
	finishing
	preferring
	administering
)

// call is a request of a client to one member, with the facts at the time of the request.
type call struct {
	id      uint64
	kind    kind
	client  *client
	member  *member
	life    int
	event   replica.Event
	invoked int64
	sent    clock.Instant // by the client's clocks
	steady  bool          // it was sent after all faults had stopped

	user       string // on whose behalf; empty: all
	key, value string
	leases     []*lease
	// The greatest revisions, of the store and of the key, that a client knew when the call was sent.
	floor, keyFloor int64
	tenures         int // the number of the name's tenures that a client knew then
	unpins          unpins

	// Of a txn: its compares, its puts if they hold, and the token of the requesting holder.
	compares []keyspace.Compare
	writes   []pair
	token    int64
}

// ask sends a call to a member.
func (c *client) ask(m *member, k *call) {
	w := c.w
	w.calls++
	k.id, k.client, k.member, k.invoked, k.sent = w.calls, c, m, w.now, c.clocks.now(w)
	k.floor, k.keyFloor, k.steady = w.facts.floor, w.facts.keyFloor[k.key], w.steady != nil
	switch e := k.event.(type) {
	case replica.Request:
		e.ID = k.id
		k.event = e
	case replica.Renewal:
		e.ID = k.id
		k.event = e
	case replica.Read:
		k.event = replica.Read{ID: k.id}
	case replica.Inspection:
		e.ID = k.id
		k.event = e
	}
	c.calls = append(c.calls, k)
	w.note(c.name, "asks "+m.name, k.id, uint64(k.kind))
	w.after(callTimeout, func() { c.giveUp(k) })
	if !w.calm && chance(w.dice.network, w.lostCalls) {
		return
	}
	w.after(w.upTo(w.dice.network, time.Millisecond), func() { m.receive(k) })
}

// receive takes a client's call. The replica answers it from memory if it can, or else in its next step.
func (m *member) receive(k *call) {
	if !m.up {
		return
	}
	k.life = m.life
	m.calls[k.id] = k
	if m.w.administrator != nil {
		k.event = m.ofUser(k)
	}
	_, command := k.event.(replica.Request)
	if command || m.busy || m.w.now < m.stopped || chance(m.w.dice.world, 0.5) {
		m.event(k.event)
		return
	}
	m.w.facts.before(m, []replica.Event{k.event})
	effects, ok := m.replica.Answer(m.now(), k.event)
	if !ok {
		m.event(k.event)
		return
	}
	m.performFrom(slices.Clone(effects), m.w.hesitate)
}

// answer forwards an answer of the replica to the client that made the call.
func (m *member) answer(effect replica.Effect) {
	id, part := answered(effect)
	if id == m.leaving && id != 0 {
		m.left()
		return
	}
	if c := m.w.changes[id]; c != nil {
		m.w.changed(c, effect.(replica.Reply))
		return
	}
	if slices.Contains(m.ordered, id) {
		m.answerOrder(effect.(replica.Reply))
		return
	}
	k := m.calls[id]
	if k == nil {
		return
	}
	if read, ok := effect.(replica.ReadAt); ok {
		m.read(k, read)
		return
	}
	if !part {
		delete(m.calls, id)
	}
	m.reply(k, effect)
	if reply, ok := effect.(replica.Reply); ok && reply.Err == nil && k.kind == putting && !m.w.calm && chance(m.w.dice.lengths, m.w.sudden) {
		m.endSuddenly()
	}
}

// endSuddenly ends a process right after an acknowledgement. The others then have the entry, but do not know that it is
// committed.
func (m *member) endSuddenly() {
	w := m.w
	w.mark("a leader ended right after an acknowledgement")
	m.later(0, func() { m.end(true) })
	w.after(w.upTo(w.dice.lengths, time.Second), m.start)
}

func answered(effect replica.Effect) (id uint64, part bool) {
	switch e := effect.(type) {
	case replica.Reply:
		return e.ID, false
	case replica.ReadAt:
		return e.ID, false
	case replica.Renewed:
		return e.ID, true
	}
	return 0, false
}

// reply sends an answer to the client; it may be lost.
func (m *member) reply(k *call, answer any) {
	w := m.w
	w.note(m.name, "answers "+k.client.name, k.id, 0)
	if !w.calm && chance(w.dice.network, w.lostCalls) {
		return
	}
	w.after(w.upTo(w.dice.network, time.Millisecond), func() { k.client.hear(k, answer) })
}

// read reads the store on behalf of a call, once the replica has allowed it. In a node the caller's goroutine does this.
func (m *member) read(k *call, at replica.ReadAt) {
	delete(m.calls, k.id)
	m.later(m.w.upTo(m.w.dice.world, time.Millisecond), func() {
		result, err := m.replica.Store().Range(context.Background(), keyspace.RangeRequest{Key: []byte(k.key)})
		if errors.Is(err, keyspace.ErrReplaced) {
			m.reply(k, replica.Reply{ID: k.id, Err: replica.ErrNoLeader})
			return
		}
		m.must(err)
		m.w.facts.checkPossible(m, k.key, result)
		m.reply(k, result)
	})
}

// readAsIs does a serializable read (I8).
func (m *member) readAsIs(key string) {
	result, err := m.replica.Store().Range(context.Background(), keyspace.RangeRequest{Key: []byte(key)})
	if errors.Is(err, keyspace.ErrReplaced) {
		return
	}
	m.must(err)
	m.w.facts.checkPossible(m, key, result)
	if result.Revision < m.serial {
		m.w.fail("serializable reads of a member never go back (I8)", "%s showed revision %d and then %d", m.name, m.serial, result.Revision)
	}
	m.serial = result.Revision
}

// readOld reads a key at an earlier revision (I8).
func (m *member) readOld(key string) {
	w, store := m.w, m.replica.Store()
	at, compacted := store.Revision()-w.dice.work.Int64N(20), store.CompactRevision()
	if at < 2 {
		return
	}
	result, err := store.Range(context.Background(), keyspace.RangeRequest{Key: []byte(key), Revision: at})
	if errors.Is(err, keyspace.ErrReplaced) {
		return
	}
	if errors.Is(err, keyspace.ErrCompacted) != (at < compacted) {
		w.fail("history is there unless it was compacted (I8)", "%s, compacted to revision %d, answers for revision %d: %v", m.name, compacted, at, err)
	}
	if at < compacted {
		return
	}
	m.must(err)
	w.mark("history was read")
	var newest int64
	for revision := at; revision > 0 && newest == 0; revision-- {
		if slices.ContainsFunc(w.facts.changes[revision].puts, func(p pair) bool { return p.key == key }) {
			newest = revision
		}
	}
	w.facts.checkPossible(m, key, result)
	if newest == 0 && len(result.KVs) > 0 || newest > 0 && (len(result.KVs) == 0 || result.KVs[0].ModRevision != newest) {
		w.fail("history does not change (I8)", "%s shows %+v for %s at revision %d, where it was put at %d", m.name, result.KVs, key, at, newest)
	}
}

// checkPossible checks that a read shows only committed values.
func (f *facts) checkPossible(m *member, key string, result keyspace.RangeResult) {
	for _, kv := range result.KVs {
		if !slices.Contains(f.changes[kv.ModRevision].puts, pair{key, string(kv.Value)}) {
			f.w.fail("only what is committed is read (I8)", "%s shows %s=%q of revision %d, where %v was committed",
				m.name, key, kv.Value, kv.ModRevision, f.changes[kv.ModRevision].puts)
		}
	}
}

// learned records that a client knows of a revision. From now on no client may see an older state.
func (f *facts) learned(revision int64) { f.floor = max(f.floor, revision) }

func (f *facts) learnedKey(key string, revision int64) {
	f.keyFloor[key] = max(f.keyFloor[key], revision)
	f.learned(revision)
}

// checkRead checks that a read sees every change that a client knew of before the read was sent (I3, I7).
func (f *facts) checkRead(k *call, result keyspace.RangeResult) {
	var revision int64
	if len(result.KVs) > 0 {
		revision = result.KVs[0].ModRevision
	}
	if revision < k.keyFloor || result.Revision < k.floor {
		f.w.fail("authoritative reads are linearizable (I3, I7)",
			"%s, asked by %s at %v, shows %s of revision %d in a state of revision %d; before the request a client knew of %d and %d",
			k.member.name, k.client.name, time.Duration(k.invoked), k.key, revision, result.Revision, k.keyFloor, k.floor)
	}
	f.learnedKey(k.key, revision)
	f.learned(result.Revision)
	if k.member != f.w.leader() {
		f.w.mark("a follower answered a read")
	} else {
		f.w.mark("a leader answered a read")
	}
}

// checkNewest checks that an answer from a leader's memory comes from a state with every change that a client knew of
// before the request was sent (I3).
func (f *facts) checkNewest(k *call, header replica.Header) {
	if header.Revision < k.floor {
		f.w.fail("what a leader answers from memory is linearizable (I3)",
			"%s, asked by %s at %v (kind %d), answers in a state of revision %d; before the request a client knew of %d",
			k.member.name, k.client.name, time.Duration(k.invoked), k.kind, header.Revision, k.floor)
	}
	f.learned(header.Revision)
}

// checkPut checks that an acknowledged put is there, at a later revision than all that clients knew when it was sent (I3, I6).
func (f *facts) checkPut(k *call, result keyspace.PutResult) {
	if !slices.Contains(f.changes[result.Revision].puts, pair{k.key, k.value}) {
		f.w.fail("what is acknowledged is there (I6)", "%s acknowledges %s=%q at revision %d, where %v is",
			k.member.name, k.key, k.value, result.Revision, f.changes[result.Revision].puts)
	}
	if result.Revision <= k.floor {
		f.w.fail("writes are linearizable (I3)", "%s acknowledges %s=%q at revision %d, but before the request a client knew of %d",
			k.member.name, k.key, k.value, result.Revision, k.floor)
	}
	f.learnedKey(k.key, result.Revision)
	f.w.mark("a put was acknowledged")
}

// checkGone checks that a member reports a lease as gone only after the lease's end was applied (G3).
func (f *facts) checkGone(k *call, l *lease) {
	if l.reliedOn(f.w) && !l.ended {
		f.w.fail("a lease is reported as gone only after its end", "%s reports that of lease %d, on which %s relies until %v on its clocks",
			k.member.name, l.id, l.holder.name, l.deadline)
	}
	if !l.ended && l.granted && !l.ending {
		f.w.fail("a lease is reported as gone only after its end", "%s reports that of lease %d, whose end no member has applied: %+v", k.member.name, l.id, *l)
	}
}

// isGone reports whether an error means that a lease has ended.
func isGone(err error) bool {
	return errors.Is(err, lessor.ErrNotFound) || errors.Is(err, ownership.ErrLost)
}
