package simulation

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// What no history may hold, and what happens to people all the same: an old copy of a data folder is put back. The group
// may lose what it acknowledged then, so nothing else is checked in such a world but that this is not silent.

const silentFork = "a fork is not silent"

// copied is the accident: whole has what the others lost, and so many entries that the others do not have.
type copied struct {
	whole *member
	last  uint64
	found bool // whole halted
}

// copyBack has the accident happen. One member is away; a copy is made of another one's folder; what the two that are
// left acknowledge from then on is lost with it, when the copy is put back and the third is stopped for a while.
func (w *world) copyBack() {
	whole := w.leader()
	if whole == nil {
		w.after(100*time.Millisecond, w.copyBack)
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
		w.after(100*time.Millisecond, func() { // when nothing is on its way any more that would tell it
			other.start()
			if applied > max(other.replica.Last(), away.replica.Last()) { // something is lost
				w.accident.last = applied
				w.after(3*time.Second+w.upTo(w.dice.faults, 4*time.Second), whole.start)
			}
		})
	})
}

// checkCopied looks at what became of the accident.
func (w *world) checkCopied() {
	a := w.accident
	if a == nil || a.last == 0 {
		return
	}
	w.mark("an old copy of a folder was put back")
	if !a.found {
		w.fail(silentFork, "%s had applied %d entries, of which the others lost some: %s", a.whole.name, a.last, w.situation())
	}
}

// forked takes it that a member halts because of the accident, and reports whether that is so.
func (w *world) forked(m *member, err error) bool {
	var fork *replica.ForkError
	if w.accident == nil {
		return false
	}
	if errors.As(err, &fork) {
		w.accident.found = w.accident.found || m == w.accident.whole
	} else {
		w.accident.last = 0 // the copy has noticed that it is one
	}
	m.end(false)
	return true
}

// readOfFork is told that a member says a read may be answered from its state.
func (w *world) readOfFork(m *member) {
	if a := w.accident; a != nil && a.last > 0 && m == a.whole {
		w.fail(silentFork, "%s answers a read from a state that the others lost", m.name)
	}
}

const foundedAgain = "emptied folders found nothing"

// wipe empties the folders of all members but one, which may be there or come back later. From then on nobody leads: those
// that are empty do not know what the one that is left may have acknowledged.
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
	w.mark("a majority of folders was emptied")
	w.watchEmptied()
}

func (w *world) watchEmptied() {
	if leader := w.leader(); leader != nil {
		w.fail(foundedAgain, "%s serves: %s", leader.name, w.situation())
	}
	w.after(10*time.Millisecond, w.watchEmptied)
}
