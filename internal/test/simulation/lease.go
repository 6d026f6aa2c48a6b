package simulation

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// lease is all that the world knows of one lease.
type lease struct {
	id     lessor.ID
	ttl    time.Duration
	holder *client
	name   string // "" if it was not made by a claim

	rank       int32 // priority of the claim
	preferring bool  // its holder has requested that it goes before all others
	preferred  bool  // its holder knows that it does

	keep       bool // its holder renews it
	ending     bool // its holder has requested its end
	gone       bool // its holder knows that it has ended
	ended      bool // a member has applied its end
	generation lessor.Generation
	since      uint64        // an index at which a member had it
	granted    bool          // its holder knows that it was granted
	first      clock.Instant // when a claim was sent first, by the holder's clocks

	// deadline is the end of the holder's reliance on it, by the holder's clocks.
	deadline clock.Instant
	renewal  int64 // real time of the newest request to renew it
	holds    bool  // its holder knows that it holds the name
	token    int64

	finish    *ownership.Finish // the request by which its holder finishes; nil before, and after the answer
	finishing int64             // real time of that request; 0 before
	heldOn    int64             // real time until which its name is held on; 0 if it is not
	expired   int64             // real time when the end of its time was first published; 0 if it was not

	transferring bool  // its holder requested its transfer, and no longer relies on it unless that fails
	unpinned     int64 // when it was unpinned last, in real time; 0 if it never was
	stay         stay
}

func lessorOrder(a, b lessor.Lease) int { return cmp.Compare(a.ID, b.ID) }

// reliedOn reports whether the holder relies on the lease at this moment.
func (l *lease) reliedOn(w *world) bool {
	return l.granted && !l.gone && !l.ending && !l.transferring && l.holder.clocks.now(w).Before(l.deadline)
}

// extend records an acknowledged request; sent is the holder's reading from before its first send.
func (l *lease) extend(w *world, sent clock.Instant, ttl time.Duration) {
	if l.gone {
		return
	}
	deadline := sent.Add(w.drift.RelyRemote(ttl))
	if deadline.Raw > l.deadline.Raw {
		l.deadline = deadline
	}
	if l.ended && l.reliedOn(w) {
		w.fail("no acknowledged renewal is undercut", "lease %d ended before %s received an acknowledgement until %v on its clocks", l.id, l.holder.name, l.deadline)
	}
}

func (f *facts) addLease(l *lease) {
	f.byID[int64(l.id)] = l
	f.leases = append(f.leases, l)
	l.stay = newStay(f.w)
}

// watchLeases finds out which leases a member has and which it no longer has. installed means that the member has just
// installed the state of another one.
func (f *facts) watchLeases(m *member, installed bool) {
	over, at := false, m.replica.Applied()
	for _, l := range f.leases {
		found, there := m.replica.Lessor().Lookup(l.id)
		switch {
		case there && l.since == 0:
			l.since, l.generation = at, found.Generation
		case there && found.Generation > l.generation: // it ended, and was granted again
			f.applyEnd(l, m)
			over = true
		case there:
			l.since = min(l.since, at)
		case l.since != 0 && at >= l.since:
			f.applyEnd(l, m)
			over = true
		}
		if there {
			f.sees(m, l, found, installed)
		} else {
			f.misses(m, l)
		}
	}
	f.checkPins(m)
	if over {
		f.leases = slices.DeleteFunc(f.leases, func(l *lease) bool { return l.ended })
	}
}

// applyEnd records that m is the first member to apply the end of a lease.
func (f *facts) applyEnd(l *lease, m *member) {
	w := f.w
	l.ended = true
	w.note(m.name, "ends lease", uint64(l.id), 0)
	if l.reliedOn(w) {
		w.fail("no acknowledged renewal is undercut", "%s ends lease %d, but it was acknowledged to %s until %v on its clocks, which show %v",
			m.name, l.id, l.holder.name, l.deadline, l.holder.clocks.now(w))
	}
	f.checkPinnedEnd(l, m)
	if l.ending || l.transferring {
		return
	}
	w.mark("a lease expired")
	if l.stay.leadership != 0 {
		w.mark("a lease expired under another leader than the one that renewed it last")
	}
	f.checkWritten(l)
	f.checkOverstay(l, m)
}
