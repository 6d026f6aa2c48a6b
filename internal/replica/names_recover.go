package replica

import (
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// recoverNames reads what is remembered of names. Who stands in line for them follows from the keys.
func (r *Replica) recoverNames() error {
	forgotten := new(logpb.Forgotten)
	if _, err := load(r.db, keyForgotten, forgotten); err != nil {
		return err
	}
	r.names.forgotten = forgotten.Last
	return readNames(r.db, func(m *logpb.Name) bool {
		l := &line{name: string(m.Name), ended: m.Ended, last: m.Last, freed: m.Freed, freedOrder: m.FreedOrder, revision: m.Revision}
		if m.Pinned != nil {
			reason := string(m.Pinned)
			l.pinned = &reason
		}
		if m.Revoked != nil {
			reason := string(m.Revoked)
			l.revoked = &reason
		}
		if m.Current != nil {
			l.owner = &contender{lease: lessor.ID(m.Current.Lease), created: m.Current.Token, line: l}
		}
		r.names.lines[l.name] = l
		return true
	})
}

// recoverContender puts a key into the line that it stands for, if it does.
func (r *Replica) recoverContender(kv keyspace.KV) {
	name, lease, ok := contention(kv.Key)
	if !ok {
		return
	}
	if kv.Lease != int64(lease) {
		r.names.strange.add(lease)
		return
	}
	c := r.names.join(r.names.line(name), lease, kv.CreateRevision)
	if of, claimed := r.names.recovering[lease]; claimed && (of == "" || of == string(name)) {
		c.claimed = true
		r.names.claims[lease] = c
	}
}

// completeNames checks that keys and records tell the same. Keys that are older than such records get
// theirs.
func (r *Replica) completeNames() error {
	for id := range r.names.recovering { // order: whichever is found first, the data is damaged
		if r.names.claims[id] == nil {
			return &DamagedError{What: fmt.Sprintf("lease %x stands in no line, although a claim made it", uint64(id))}
		}
	}
	r.names.recovering = nil
	batch := r.db.NewBatch()
	var free []*line
	for _, l := range r.names.lines { // order: each by itself, and free is sorted below
		head, owner := l.head(), l.owner
		switch {
		case owner != nil && (head == nil || head.lease != owner.lease || head.created != owner.created):
			return &DamagedError{What: fmt.Sprintf("the record of %q names lease %x as the holder, but its key does not", l.name, uint64(owner.lease))}
		case owner == nil && head != nil:
			l.revision = head.created
			put(batch, nameKey(l.name), &logpb.Name{
				Name: []byte(l.name), Ended: l.ended, Last: l.last, Revision: l.revision,
				Current: &logpb.Tenancy{Token: head.created, Lease: int64(head.lease)},
			})
		case head == nil && len(l.shunned) == 0:
			free = append(free, l)
		}
		l.crown()
	}
	slices.SortFunc(free, byFreed)
	for _, l := range free {
		l.place = r.names.free.PushBack(l)
	}
	if batch.Empty() {
		return nil
	}
	return batch.Commit(pebble.NoSync)
}
