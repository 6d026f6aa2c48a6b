package replica

import (
	"fmt"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Package ownership decides about names. This file carries out its decisions: it grants and ends leases, puts keys,
// and stores records.

// applyNames applies a command on names.
func (r *Replica) applyNames(c entry.Command) (Result, error) {
	switch c := c.(type) {
	case ownership.Claim:
		return r.applyClaim(c)
	case ownership.Release:
		return r.applyRelease(c)
	case ownership.Revoke:
		return r.applyRevokeName(c)
	case ownership.Transfer:
		return r.applyTransfer(c)
	case ownership.Finish:
		return nil, r.applyFinish(c)
	case ownership.RaiseMark:
		return nil, r.applyRaise(c)
	case ownership.Prefer:
		return nil, r.applyPrefer(c)
	case ownership.Pin:
		err := r.names.Pin(&r.applying.env, c)
		r.storeNames()
		return nil, err
	case ownership.Unpin:
		err := r.names.Unpin(&r.applying.env, c)
		r.storeNames()
		return nil, err
	}
	panic(fmt.Sprintf("replica: unknown command %T", c))
}

// applyClaim grants the lease and puts the key of a claim, unless ownership answers the claim otherwise.
func (r *Replica) applyClaim(op ownership.Claim) (Result, error) {
	env, writer := &r.applying.env, r.applying.writer
	if answer, create, err := r.names.Claim(env.View, op); err != nil {
		return nil, err
	} else if !create {
		return answer, nil
	}
	key := ownership.Key(op.Name, op.Lease)
	absent := r.surelyAbsent(op.Lease)
	if !absent {
		if there, err := writer.Has(key); err != nil {
			return nil, err
		} else if there { // its create revision is no token
			return nil, ownership.ErrLeaseTaken
		}
	}
	if _, err := r.lessor.Grant(op.Lease, op.TTL, env.At, r.now); err != nil {
		return nil, err
	}
	r.counts.Granted++
	r.quotas.Own(op.Lease, op.Creator, true)
	overtaken, err := r.dequeue(op.Name, r.names.Overtaken(op))
	if err != nil {
		return nil, err
	}
	put := keyspace.PutRequest{Key: key, Value: op.Holder, Lease: int64(op.Lease), Absent: absent}
	if _, err := writer.Put(put); err != nil {
		return nil, err
	}
	if err := r.updateNames(ownership.WhyDeleted, ""); err != nil {
		return nil, err
	}
	answer, err := r.names.Created(env.View, op)
	if err != nil {
		return nil, err
	}
	r.writeLease(op.Lease)
	return answer, r.enqueue(overtaken)
}

// surelyAbsent reports whether no key NAME/LEASE can exist for a lease that does not exist, so that no lookup is
// needed. Such a key is attached to its lease and ends with it: at once, or in a sweep if the lease had many keys.
// Otherwise it is attached to something else.
func (r *Replica) surelyAbsent(id lessor.ID) bool {
	return !r.sweeping && !r.names.MayHaveUnboundKey(id)
}

// answerClaim answers a claim that must not, or need not, get a log entry, and reports whether it did. These claims are:
//
//   - a repeated one, because its entry could bring back a lease that is ending;
//   - one that comes after its own end;
//   - one that does not wait for a name that is held.
func (r *Replica) answerClaim(request uint64, claim ownership.Claim) bool {
	reply := Reply{ID: request, Header: r.Header(), Authority: forever}
	_, behind := r.behind()
	_, there := r.names.ClaimOf(claim.Lease)
	switch {
	case !there && (r.names.RecentlyEnded(claim.Lease) || r.intake.Releasing(claim.Lease)):
		reply.Err = ownership.ErrLost
	case !r.serving, behind:
		return false
	default:
		answer, done, err := r.names.ClaimUnchanged(r.view(), claim)
		if !done && err == nil {
			return false
		}
		if reply.Err = err; err == nil {
			reply.Result = answer
		}
	}
	if entry.IsFatal(reply.Err) {
		r.haltWith(reply.Err)
		return true
	}
	if r.serving {
		r.answerWithAuthority(reply) // it shows the state, and no log entry confirms it
	} else {
		r.emit(reply)
	}
	return true
}

func (r *Replica) applyRelease(op ownership.Release) (Result, error) {
	end, err := r.names.Release(r.lessor, op)
	if err != nil {
		return nil, err
	}
	if !end {
		return ownership.Released{}, nil
	}
	return ownership.Released{Ended: true}, r.endLease(op.Lease, ownership.WhyReleased, "")
}

// endLease ends a lease by a command.
func (r *Replica) endLease(id lessor.ID, why ownership.Why, note string) error {
	if _, err := r.lessor.Revoke(id); err != nil {
		return err
	}
	r.counts.Revoked++
	return r.ended(id, why, note)
}

func (r *Replica) applyRevokeName(op ownership.Revoke) (Result, error) {
	answer, end, err := r.names.Revoke(&r.applying.env, op)
	r.storeNames()
	if err != nil {
		return nil, err
	}
	if end != lessor.NoLease {
		return answer, r.endLease(end, ownership.WhyRevoked, op.Note)
	}
	r.applying.datable = true
	return answer, nil
}

func (r *Replica) applyTransfer(op ownership.Transfer) (Result, error) {
	next, err := r.names.Transfer(op)
	if err != nil {
		return nil, err
	}
	return ownership.Transferred{Token: next}, r.endLease(op.Lease, ownership.WhyTransferred, "")
}

// updateNames reports to the names all changes of keys since its last call. why is the reason for which tenures ended
// by these changes.
func (r *Replica) updateNames(why ownership.Why, note string) error {
	a := r.applying
	for changes := a.writer.Changes(); a.reported < len(changes); changes = a.writer.Changes() {
		change := &changes[a.reported]
		a.reported++
		for i := range change.Events {
			if kv := &change.Events[i].KV; change.Events[i].Type == keyspace.EventPut {
				r.names.KeyPut(kv.Key, kv.Value, lessor.ID(kv.Lease), kv.CreateRevision)
			} else {
				r.names.KeyDeleted(kv.Key)
			}
		}
		for _, key := range change.Ended {
			r.names.KeyDeleted([]byte(key))
		}
		if err := r.names.UpdateOwners(&a.env, change.Revision, why, note); err != nil {
			return err
		}
		r.storeNames()
	}
	return nil
}

// storeNames stores the changes of names, and ends the claims whose keys are gone. It does nothing about a claim
// whose key went with its lease.
func (r *Replica) storeNames() {
	a, e := r.applying, &r.applying.env.Effects
	for _, past := range e.Past {
		record.SetTenure(r.scratch.Tenure, past.Tenure)
		r.buffer.Put(record.PastKey(past.Name, past.Number), r.scratch.Tenure, past.Number >= ownership.MaxPast)
	}
	for i := range e.Records {
		r.writeName(&e.Records[i])
	}
	for _, id := range e.Leases {
		r.writeLease(id)
	}
	a.decided = append(a.decided, e.Decided...)
	for _, f := range e.Forgotten {
		r.remove(record.NameKey(f.Name))
		for number := range f.Past {
			r.remove(record.PastKey(f.Name, number))
		}
	}
	if e.ForgottenToken != 0 {
		record.Put(a.writer.Batch(), record.KeyForgotten, &logpb.Forgotten{Last: e.ForgottenToken})
	}
	for _, id := range e.Orphans {
		if _, err := r.lessor.Revoke(id); err == nil {
			r.counts.Revoked++
			r.forgetLease(id)
			a.decided = append(a.decided, id)
		}
	}
	e.Done()
}

// writeName stores the record of a name.
func (r *Replica) writeName(name *ownership.Record) {
	record.SetName(r.scratch.Name, r.scratch.Tenure, name)
	r.buffer.Put(record.NameKey(name.Name), r.scratch.Name, true)
}

// view returns what queries about names see between two batches.
func (r *Replica) view() ownership.View {
	return ownership.View{Leases: r.lessor, Stored: &r.committed, Now: r.now}
}

// stored reads the records of names.
type stored struct {
	r      *Replica
	writer *keyspace.Writer // of the batch that is being applied; nil between two batches
}

// Tenure is part of ownership.Stored.
func (s *stored) Tenure(name string) (*ownership.Tenure, error) {
	m := new(logpb.Name)
	if _, err := s.r.loadRecord(record.NameKey(name), m); err != nil || m.Current == nil {
		return nil, err
	}
	return record.TenureOf(m.Current), nil
}

// Past is part of ownership.Stored.
func (s *stored) Past(name string, number uint64) (*ownership.Tenure, error) {
	m := new(logpb.Tenure)
	if found, err := s.r.loadRecord(record.PastKey(name, number), m); err != nil {
		return nil, err
	} else if !found {
		return nil, &record.DamagedError{What: fmt.Sprintf("tenure %d of %q is not there", number, name)}
	}
	return record.TenureOf(m), nil
}

// Card is part of ownership.Stored.
func (s *stored) Card(name string, lease lessor.ID) ([]byte, error) {
	writer := s.writer
	if writer == nil {
		writer = s.r.store.Begin(s.r.db.NewIndexedBatch())
		defer func() { s.r.reuse(writer.Batch()) }()
	}
	kv, err := writer.Get(ownership.Key(name, lease))
	if err != nil {
		return nil, err
	}
	if kv == nil {
		return nil, fmt.Errorf("%w: lease %x waits for %q without its key", keyspace.ErrMisuse, uint64(lease), name)
	}
	return kv.Value, nil
}

// Names returns the states of the names that this member knows, sorted by name. Callers use it between two steps.
func (r *Replica) Names() []ownership.State {
	return r.inspectNames(NamesQuery{Names: r.names.Names()}).Names
}

func (r *Replica) inspectNames(q NamesQuery) NameStates {
	all := make([]ownership.State, len(q.Names))
	view := r.view()
	for i, name := range q.Names {
		all[i] = r.names.StateAndQueue(view, name, q.Waiters)
		if !all[i].HolderKnown {
			r.addHolder(&all[i])
		}
	}
	return NameStates{Names: all, Index: r.applied.Index}
}

// addHolder adds the owner's card if it is in the buffer. Otherwise the database has it.
func (r *Replica) addHolder(s *ownership.State) {
	key := record.NameKey(s.Name)
	m := new(logpb.Name)
	if _, err := r.buffer.Load(key, m); err != nil || m.Current == nil || m.Current.Token != s.Token {
		return // an error is impossible: this member put the record into the buffer
	}
	s.Holder, s.HolderKnown = m.Current.Holder, true
}

// whyNot adds the reason, if known, to the refusal of a renewal.
func (r *Replica) whyNot(id lessor.ID, kind error) error { return r.names.Explain(r.lessor, id, kind) }

// wallNow returns the time of day, as far as it is known; 0 if not.
func (r *Replica) wallNow() int64 {
	if r.wall == 0 {
		return 0
	}
	return r.wall + r.now.Elapsed(r.walled).Milliseconds()
}
