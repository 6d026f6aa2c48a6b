package replica

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// A member with a new data folder does not vote and does not campaign: it may have had another folder before, with votes
// and entries in it. It belongs to the group as soon as every other member has told it that it has this very folder's
// number on its disk, and this member has theirs. So a group is founded only when all its members are there and new; and
// a majority of emptied folders founds nothing, because the member that is left knows other numbers for them. Once a
// member belongs to the group it knows the number of each other member, and that never changes.
//
// A new member follows a leader all the same: it takes what it is sent, and acknowledges it.

// fresh is what a new member knows of how the others stand to it.
type fresh struct {
	stands   map[uint64]message.Standing // by member: the newest; of acquainted members and of those that know another folder
	founding bool                        // an operator has ordered to found the group without those that are missing
	asked    bool                        // all others were asked, at askedAt
	askedAt  clock.Instant
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
	r.fresh = &fresh{stands: make(map[uint64]message.Standing)}
	return closer.Close()
}

// hasData reports whether this member has anything that another could lack.
func (r *Replica) hasData() bool { return r.log.Written() > 0 || r.applied.Index > 0 }

// renewsAcquaintance reports whether another folder of a member that is known may take the place of the former one. For a
// member that is new and has nothing it may: it has promised that one nothing.
func (r *Replica) renewsAcquaintance(incarnation uint64) bool {
	return r.fresh != nil && incarnation != 0 && !r.fresh.founding && !r.hasData() && !r.installing
}

// askStandings has a new member ask all others, at each tick, until it belongs to the group.
func (r *Replica) askStandings() {
	f := r.fresh
	if f == nil || r.halted || f.asked && r.now.Elapsed(f.askedAt) < TickInterval {
		return
	}
	f.asked, f.askedAt = true, r.now
	r.sendStandings()
}

// sendStandings tells all others how this member stands to them, and asks them if it is new.
func (r *Replica) sendStandings() {
	for _, id := range r.voters {
		if id != r.identity.MemberID {
			r.sendStanding(id, r.fresh != nil)
		}
	}
}

// askStanding has a new member ask another one.
func (r *Replica) askStanding(member uint64) {
	if r.fresh != nil && member != r.identity.MemberID {
		r.sendStanding(member, true)
	}
}

func (r *Replica) sendStanding(to uint64, ask bool) {
	r.sendMessage(Message{To: to, Standing: &message.Standing{
		Known: r.peers[to], Data: r.hasData(), Founding: r.founding || r.fresh != nil && r.fresh.founding, Ask: ask,
	}}, forever)
}

// onStanding takes how another member stands to this one. A member that is not acquainted gets an answer as well, for it
// is to say why it waits.
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
	f.stands[from] = s
	if s.Founding && r.mayFoundWithout() == nil {
		f.founding = true
	}
	r.joinCluster()
}

// agrees reports whether another member has this folder's number on its disk, as this member has that one's.
func (r *Replica) agrees(member uint64) bool {
	return r.fresh.stands[member].Known == r.incarnation && r.peers[member] != 0
}

// joinCluster makes this member one of the group if the others agree. The record of that is in the database's log before
// anything that this member votes for from now on.
func (r *Replica) joinCluster() {
	agreed := 1
	for _, id := range r.voters {
		if id != r.identity.MemberID && r.agrees(id) {
			agreed++
		}
	}
	if agreed < len(r.voters) && !(r.fresh.founding && agreed > len(r.voters)/2) {
		return
	}
	batch := r.db.NewBatch()
	record.Remove(batch, record.KeyNew)
	r.persistOwn(persisting{}, batch)
	r.founding, r.fresh = r.fresh.founding, nil
	if r.founding { // the others are to do the same
		r.sendStandings()
	}
	r.heard = r.now
	r.awaitLeader()
}

// Found orders a new member to found the group without the members that are missing. It is answered by a [Reply], whose
// error says why that may not be.
type Found struct{ ID uint64 }

func (Found) event() {}

// ErrFounding says why a member does not found its group.
var ErrFounding = errors.New("the group is not founded")

// mayFoundWithout says why this member may not found the group without those that are missing, nil if it may.
func (r *Replica) mayFoundWithout() error {
	f := r.fresh
	if f == nil {
		return fmt.Errorf("%w: this member belongs to it already", ErrFounding)
	}
	if r.hasData() {
		return fmt.Errorf("%w: this member has data, and waits for the members that know it to come back", ErrFounding)
	}
	agreed := 1
	for _, id := range r.voters {
		s := f.stands[id]
		switch {
		case s.Data:
			return fmt.Errorf("%w: member %x has data, so the group exists; a new one would lose that", ErrFounding, id)
		case s.Known != 0 && s.Known != r.incarnation:
			return fmt.Errorf("%w: member %x knows another data folder of this member, so the group existed", ErrFounding, id)
		case id != r.identity.MemberID && r.agrees(id):
			agreed++
		}
	}
	if agreed <= len(r.voters)/2 {
		return fmt.Errorf("%w: only %d of %d members are there, and a majority must be", ErrFounding, agreed, len(r.voters))
	}
	return nil
}

// onFound carries out the order to found the group without those that are missing.
func (r *Replica) onFound(e Found) {
	err := r.mayFoundWithout()
	if err == nil {
		r.fresh.founding = true
		r.joinCluster()
	}
	r.emit(Reply{ID: e.ID, Header: r.Header(), Err: err, Authority: forever})
}

// Awaits says for what a new member waits until it belongs to the group; "" if it does.
func (r *Replica) Awaits() string {
	if r.fresh == nil {
		return ""
	}
	var reasons []string
	for _, id := range r.voters {
		if id == r.identity.MemberID || r.agrees(id) {
			continue
		}
		s, heard := r.fresh.stands[id]
		switch {
		case !heard:
			reasons = append(reasons, fmt.Sprintf("member %x does not answer", id))
		case s.Known != 0 && s.Known != r.incarnation && s.Data:
			reasons = append(reasons, fmt.Sprintf("member %x has data, and knows another data folder of this member", id))
		case s.Known != 0 && s.Known != r.incarnation:
			reasons = append(reasons, fmt.Sprintf("member %x knows another data folder of this member", id))
		default:
			reasons = append(reasons, fmt.Sprintf("member %x is not yet acquainted", id))
		}
	}
	return strings.Join(reasons, ", ")
}
