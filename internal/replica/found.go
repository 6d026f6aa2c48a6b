package replica

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// A member with a new data directory neither votes nor campaigns: it may have had another directory before, with
// votes and entries in it. It joins the cluster as soon as it and each other member know each other: every other
// member has this directory's incarnation on its disk, and this member has theirs.
//
// So a cluster is founded only when all its members are up and new. A majority of emptied directories founds nothing,
// because the remaining member knows other incarnations for them. Once a member has joined it knows the incarnation
// of each other member, and that never changes.
//
// A new member follows a leader nevertheless: it writes the entries that it receives, and acknowledges them.

// fresh is what a new member knows of how the others know it.
type fresh struct {
	roster.Fresh
	asked   bool // all others were asked, at askedAt
	askedAt clock.Instant
}

// recoverFresh reads whether this member is new.
func (r *Replica) recoverFresh() error {
	_, closer, err := r.db.Get(record.KeyNew)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r.fresh = &fresh{Fresh: roster.Fresh{
		Self: r.identity.MemberID, Incarnation: r.incarnation, Founders: r.voters, Stands: make(map[uint64]message.Standing),
	}}
	return closer.Close()
}

// hasData reports whether this member has entries or state that another could lack.
func (r *Replica) hasData() bool { return r.log.Written() > 0 || r.applied.Index > 0 }

// mayReplaceDirectory reports whether another directory of a known member may replace its former one. At a new member
// without data it may: it has promised the former one nothing.
func (r *Replica) mayReplaceDirectory(incarnation uint64) bool {
	return r.fresh != nil && incarnation != 0 && !r.fresh.Founding && !r.hasData() && !r.installing
}

// askStandings makes a new member ask all others, at each tick, until it has joined the cluster.
func (r *Replica) askStandings() {
	f := r.fresh
	if f == nil || r.halted || f.asked && r.now.Elapsed(f.askedAt) < TickInterval {
		return
	}
	f.asked, f.askedAt = true, r.now
	r.sendStandings()
}

// sendStandings informs all other members how this one knows them, and asks them back if it is new.
func (r *Replica) sendStandings() {
	for _, id := range r.voters {
		if id != r.identity.MemberID {
			r.sendStanding(id, r.fresh != nil)
		}
	}
}

// askStanding makes a new member ask another one.
func (r *Replica) askStanding(member uint64) {
	if r.fresh != nil && member != r.identity.MemberID {
		r.sendStanding(member, true)
	}
}

func (r *Replica) sendStanding(to uint64, ask bool) {
	r.sendMessage(Message{To: to, Standing: &message.Standing{
		Known: r.peers[to], Data: r.hasData(), Founding: r.founding || r.fresh != nil && r.fresh.Founding, Ask: ask,
	}}, forever)
}

// onStanding processes how another member knows this one. A member that is not acquainted gets an answer too, so that
// it can report why it waits.
func (r *Replica) onStanding(from uint64, s message.Standing, acquainted bool) {
	if from == r.identity.MemberID || !slices.Contains(r.voters, from) {
		return
	}
	if s.Ask {
		r.sendStanding(from, false)
	}
	f := r.fresh
	if f == nil || !acquainted {
		return
	}
	f.Stands[from] = s
	if s.Founding && r.mayFoundWithout() == nil {
		f.Founding = true
	}
	r.joinCluster()
}

// joinCluster makes this member one of the cluster if the others agree. The record of that precedes in the database's
// log anything that this member votes for from now on.
func (r *Replica) joinCluster() {
	agreed := r.fresh.Agreed(r.peers)
	if agreed < len(r.voters) && !(r.fresh.Founding && agreed > len(r.voters)/2) {
		return
	}
	batch := r.db.NewBatch()
	record.Remove(batch, record.KeyNew)
	r.persistOwn(persisting{}, batch)
	r.founding, r.fresh = r.fresh.Founding, nil
	if r.founding { // so that the others do the same
		r.sendStandings()
	}
	r.heard = r.now
	r.awaitLeader()
}

// ErrFounding is [roster.ErrFounding].
var ErrFounding = roster.ErrFounding

// mayFoundWithout returns why this member may not found the cluster without the missing members; nil if it may.
func (r *Replica) mayFoundWithout() error {
	f := r.fresh
	if f == nil {
		return fmt.Errorf("%w: this member belongs to it already", ErrFounding)
	}
	if r.hasData() {
		return fmt.Errorf("%w: this member has data, and waits for the members that know it to come back", ErrFounding)
	}
	return f.MayFoundWithout(r.peers)
}

// onFound carries out the order to found the cluster without the missing members.
func (r *Replica) onFound(e Found) {
	err := r.mayFoundWithout()
	if err == nil {
		r.fresh.Founding = true
		r.joinCluster()
	}
	r.emit(Reply{ID: e.ID, Header: r.Header(), Err: err, Authority: forever})
}

// Awaits returns what a new member waits for before it joins the cluster; "" if it has joined.
func (r *Replica) Awaits() string {
	if r.fresh == nil {
		return ""
	}
	return r.fresh.Awaits(r.peers)
}
