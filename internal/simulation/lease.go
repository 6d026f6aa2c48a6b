package simulation

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// lease is what the world knows of one lease.
type lease struct {
	id     lessor.ID
	ttl    time.Duration
	holder *client
	name   string // "" if it was not made by a claim

	keep       bool // its holder renews it
	ending     bool // somebody asked for its end
	gone       bool // its holder knows that it has ended
	ended      bool // a member applied its end
	generation lessor.Generation
	since      uint64        // an index at which a member had it
	granted    bool          // its holder was told so
	first      clock.Instant // when a claim was sent first, by the holder's clocks

	// deadline is up to when its holder relies on it, by the holder's clocks.
	deadline clock.Instant
	renewal  int64 // real time of the newest request to renew it
	holds    bool  // its holder was told that it holds the name
	token    int64

	// touched is when a primary last may have prolonged it, in real time, and troubled what had been wrong up to then.
	touched, troubled int64
}

func lessorOrder(a, b lessor.Lease) int { return cmp.Compare(a.ID, b.ID) }

// relied reports whether the holder relies on the lease at this moment.
func (l *lease) relied(w *world) bool {
	return l.granted && !l.gone && !l.ending && l.holder.clocks.now(w).Before(l.deadline)
}

// extend is told that a request was acknowledged which the holder sent first at that moment on its clocks.
func (l *lease) extend(w *world, sent clock.Instant, ttl time.Duration) {
	if l.gone {
		return
	}
	deadline := sent.Add(w.drift.RelyRemote(ttl))
	if deadline.Raw > l.deadline.Raw {
		l.deadline = deadline
	}
	if l.ended && l.relied(w) {
		w.fail("no acknowledged renewal is undercut", "lease %d ended before %s was told that it has it until %v there", l.id, l.holder.name, l.deadline)
	}
}

func (f *facts) addLease(l *lease) {
	f.byID[int64(l.id)] = l
	f.leases = append(f.leases, l)
	l.touched, l.troubled = f.w.now, f.w.troubled
}

func (f *facts) touch(ids []lessor.ID) {
	for _, id := range ids {
		if l := f.byID[int64(id)]; l != nil {
			l.touched, l.troubled = f.w.now, f.w.troubled
		}
	}
}

// lookAtLeases finds out which leases a member has, and which it has no more.
func (f *facts) lookAtLeases(m *member) {
	over, at := false, m.replica.Applied()
	for _, l := range f.leases {
		found, there := m.replica.Lessor().Lookup(l.id)
		switch {
		case there && l.since == 0:
			l.since, l.touched, l.troubled = at, f.w.now, f.w.troubled
			l.generation = found.Generation
		case there && found.Generation > l.generation: // it ended, and was granted again
			f.endedAt(l, m)
			over = true
		case there:
			l.since = min(l.since, at)
		case l.since != 0 && at >= l.since:
			f.endedAt(l, m)
			over = true
		}
	}
	if over {
		f.leases = slices.DeleteFunc(f.leases, func(l *lease) bool { return l.ended })
	}
}

// endedAt is told that the first member has applied the end of a lease.
func (f *facts) endedAt(l *lease, m *member) {
	w := f.w
	l.ended = true
	w.note(m.name, "ends lease", uint64(l.id), 0)
	if l.relied(w) {
		w.fail("no acknowledged renewal is undercut", "%s ends lease %d, but %s was told that it has it until %v there, and it is %v",
			m.name, l.id, l.holder.name, l.deadline, l.holder.clocks.now(w))
	}
	if l.ending {
		return
	}
	w.mark("a lease expired")
	f.checkOverstay(l, m)
}

// overstaySlack is for what takes time although nothing is wrong.
const overstaySlack = 500 * time.Millisecond

// checkOverstay checks how long a lease outlives the end that it would have if nothing ever was wrong: not longer than
// the silence after which it is checkpointed, and the time in which something was wrong.
func (f *facts) checkOverstay(l *lease, m *member) {
	w := f.w
	wrong := time.Duration(w.troubled - l.troubled)
	lasts := w.drift.WaitRemote(l.ttl) // in real time less, whatever the clocks
	bound := lasts + overstaySlack
	if wrong > 0 {
		bound += w.drift.WaitRemote(lessor.SilenceThreshold(l.ttl)) + wrong
		w.mark("a lease expired after something had been wrong")
	}
	if lived := time.Duration(w.now - l.touched); lived > bound {
		w.fail("no lease overstays by more than its silence and the time that something was wrong",
			"%s ends lease %d of %v %v after it was last prolonged; something was wrong for %v of it", m.name, l.id, l.ttl, lived, wrong)
	}
}
