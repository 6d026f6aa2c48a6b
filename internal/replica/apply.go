package replica

import (
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// keepAlone is [LogKeep] of a group's only member: nobody else asks for entries, and what is removed early the database
// need not carry from file to file.
const keepAlone = 200

// applying is one batch of committed entries being applied. Its memory is used again for the next.
type applying struct {
	writer   *keyspace.Writer // everything is written into its batch
	replies  []Reply
	decided  []lessor.ID // leases whose waiting renewals have an answer now
	promoted bool
	// datable is set when it was written down when this member applied something. Applied again after a
	// crash it would bear a later date, and leases would last longer than they need.
	datable bool

	env      ownership.Env // of the command under way
	stored   stored        // for env
	reported int           // of the writer's changes, to names
	payload  payload       // of the entry under way
}

// recycle makes ready for the next batch, in the memory of this one: what the driver got of it, it is done with.
// Nothing of it is kept, since the next may be long in coming, and can be small.
func (a *applying) recycle() {
	a.env.Effects.Changes = emptied(a.env.Effects.Changes)
	*a = applying{
		replies: emptied(a.replies), decided: emptied(a.decided), env: ownership.Env{Effects: a.env.Effects},
		stored: stored{r: a.stored.r}, payload: payload{commands: emptied(a.payload.commands)},
	}
}

// emptied returns a slice's memory, unless it is much.
func emptied[T any](all []T) []T {
	if cap(all) > 2*maxEntryWeight {
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

// applyOrDefer leaves committed entries to the next Step, which is asked for at once, if this one has something
// to be written, so that the disk begins with that while they are applied, or if it has applied others, so that
// other events get their turn.
func (r *Replica) applyOrDefer(m *raftpb.Message) {
	r.deferred = append(r.deferred, m)
	if !r.full {
		r.applyNext()
	}
}

// applyNext applies the oldest of what was deferred.
func (r *Replica) applyNext() {
	if len(r.deferred) == 0 {
		return
	}
	m := r.deferred[0]
	r.deferred = r.deferred[1:]
	r.full = true
	r.apply(m)
}

// apply executes committed entries and commits what they change as one unsynced batch. An error here is
// the disk's, or means that the log holds what this program never wrote; either way the member halts.
func (r *Replica) apply(m *raftpb.Message) {
	a := &r.batch
	a.writer = r.store.Begin(r.db.NewBatch())
	a.stored.writer = a.writer
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
		r.halt(fmt.Errorf("committed log entries cannot be applied: %w", err))
		return
	}
	r.store.Commit(a.writer)
	r.reuse(a.writer.Batch())
	if r.buffer.Full() {
		if err := r.Flush(); err != nil {
			r.halt(fmt.Errorf("the disk failed while buffered records were flushed: %w", err))
			return
		}
	}
	if changes := a.writer.Changes(); len(changes)+len(a.env.Effects.Changes) > 0 {
		r.emit(Publish{changes, a.env.Effects.Changes})
	}
	if len(a.replies) > 0 {
		r.emit(Replies(a.replies))
	}
	r.respond(m.GetResponses())
	r.answerPendingReads()
	if a.datable {
		r.syncState()
	}
	if a.promoted && !r.left {
		r.startServing()
	}
	if r.serving {
		r.settle(a.decided)
		r.catchUp()
	}
}

func (r *Replica) applyEntries(entries []*raftpb.Entry) error {
	for _, entry := range entries {
		if entry.GetIndex() != r.applied.Index+1 {
			panic(fmt.Sprintf("replica: entry %d is to be applied after entry %d", entry.GetIndex(), r.applied.Index))
		}
		if err := r.applyEntry(entry); err != nil {
			return fmt.Errorf("entry %d: %w", entry.GetIndex(), err)
		}
		if entry.GetTerm() != r.applied.Term {
			r.beginTerm(raftlog.Mark{Index: entry.GetIndex(), Term: entry.GetTerm()})
			record.Put(r.applying.writer.Batch(), record.KeyTerms, termsRecord(r.terms))
		}
		r.applied = raftlog.Mark{Index: entry.GetIndex(), Term: entry.GetTerm()}
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

func (r *Replica) applyEntry(entry *raftpb.Entry) error {
	if entry.GetType() != raftpb.EntryNormal {
		return &record.DamagedError{What: fmt.Sprintf("entry of type %v, which no member proposes", entry.GetType())}
	}
	if len(entry.GetData()) == 0 {
		r.beginLeadership(entry)
		return nil
	}
	a := r.applying
	if err := a.payload.decode(entry.GetData()); err != nil {
		return &record.DamagedError{What: "its commands cannot be read", Err: err}
	}
	commands := a.payload.commands
	if len(commands) > maxOrdinal {
		return &record.DamagedError{What: fmt.Sprintf("it has %d commands, more than any member writes", len(commands))}
	}
	waiting := r.takeProposal(entry.GetTerm(), a.payload.sequence)
	a.env.Wall = a.payload.wall
	a.replies = slices.Grow(a.replies, len(waiting))
	if r.serving {
		a.env.Effects.Changes = slices.Grow(a.env.Effects.Changes, len(commands))
	}
	for ordinal, command := range commands {
		a.env.At = lessor.At(entry.GetIndex(), ordinal)
		result, err := r.applyNow(command, own(waiting, ordinal), entry.GetTerm(), a.env.At)
		if isFatal(err) {
			return fmt.Errorf("command %d: %w", ordinal, err)
		}
		if err := r.updateNames(ownership.WhyDeleted, ""); err != nil {
			return fmt.Errorf("names after command %d: %w", ordinal, err)
		}
		r.counts.Applied++
		if waiting == nil || waiting[ordinal].id == 0 {
			continue
		}
		header := r.identity
		header.Revision, header.Term = r.revision(), r.term
		reply := Reply{ID: waiting[ordinal].id, Header: header, Result: result, Err: err, Authority: forever}
		if op, ok := waiting[ordinal].op.(Compact); ok && op.Physical && err == nil {
			r.trims = append(r.trims, awaitedTrim{op.Revision, reply.ID})
			continue
		}
		a.replies = append(a.replies, reply)
		for _, id := range waiting[ordinal].others() {
			reply.ID = id
			a.replies = append(a.replies, reply)
		}
	}
	r.recycle(waiting)
	return nil
}

// revision is that of the newest change, of the batch being applied or before.
func (r *Replica) revision() int64 {
	if changes := r.applying.writer.Changes(); len(changes) > 0 {
		return changes[len(changes)-1].Revision
	}
	return r.store.Revision()
}

// takeProposal returns the requests that wait for an entry, if this member proposed it in this term.
func (r *Replica) takeProposal(term, sequence uint64) []pending {
	if !r.leading || term != r.term {
		return nil
	}
	waiting := r.proposals[sequence]
	delete(r.proposals, sequence)
	r.underWay(waiting, -1)
	return waiting
}

// beginLeadership handles the first entry of a leader's term, which carries nothing.
func (r *Replica) beginLeadership(entry *raftpb.Entry) {
	if entry.GetTerm() <= r.leadershipTerm {
		return // raft leaves an empty entry in place of a change of membership that it refused
	}
	r.leadershipTerm = entry.GetTerm()
	r.holder.Applied(entry.GetTerm(), r.now)
	r.applying.datable = true
	start := lessor.At(entry.GetIndex(), 0)
	before := r.lessor.Leaderships()
	r.lessor.BeginLeadership(start, r.now)
	after := r.lessor.Leaderships()
	for _, leadership := range before {
		if !slices.Contains(after, leadership) {
			record.Remove(r.applying.writer.Batch(), record.LeadershipKey(leadership.Start))
		}
	}
	instant, domain := r.instants.encode(r.now)
	record.Put(r.applying.writer.Batch(), record.LeadershipKey(start), &logpb.Reign{
		Start: uint64(start), Term: entry.GetTerm(), Applied: instant, Domain: domain,
	})
	if r.leading && entry.GetTerm() == r.term {
		r.lessor.Promote(0, r.now, r.term)
		r.applying.promoted = true
	}
}

// startServing answers what waited for this member to lead.
func (r *Replica) startServing() {
	r.serving = true
	r.takeBackQuestions() // before there are answers among them, which wait for a round if there is no authority yet
	r.takeBack()
	waiting := r.parked
	r.parked = nil
	for _, p := range waiting {
		r.serve(p.event)
	}
}

// own returns the operation that this member made a command of, nil if another did.
func own(waiting []pending, ordinal int) any {
	if waiting == nil {
		return nil
	}
	return waiting[ordinal].op
}

// applyNow executes one command, as applyCommand does. Who proposed a claim or a release need not read it again.
func (r *Replica) applyNow(text []byte, own any, term uint64, at lessor.Position) (any, error) {
	switch op := own.(type) {
	case ownership.Claim:
		return r.applyClaim(op)
	case ownership.Release:
		return r.applyRelease(op)
	}
	if claim, ok := decodeClaim(text); ok {
		return r.applyClaim(claim)
	}
	if release, ok := decodeRelease(text); ok {
		return r.applyRelease(release)
	}
	command := new(logpb.Command)
	if err := proto.Unmarshal(text, command); err != nil {
		return nil, &record.DamagedError{What: "it cannot be read", Err: err}
	}
	return r.applyCommand(command, term, at)
}

// applyCommand executes one command. Its error is the requester's unless isFatal says otherwise.
func (r *Replica) applyCommand(command *logpb.Command, term uint64, at lessor.Position) (any, error) {
	writer := r.applying.writer
	switch op := command.Op.(type) {
	case *logpb.Command_Put:
		return result(writer.Put(decodePut(op.Put)))
	case *logpb.Command_DeleteRange:
		return result(writer.DeleteRange(decodeDelete(op.DeleteRange)))
	case *logpb.Command_Txn:
		return result(writer.Txn(decodeTxn(op.Txn)))
	case *logpb.Command_Compact:
		return nil, writer.Compact(op.Compact.Revision)
	case *logpb.Command_Grant:
		return r.applyGrant(lessor.ID(op.Grant.Id), time.Duration(op.Grant.TtlNs), at)
	case *logpb.Command_Revoke:
		return nil, r.applyRevoke(lessor.ID(op.Revoke.Id))
	case *logpb.Command_Expire:
		return nil, r.applyExpire(op.Expire, term)
	case *logpb.Command_Checkpoint:
		r.applyCheckpoint(op.Checkpoint, term, at)
		return nil, nil
	}
	if result, err, known := r.applyNames(command); known {
		return result, err
	}
	return nil, &record.DamagedError{What: fmt.Sprintf("unknown command %T: was the data written by a newer version?", command.Op)}
}

// result makes a typed answer an untyped one that is nil together with an error.
func result[T any](answer T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (r *Replica) applyGrant(id lessor.ID, ttl time.Duration, at lessor.Position) (any, error) {
	lease, err := r.lessor.Grant(id, ttl, at, r.now)
	if err != nil {
		return nil, err
	}
	r.counts.Granted++
	r.writeLease(id)
	return Granted{ID: lease.ID, TTL: lease.TTL}, nil
}

func (r *Replica) applyRevoke(id lessor.ID) error {
	if _, err := r.lessor.Revoke(id); err != nil {
		return err
	}
	r.counts.Revoked++
	return r.ended(id, ownership.WhyRevoked, "")
}

func (r *Replica) applyExpire(op *logpb.Expire, term uint64) error {
	for _, ref := range op.Leases {
		expiry := lessor.Expiry{Ref: decodeRef(ref), Term: op.Term, DecidedAt: lessor.Position(op.DecidedAt)}
		late := r.lessor.Late(expiry.Ref, r.now)
		why, note := ownership.WhyExpired, ""
		if lease, ok := r.lessor.Lookup(expiry.ID); ok && lease.RenewalRefused {
			why, note = ownership.WhyRevoked, r.names.RevocationNote(r.lessor, expiry.ID)
		}
		if _, ok := r.lessor.Expire(expiry, term); !ok {
			r.counts.Skipped++
			r.applying.decided = append(r.applying.decided, expiry.ID)
			continue
		}
		r.counts.Expired++
		if r.serving { // others see the end, but did not wait for it
			r.late.Observe(late, 1)
		}
		if err := r.ended(expiry.ID, why, note); err != nil {
			return err
		}
	}
	if r.serving {
		r.pace.applied(r.now, len(op.Leases))
	}
	return nil
}

func (r *Replica) applyCheckpoint(op *logpb.Checkpoint, term uint64, at lessor.Position) {
	for _, quiet := range op.Quiet {
		c := lessor.Checkpoint{
			Ref: decodeRef(quiet.Lease), Term: op.Term, DecidedAt: lessor.Position(op.DecidedAt),
			Remaining: time.Duration(quiet.RemainingNs),
		}
		if r.lessor.Checkpoint(c, term, r.now) {
			r.applying.datable = true
			r.writeLease(c.ID)
		}
	}
	for _, ref := range op.Cleared {
		c := lessor.Cleared{Ref: decodeRef(ref), Term: op.Term}
		if r.lessor.Clear(c, term, at) {
			r.writeLease(c.ID)
		}
		r.applying.decided = append(r.applying.decided, c.ID)
	}
}

// ended removes the record of a lease that the lessor has just ended, and has the names know why it did.
func (r *Replica) ended(id lessor.ID, why ownership.Why, note string) error {
	r.remove(record.LeaseKey(id))
	r.applying.decided = append(r.applying.decided, id)
	return r.updateNames(why, note)
}

func (r *Replica) writeLease(id lessor.ID) {
	lease, ok := r.lessor.Record(id)
	if !ok {
		panic(fmt.Sprintf("replica: lease %x has no record right after a command changed it", uint64(id)))
	}
	m := r.scratch.lease
	m.Id, m.Generation, m.TtlNs, m.Cleared = int64(lease.ID), uint64(lease.Generation), int64(lease.TTL), uint64(lease.Cleared)
	m.Pinned, m.Doomed = lease.Pinned, lease.RenewalRefused
	m.Claimed, m.Name, m.Checkpointed = false, m.Name[:0], nil
	if name, ok := r.names.ClaimOf(id); ok {
		m.Claimed, m.Name = true, append(m.Name, name...)
	}
	if lease.Checkpointed {
		instant, domain := r.instants.encode(lease.Applied)
		m.Checkpointed = &logpb.Checkpointed{RemainingNs: int64(lease.Remaining), Applied: instant, Domain: domain}
	}
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

// EndLease hides all keys of one granting of a lease at one revision; they are removed bit by bit later.
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

// bindings lets the keyspace ask the lessor.
type bindings struct{ lessor *lessor.Lessor }

func (b bindings) Generation(id int64) (uint64, bool) {
	lease, ok := b.lessor.Lookup(lessor.ID(id))
	return uint64(lease.Generation), ok
}

func (b bindings) Attach(id int64, key []byte) {
	if err := b.lessor.Attach(lessor.ID(id), []lessor.Item{{Key: string(key)}}); err != nil {
		panic(fmt.Sprintf("replica: key %q cannot be attached to lease %x, which was there a moment ago: %v", key, uint64(id), err))
	}
}

func (b bindings) Detach(id int64, key []byte) {
	if err := b.lessor.Detach(lessor.ID(id), []lessor.Item{{Key: string(key)}}); err != nil {
		panic(fmt.Sprintf("replica: key %q cannot be detached from lease %x: %v", key, uint64(id), err))
	}
}
