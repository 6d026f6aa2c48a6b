package simulation

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// The accidents in this file break an assumption of the design: an old copy of a data directory is put back, or data
// directories are emptied. The cluster may then lose acknowledged changes. So such a world checks only that the loss is not
// silent.

const silentFork = "a fork is not silent"

// copied is such an accident. whole has entries that the others lost; last is the newest index that it had applied, or 0 if
// nothing was lost.
type copied struct {
	whole *member
	last  uint64
	found bool // whole halted
}

// putBackCopy makes the accident happen. One member is away, and another one's data directory is copied. The two remaining
// members acknowledge more. Then the copy is put back and the third member is stopped for a while, so that the others lose
// the later entries.
func (w *world) putBackCopy() {
	whole := w.leader()
	if whole == nil {
		w.after(100*time.Millisecond, w.putBackCopy)
		return
	}
	other := w.members[(whole.index+1)%len(w.members)]
	away := w.members[(whole.index+2)%len(w.members)]
	const long = time.Hour
	for _, m := range []*member{whole, other} {
		w.network.cutFor(m.index, away.index, long, false)
		w.network.cutFor(away.index, m.index, long, false)
	}
	old := other.fs.CrashClone(vfs.CrashCloneCfg{})
	w.after(time.Second+w.upTo(w.dice.faults, time.Second), func() {
		if w.leader() != whole || !other.up || !away.up {
			return // an accident of another kind
		}
		applied := whole.replica.Applied()
		whole.end(false)
		other.end(true)
		w.accident = &copied{whole: whole}
		other.fs = old
		w.network.heal()
		w.after(100*time.Millisecond, func() { // when no message is under way that would reveal it
			other.start()
			if applied > max(other.replica.Last(), away.replica.Last()) { // something is lost
				w.accident.last = applied
				w.after(3*time.Second+w.upTo(w.dice.faults, 4*time.Second), whole.start)
			}
		})
	})
}

// checkCopied checks that the accident was noticed.
func (w *world) checkCopied() {
	a := w.accident
	if a == nil || a.last == 0 {
		return
	}
	w.mark("an old copy of a data directory was put back")
	if !a.found {
		w.fail(silentFork, "%s had applied %d entries, of which the others lost some: %s", a.whole.name, a.last, w.situation())
	}
}

// forked reports whether a member halts because of the accident, and then ends the member.
func (w *world) forked(m *member, err error) bool {
	var fork *replica.ForkError
	if w.accident == nil {
		return false
	}
	if errors.As(err, &fork) {
		w.accident.found = w.accident.found || m == w.accident.whole
	} else {
		w.accident.last = 0 // the member with the copy has noticed that it lost entries
	}
	m.end(false)
	return true
}

// readOfFork checks a member that is about to answer a read from its state.
func (w *world) readOfFork(m *member) {
	if a := w.accident; a != nil && a.last > 0 && m == a.whole {
		w.fail(silentFork, "%s answers a read from a state that the others lost", m.name)
	}
}

const foundedAgain = "emptied data directories found no cluster"

// wipe empties the data directories of all members but one, which comes back at a random time. From then on no member may
// lead: the emptied members do not know what the remaining one has acknowledged.
func (w *world) wipe() {
	leader := w.leader()
	if leader == nil || leader.replica.Applied() < 10 {
		w.after(100*time.Millisecond, w.wipe)
		return
	}
	left := w.members[w.dice.faults.IntN(len(w.members))]
	w.accident = &copied{}
	for _, m := range w.members {
		m.end(true)
	}
	for _, m := range w.members {
		if m != left {
			m.fs, m.incarnation, m.life = vfs.NewCrashableMem(), w.dice.world.Uint64()|1, 0
			w.after(w.upTo(w.dice.faults, time.Second), m.start)
		}
	}
	w.after(w.upTo(w.dice.faults, 5*time.Second), left.start)
	w.mark("a majority of data directories was emptied")
	w.watchEmptied()
}

// watchEmptied fails the world if a member leads after wipe.
func (w *world) watchEmptied() {
	if leader := w.leader(); leader != nil {
		w.fail(foundedAgain, "%s serves: %s", leader.name, w.situation())
	}
	w.after(10*time.Millisecond, w.watchEmptied)
}
