package ownership

import (
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// After a restart the caller restores a registry from the stored data in this order: RestoreForgotten, RestoreClaim
// for each claim and RestoreRecord for each name, RestoreKey for each key, and Complete.

// RestoreForgotten restores the last ForgottenToken.
func (g *Registry) RestoreForgotten(token int64) { g.forgotten = token }

// A ClaimRecord is what is stored of a claim together with its lease.
type ClaimRecord struct {
	Name      string // empty: unknown
	Priority  int32
	Overtaken bool // other claims have overtaken it
	Creator   string
}

// ClaimRecord returns what to store of the claim that made a lease; ok is false if no claim made it.
func (g *Registry) ClaimRecord(lease lessor.ID) (r ClaimRecord, ok bool) {
	if w := g.claims[lease]; w != nil {
		return ClaimRecord{w.queue.name, w.priority, w.overtaken, w.creator}, true
	}
	return ClaimRecord{}, false
}

// RestoreClaim restores that a claim made a lease.
func (g *Registry) RestoreClaim(lease lessor.ID, r ClaimRecord) { g.recovering[lease] = r }

// RestoreRecord restores the record of a name. The tenure in it does not stay in memory.
func (g *Registry) RestoreRecord(r Record) {
	q := &queue{
		name: r.Name, ended: r.Ended, last: r.Last, pinned: r.Pinned, revoked: r.Revoked,
		freed: r.Freed, freedOrder: r.FreedOrder, revision: r.Revision,
	}
	if r.Current != nil {
		q.finished = r.Current.Finished
		q.owner = &waiter{lease: r.Current.Lease, created: r.Current.Token, queue: q}
	}
	g.queues[q.name] = q
}

// RestoreKey restores a waiter, if the key is a waiter's.
func (g *Registry) RestoreKey(key []byte, attached lessor.ID, created int64) {
	name, lease, ok := parseKey(key)
	if !ok {
		return
	}
	if attached != lease {
		g.unbound.add(lease)
		return
	}
	w := g.join(g.queue(name), lease, created)
	if of, claimed := g.recovering[lease]; claimed && (of.Name == "" || of.Name == w.queue.name) {
		w.claimed, w.priority, w.overtaken, w.creator = true, of.Priority, of.Overtaken, of.Creator
		g.claims[lease] = w
	}
}

// Complete ends the restoration. It returns records to store, of names whose keys are older than the format of
// records. Its error describes a contradiction between keys and records.
func (g *Registry) Complete() (fresh []Record, err error) {
	for id := range g.recovering { // order: any one that is wrong makes the data damaged
		if g.claims[id] == nil {
			return nil, fmt.Errorf("lease %x waits for no name, although a claim made it", uint64(id))
		}
	}
	g.recovering = nil
	var free []*queue
	for _, q := range g.queues { // order: each queue is handled by itself, and free is sorted below
		head, owner := q.head(), q.owner
		switch {
		case owner != nil && (head == nil || head.lease != owner.lease || head.created != owner.created):
			return nil, fmt.Errorf("the record of %q names lease %x as the holder, but its key does not", q.name, uint64(owner.lease))
		case owner == nil && head != nil:
			q.revision, q.freed, q.freedOrder = head.created, 0, 0
			fresh = append(fresh, q.asRecord(&Tenure{Token: head.created, Lease: head.lease}))
		case head == nil && len(q.barred) == 0:
			free = append(free, q)
		}
		q.advance()
	}
	slices.SortFunc(free, byFreed)
	for _, q := range free {
		q.place = g.free.PushBack(q)
	}
	return fresh, nil
}
