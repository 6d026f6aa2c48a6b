package replica

import (
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// keepAlone is [LogKeep] of a cluster's only member. No other member asks for its entries, and the database need not
// carry early removed entries from file to file.
const keepAlone = 200

// applying is the state of one batch of committed entries that is being applied. Its memory is reused for the next
// batch.
type applying struct {
	writer   *keyspace.Writer // everything is written into its batch
	replies  []Reply
	decided  []lessor.ID // leases whose waiting renewals can be answered now
	promoted bool
	// datable is set when the batch records when this member applied something. If that record were lost in a crash, the
	// entry would be applied again at a later instant, and leases would last longer than they need.
	datable bool

	env      ownership.Env // of the present command
	stored   stored        // for env
	reported int           // how many of the writer's changes the names know
	payload  entry.Payload // of the present entry

	members *roster.Roster // after a change of the members; nil without one
	access  record.PolicyBatch
}

// recycle prepares for the next batch, in the memory of this one. The driver no longer uses what it got of this
// batch. The contents are dropped, because the next batch may come late and be small.
func (a *applying) recycle() {
	a.env.Effects.Changes = emptied(a.env.Effects.Changes)
	*a = applying{
		replies: emptied(a.replies), decided: emptied(a.decided), env: ownership.Env{Effects: a.env.Effects},
		stored: stored{r: a.stored.r}, payload: entry.Payload{Commands: emptied(a.payload.Commands)},
	}
}

// emptied returns a slice's memory for reuse; nil if it is large.
func emptied[T any](all []T) []T {
	if cap(all) > 2*intake.MaxEntryWeight {
		return nil
	}
	clear(all)
	return all[:0]
}

// load reads a record as the commands so far left it, and reports whether there is one.
func (a *applying) load(key []byte, m proto.Message) (bool, error) {
	batch, err := a.writer.Indexed()
	if err != nil {
		return false, err
	}
	return record.Load(batch, key, m)
}

// applyOrDefer applies committed entries, or leaves them to the next Step, which it requests at once. It defers them
// if this Step has something to write, so that the disk begins while they are applied. It also defers them if this
// Step has applied others, so that other events get their turn.
func (r *Replica) applyOrDefer(m *raftpb.Message) {
	r.deferred = raftlog.CutAtMembers(r.deferred, m)
	if !r.full {
		r.applyNext()
	}
}

// applyNext applies the oldest of the deferred entries.
func (r *Replica) applyNext() {
	if len(r.deferred) == 0 {
		return
	}
	m := r.deferred[0]
	r.deferred = r.deferred[1:]
	r.full = true
	r.apply(m)
}

// apply executes committed entries and commits their changes as one unsynced batch. An error here is the disk's, or
// means that the log holds something this program never wrote. In both cases the member halts.
func (r *Replica) apply(m *raftpb.Message) {
	a := &r.batch
	a.writer = r.store.Begin(r.db.NewBatch())
	a.stored.writer = a.writer
	a.access.Policy = r.access.Load()
	a.env.View, a.env.Watched = ownership.View{Leases: r.lessor, Stored: &a.stored, Now: r.now}, r.serving
	r.applying = a
	err := r.applyEntries(m.GetEntries())
	r.applying = nil
	if err == nil {
		err = a.writer.Seal()
	}
	if err == nil {
		err = a.writer.Batch().Commit(pebble.NoSync)
	}
	if err != nil {
		r.haltWith(fmt.Errorf("committed log entries cannot be applied: %w", err))
		return
	}
	r.access.Store(a.access.Policy) // before readers see the changes that it covers
	r.store.Commit(a.writer)
	r.reuse(a.writer.Batch())
	if a.members != nil {
		r.configure(*a.members)
		r.announceChange()
	}
	if r.buffer.Full() {
		if err := r.Flush(); err != nil {
			r.haltWith(fmt.Errorf("the disk failed while buffered records were flushed: %w", err))
			return
		}
	}
	if changes := a.writer.Changes(); len(changes)+len(a.env.Effects.Changes)+len(a.access.Logins) > 0 {
		r.emit(Publish{Changes: changes, Names: a.env.Effects.Changes, Logins: a.access.Logins})
	}
	if len(a.replies) > 0 {
		r.emit(Replies(a.replies))
	}
	r.respond(m.GetResponses())
	r.answerPendingReads()
	if a.datable || a.members != nil {
		r.syncState(persisting{roster: r.roster})
	}
	if a.promoted && !r.left {
		r.startServing()
	}
	if r.serving {
		r.settle(a.decided)
		r.answerLagging()
	}
}

func (r *Replica) applyEntries(entries []*raftpb.Entry) error {
	for _, logged := range entries {
		if logged.GetIndex() != r.applied.Index+1 {
			panic(fmt.Sprintf("replica: entry %d is to be applied after entry %d", logged.GetIndex(), r.applied.Index))
		}
		if err := r.applyEntry(logged); err != nil {
			return fmt.Errorf("entry %d: %w", logged.GetIndex(), err)
		}
		if logged.GetTerm() != r.applied.Term {
			r.terms = r.terms.Begin(raftlog.Mark{Index: logged.GetIndex(), Term: logged.GetTerm()})
			record.Put(r.applying.writer.Batch(), record.KeyTerms, r.terms.Record())
		}
		r.applied = raftlog.Mark{Index: logged.GetIndex(), Term: logged.GetTerm()}
	}
	r.buffer.Log(r.applying.writer.Batch())
	record.Put(r.applying.writer.Batch(), record.KeyApplied, &logpb.Applied{Index: r.applied.Index, Term: r.applied.Term})
	keep := r.cfg.LogKeep
	if r.alone() {
		keep = min(keep, keepAlone)
	}
	index, due := r.applied.Index-keep, r.applied.Index > r.log.Truncated().Index+2*keep
	if !due {
		index, due = r.log.Oversized(r.applied.Index)
	}
	if index, due = r.spare(index, due); !due {
		return nil
	}
	return r.log.Truncate(r.applying.writer.Batch(), index)
}

func (r *Replica) applyEntry(logged *raftpb.Entry) error {
	if logged.GetType() == raftpb.EntryConfChange {
		return r.applyMembers(logged)
	}
	if logged.GetType() != raftpb.EntryNormal {
		return &record.DamagedError{What: fmt.Sprintf("entry of type %v, which no member proposes", logged.GetType())}
	}
	if len(logged.GetData()) == 0 {
		r.beginLeadership(logged)
		return nil
	}
	a := r.applying
	if err := a.payload.Decode(logged.GetData()); err != nil {
		return &record.DamagedError{What: "its commands cannot be read", Err: err}
	}
	if err := gate.Check(a.payload.Needs); err != nil {
		return err
	}
	r.applyVersions(a.payload.States, a.payload.Needs)
	commands := a.payload.Commands
	if len(commands) > maxOrdinal {
		return &record.DamagedError{What: fmt.Sprintf("it has %d commands, more than any member writes", len(commands))}
	}
	r.changeKnown(logged.GetTerm(), a.payload.Sequence)
	waiting := r.takeProposal(logged.GetTerm(), a.payload.Sequence)
	a.env.Wall = a.payload.Wall
	a.replies = slices.Grow(a.replies, len(waiting))
	if r.serving {
		a.env.Effects.Changes = slices.Grow(a.env.Effects.Changes, len(commands))
	}
	for ordinal, command := range commands {
		a.env.At = lessor.At(logged.GetIndex(), ordinal)
		result, err := r.applyNow(command, waiting, ordinal, logged.GetTerm())
		if entry.IsFatal(err) {
			return fmt.Errorf("command %d: %w", ordinal, err)
		}
		if err := r.updateNames(ownership.WhyDeleted, ""); err != nil {
			return fmt.Errorf("names after command %d: %w", ordinal, err)
		}
		r.counts.Applied++
		if waiting == nil || waiting[ordinal].ID == 0 {
			continue
		}
		header := r.identity
		header.Revision, header.Term = r.revision(), r.term
		reply := Reply{ID: waiting[ordinal].ID, Header: header, Result: result, Err: err, Authority: forever}
		if op, ok := waiting[ordinal].Command.(entry.Compact); ok && op.Physical && err == nil {
			r.trims = append(r.trims, waitingTrim{op.Revision, reply.ID})
			continue
		}
		a.replies = append(a.replies, reply)
		for _, id := range waiting[ordinal].Duplicates() {
			reply.ID = id
			a.replies = append(a.replies, reply)
		}
	}
	r.intake.Recycle(waiting)
	return nil
}

// revision returns the revision of the newest change, in the batch being applied or before it.
func (r *Replica) revision() int64 {
	if changes := r.applying.writer.Changes(); len(changes) > 0 {
		return changes[len(changes)-1].Revision
	}
	return r.store.Revision()
}

// takeProposal returns the requests that wait for an entry, if this member proposed it in this term.
func (r *Replica) takeProposal(term, sequence uint64) []intake.Pending {
	if !r.leading || term != r.term {
		return nil
	}
	waiting := r.proposals[sequence]
	delete(r.proposals, sequence)
	r.intake.Done(waiting)
	return waiting
}

// beginLeadership handles the first entry of a leader's term, which carries nothing.
func (r *Replica) beginLeadership(logged *raftpb.Entry) {
	if logged.GetTerm() <= r.leadershipTerm {
		return // raft puts an empty entry in place of a membership change that it refused
	}
	r.leadershipTerm = logged.GetTerm()
	r.holder.Applied(logged.GetTerm(), r.now)
	r.applying.datable = true
	start := lessor.At(logged.GetIndex(), 0)
	before := r.lessor.Leaderships()
	r.lessor.BeginLeadership(start, r.now)
	after := r.lessor.Leaderships()
	for _, leadership := range before {
		if !slices.Contains(after, leadership) {
			record.Remove(r.applying.writer.Batch(), record.LeadershipKey(leadership.Start))
		}
	}
	instant, domain := r.instants.Encode(r.now)
	record.Put(r.applying.writer.Batch(), record.LeadershipKey(start), &logpb.Leadership{
		Start: uint64(start), Term: logged.GetTerm(), Applied: instant, Domain: domain,
	})
	if r.leading && logged.GetTerm() == r.term {
		r.lessor.Promote(0, r.now, r.term)
		r.applying.promoted = true
	}
}

// startServing answers the requests that waited for this member to lead.
func (r *Replica) startServing() {
	r.serving, r.served = true, r.now
	r.serveWaitingReads() // first: answers without authority wait for a round in the same list
	r.serveForwarded()
	waiting := r.parked
	r.parked = nil
	for _, p := range waiting {
		r.serve(p.event)
	}
}

// applyNow decodes and applies one command, if its caller may have it applied.
func (r *Replica) applyNow(text []byte, waiting []intake.Pending, ordinal int, term uint64) (Result, error) {
	command, by, err := intake.Decode(text, waiting, ordinal)
	if err != nil {
		return nil, &record.DamagedError{What: "a command that cannot be decoded", Err: err}
	}
	if err := r.permitted(by, command); err != nil {
		return nil, err
	}
	if err := r.exhausted(by, command); err != nil {
		return nil, err
	}
	act, audited := r.actOf(by, command)
	result, err := r.applyCommand(command, term, r.applying.env.At)
	if audited && audit.CarriedOut(result, err) {
		r.logAct(by, r.applying.env.Wall, act)
	}
	return result, err
}

// applyCommand applies one command. Its error is the requester's unless entry.IsFatal says otherwise.
func (r *Replica) applyCommand(c entry.Command, term uint64, at lessor.Position) (Result, error) {
	writer := r.applying.writer
	switch c := c.(type) {
	case keyspace.PutRequest:
		return asResult(writer.Put(c))
	case keyspace.DeleteRequest:
		return asResult(writer.DeleteRange(c))
	case keyspace.TxnRequest:
		r.applyVersions(0, entry.Gate(c))
		return asResult(writer.Txn(c))
	case entry.Compact:
		return nil, writer.Compact(c.Revision)
	case entry.Grant:
		return r.applyGrant(c, at)
	case entry.Revoke:
		return nil, r.applyRevoke(c.Lease)
	case entry.Expire:
		return nil, r.applyExpire(c, term)
	case entry.Checkpoint:
		r.applyCheckpoint(c, term, at)
		return nil, nil
	}
	r.applyVersions(0, entry.Gate(c))
	if c, ok := c.(access.Command); ok {
		return asResult(r.applying.access.Apply(writer.Batch(), c, r.applied.Index+1, r.roster.CheckSecure))
	}
	return r.applyNames(c)
}

// asResult returns an answer, or nil together with an error.
func asResult[T Result](answer T, err error) (Result, error) {
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (r *Replica) applyGrant(c entry.Grant, at lessor.Position) (Result, error) {
	lease, err := r.lessor.Grant(c.Lease, c.TTL, at, r.now)
	if err != nil {
		return nil, err
	}
	r.counts.Granted++
	r.quotas.Own(c.Lease, c.Owner, false)
	r.writeLease(c.Lease)
	return Granted{ID: lease.ID, TTL: lease.TTL}, nil
}

func (r *Replica) applyRevoke(id lessor.ID) error {
	if _, err := r.lessor.Revoke(id); err != nil {
		return err
	}
	r.counts.Revoked++
	return r.ended(id, ownership.WhyRevoked, "")
}

func (r *Replica) applyExpire(c entry.Expire, term uint64) error {
	for _, expiry := range c {
		late := r.lessor.Late(expiry.Ref, r.now)
		why, note := ownership.WhyExpired, ""
		if lease, ok := r.lessor.Lookup(expiry.ID); ok && lease.RenewalRefused && !r.names.Finished(expiry.ID) {
			why, note = ownership.WhyRevoked, r.names.RevocationNote(r.lessor, expiry.ID)
		}
		if _, ok := r.lessor.Expire(expiry, term); !ok {
			r.counts.Skipped++
			r.applying.decided = append(r.applying.decided, expiry.ID)
			continue
		}
		r.counts.Expired++
		if r.serving { // only a serving member decides ends, so only it counts how late they are
			r.late.Observe(late, 1)
		}
		if err := r.ended(expiry.ID, why, note); err != nil {
			return err
		}
	}
	if r.serving {
		r.intake.ExpiriesApplied(r.now, len(c))
	}
	return nil
}

func (r *Replica) applyCheckpoint(c entry.Checkpoint, term uint64, at lessor.Position) {
	for _, quiet := range c.Quiet {
		if r.lessor.Checkpoint(quiet, term, r.now) {
			r.applying.datable = true
			r.writeLease(quiet.ID)
		}
	}
	for _, cleared := range c.Cleared {
		if r.lessor.Clear(cleared, term, at) {
			r.writeLease(cleared.ID)
		}
		r.applying.decided = append(r.applying.decided, cleared.ID)
	}
}

// ended removes the record of a lease that the lessor has just ended, and reports the reason to the names.
func (r *Replica) ended(id lessor.ID, why ownership.Why, note string) error {
	r.forgetLease(id)
	r.applying.decided = append(r.applying.decided, id)
	return r.updateNames(why, note)
}

// forgetLease removes what this member keeps about a lease that has ended, besides the lessor and the names.
func (r *Replica) forgetLease(id lessor.ID) {
	r.remove(record.LeaseKey(id))
	r.renewals.Forget(id)
	r.quotas.End(id)
}

func (r *Replica) writeLease(id lessor.ID) {
	lease, ok := r.lessor.Record(id)
	if !ok {
		panic(fmt.Sprintf("replica: lease %x has no record right after a command changed it", uint64(id)))
	}
	m := r.scratch.Lease
	r.instants.SetLease(m, &lease)
	if claim, ok := r.names.ClaimRecord(id); ok {
		m.Claimed, m.Name, m.Priority, m.Overtaken = true, append(m.Name, claim.Name...), claim.Priority, claim.Overtaken
	}
	m.Creator = append(m.Creator, r.quotas.Owner(id)...)
	if key := record.LeaseKey(id); m.Claimed || r.buffer.Has(key) {
		r.buffer.Put(key, m, r.applying.env.At != lessor.Position(lease.Generation))
	} else {
		record.Put(r.applying.writer.Batch(), key, m)
	}
}

// leaseKeys deletes the keys of an ending lease: the lessor's TxnDelete.
type leaseKeys struct{ r *Replica }

// DeleteRange deletes keys one range at a time, as the lessor asks where it does not know better.
func (k leaseKeys) DeleteRange(key, end []byte) (n, rev int64) {
	deleted, err := k.r.applying.writer.DeleteRange(keyspace.DeleteRequest{Key: key, End: end})
	if err != nil {
		panic(fmt.Sprintf("replica: cannot delete %q of an ending lease: %v", key, err))
	}
	return deleted.Deleted, deleted.Revision
}

// EndLease hides all keys of one grant of a lease at one revision. The sweep removes them later, some in each Step.
func (k leaseKeys) EndLease(ref lessor.Ref, items []lessor.Item) {
	if len(items) == 0 {
		return
	}
	keys := make([]string, len(items))
	for i, item := range items {
		keys[i] = item.Key
	}
	k.r.applying.writer.EndLease(int64(ref.ID), uint64(ref.Generation), keys)
	k.r.sweeping = k.r.store.Pending()
}

// End ends the deletion.
func (leaseKeys) End() {}
