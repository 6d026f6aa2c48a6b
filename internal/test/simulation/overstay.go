package simulation

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// How long a lease may outlive its end. Two bounds hold, and the world checks the earlier one.
//
// What the newest leader counts: the TTL from when it last prolonged the lease, or, if it did not, what was left when the
// newest record of the lease was made, counted from when it came to this very member.
//
// What is documented (P27): the TTL from when a leader last heard of the lease, and beyond it the silence after which that
// is written down, the first time without a leader, and for each leader since then how far that one was behind, or, from
// when that one began, what the record left.
//
// Both are in real time, with what the clocks of those who led were slower than that, which the world knows exactly. When
// the time has come a leader has to be there: any time without one at or after that moment counts besides, however many
// such times there are (P27). Times without a leader between the first and that moment count for nothing. A leader takes a
// moment (see overstaySlack) to decide and to replicate. So what remains slack is:
//
//   - overstaySlack and writingSlack, since how long disks and links take is drawn for each message;
//   - the time in which a leader with authority stood still, or has got nothing done for as long as patience: it counts as
//     without a leader, although a command that was proposed before may come through in it;
//   - that a renewal counts as heard when its answer leaves, and when it comes, whichever is later, as the world does not
//     see when between the two it was made; and when somebody hears it who could not have had it committed;
//   - that a leader counts as behind by when the first member had the record that it goes by, although it may go by an
//     earlier end that it knew of before, or remember from before it started when it had it;
//   - that clocks which led for a part of that time count as slow for all of it.
const (
	// overstaySlack is for what takes time although nothing is wrong.
	overstaySlack = 300 * time.Millisecond
	// writingSlack is how long it takes at most to write down that a lease is silent.
	writingSlack = 150 * time.Millisecond
	// patience is how long a leader with authority gets nothing done when it is as good as none.
	patience = 100 * time.Millisecond
)

// look is how a lease stands in the replicated state.
type look struct {
	cleared                              lessor.Position
	remaining                            time.Duration
	checkpointed, pinned, renewalRefused bool
}

// count is a length of time as a member counts it.
type count struct {
	by     *member // nil: nobody yet
	from   int64
	since  clock.Instant // the same, by its clocks
	length time.Duration
}

// stay is what decides when a lease is over.
type stay struct {
	heard          int64           // when a leader last may have prolonged it, in real time
	clocks         []clock.Instant // what those of each member showed then
	led            []bool          // who led since
	leadership     int64           // when the first leader after that began; 0 if there was none
	bound          int64           // what is documented, with the leaders since then, were clocks not slower than real time
	behind         time.Duration   // how far these leaders were
	renewalRefused int64           // when its holder was revoked; 0 if it was not
	counts         count           // of the newest leader
	begun          int64           // when that began, or heard of it

	cleared lessor.Position // the newest that anybody has
	written bool            // since then it was written down that it was silent

	seen  []look  // by member
	came  []count // by member: when it came to stand so there, and what was left
	first map[look]int64
}

func newStay(w *world) stay {
	n := len(w.members)
	return stay{
		heard: w.now, clocks: make([]clock.Instant, n), led: make([]bool, n), seen: make([]look, n), came: make([]count, n),
		first: make(map[look]int64),
	}
}

// hear is told that the count of a lease starts over: for a member that leads, and for all that come after it.
func (f *facts) hear(l *lease, m *member) {
	w, s := f.w, &l.stay
	s.heard, s.begun, s.leadership, s.behind = w.now, w.now, 0, 0
	clear(s.led)
	for i, other := range w.members {
		s.clocks[i] = other.clocks.now(w)
	}
	if leader, _ := m.replica.Leader(); leader == m.id {
		s.counts = count{m, w.now, s.clocks[m.index], l.ttl}
		s.led[m.index] = true
	}
}

// heardAll is told that a member hears of leases, or answers who renewed them. It matters if it leads, and nobody was
// elected since.
func (f *facts) heardAll(m *member, ids ...lessor.ID) {
	if leader, term := m.replica.Leader(); leader != m.id || term < f.newest {
		return
	}
	for _, id := range ids {
		if l := f.byID[int64(id)]; l != nil && l.stay.renewalRefused == 0 {
			f.hear(l, m)
		}
	}
}

// watchRenewals is told what a member is about to see.
func (f *facts) watchRenewals(m *member, events []replica.Event) {
	for _, event := range events {
		switch e := event.(type) {
		case replica.Renewal:
			f.heardAll(m, e.Leases...)
		case replica.Received:
			for _, renewal := range e.Message.Renewals {
				f.heardAll(m, renewal.Leases...)
			}
		}
	}
}

// watchAnswers is told what a member answers to renewals, its own clients' and others'.
func (f *facts) watchAnswers(m *member, effects []replica.Effect) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case replica.Renewed:
			f.answered(m, e.Leases)
		case replica.Send:
			for _, renewed := range e.Message.Renewed {
				f.answered(m, renewed.Leases)
			}
		}
	}
}

func (f *facts) answered(m *member, leases []replica.RenewedLease) {
	for _, l := range leases {
		if !isGone(l.Err) {
			f.heardAll(m, l.ID)
		}
	}
}

// sees takes note of how a lease stands at a member, and since when. `anew` says that the member has just got its whole
// state from another one, and counts from now.
func (f *facts) sees(m *member, l *lease, found lessor.Lease, anew bool) {
	w, s := f.w, &l.stay
	now := look{found.Cleared, found.Remaining, found.Checkpointed, found.Pinned, found.RenewalRefused}
	before := s.seen[m.index]
	if now == before && !anew {
		return
	}
	_, known := s.first[now]
	if !known {
		s.first[now] = w.now
	}
	s.seen[m.index] = now
	s.came[m.index] = count{m, w.now, m.clocks.now(w), found.Remaining}
	newest := now.cleared > s.cleared // granted, cleared or unpinned
	s.cleared = max(s.cleared, now.cleared)
	s.written = !newest && s.written || now.cleared == s.cleared && now.checkpointed && now.remaining < l.ttl
	switch {
	case newest && before.pinned && !now.pinned:
		l.unpinned = w.now
	case newest || now.pinned && now.cleared == s.cleared:
		l.unpinned = 0
	}
	if newest || now.cleared != before.cleared && m.replica.Serving() {
		f.hear(l, m)
	}
	if now.renewalRefused && s.renewalRefused == 0 {
		s.renewalRefused = w.now
		s.bound = max(s.bound, w.now+int64(l.ttl))
	}
}

// misses takes note that a member does not have a lease.
func (f *facts) misses(m *member, l *lease) { l.stay.seen[m.index] = look{} }

// watchLeadership takes note of a leader that begins to serve.
func (f *facts) watchLeadership(m *member) {
	_, term := m.replica.Leader()
	if !m.replica.Serving() || f.served[m.index] == term {
		return
	}
	f.served[m.index] = term
	if term < f.newest {
		return // it finds out late that it was elected, and others lead by now
	}
	for _, l := range f.leases {
		f.succeeds(m, l)
	}
}

// succeeds takes note that a member leads which may not have heard of a lease.
func (f *facts) succeeds(m *member, l *lease) {
	w, s := f.w, &l.stay
	f.checkOverstay(l, m) // by what the one before counts, who did not end it
	s.led[m.index] = true
	if s.leadership == 0 {
		s.leadership = w.now
		silence := lessor.SilenceThreshold(l.ttl) + writingSlack + w.leaderless(s.heard, w.now)
		s.bound = s.heard + int64(l.ttl+silence)
		if s.renewalRefused != 0 {
			s.bound = max(s.bound, s.renewalRefused+int64(l.ttl))
		}
	}
	seen, came := s.seen[m.index], s.came[m.index]
	if seen == (look{}) {
		return
	}
	late := time.Duration(came.from - s.first[seen])
	s.behind += late
	s.bound = min(s.bound+int64(late), max(s.bound, w.now)+int64(came.length))
	s.counts, s.begun = came, w.now
}

// slower is by how much a member's clocks went slower than real time since they showed something.
func (w *world) slower(m *member, from int64, since clock.Instant) time.Duration {
	return max(0, time.Duration(w.now-from)-m.clocks.now(w).Elapsed(since))
}

// due is when a lease is over, in real time; false if nobody counts yet, or it is pinned.
func (f *facts) due(l *lease) (at int64, ok bool) {
	w, s := f.w, &l.stay
	c := s.counts
	if c.by == nil || s.seen[c.by.index].pinned {
		return 0, false
	}
	at = max(s.begun, c.from+int64(c.length+w.slower(c.by, c.from, c.since)))
	if s.leadership == 0 {
		return at, true
	}
	return min(at, f.documented(l)), true
}

// documented is when a lease is over by what is documented, in real time, once a leader has led that did not hear of it.
func (f *facts) documented(l *lease) int64 {
	w, s := f.w, &l.stay
	slow := time.Duration(0)
	for i, led := range s.led {
		if led {
			slow = max(slow, w.slower(w.members[i], s.heard, s.clocks[i]))
		}
	}
	return s.bound + int64(slow)
}

// checkOverstay checks that a lease which a member ends, or has not ended yet, is not over for too long.
func (f *facts) checkOverstay(l *lease, m *member) {
	w, s := f.w, &l.stay
	due, ok := f.due(l)
	if !ok {
		return
	}
	over, later := time.Duration(w.now-due), w.leaderless(due, w.now)
	if s.leadership != 0 && later > 0 && s.leadership < due {
		w.mark("a lease was over when there was no leader, and not for the first time")
		if w.now-f.documented(l) > int64(overstaySlack) {
			w.mark("a lease outlived the silence and the first time without a leader")
		}
	}
	if over-later <= overstaySlack {
		return
	}
	w.fail("no lease overstays by more than the silence, the first time without a leader, any such time at or after its end, and how far leaders were behind (P27)",
		"%s has lease %d of %v until now, %v after it was over; it was heard %v ago, leaders changed first %v after that, were behind by %v, "+
			"and there was none for %v of the time before and for %v after it was over; it stands as %+v",
		m.name, l.id, l.ttl, over, time.Duration(w.now-s.heard), time.Duration(max(0, s.leadership-s.heard)), s.behind,
		w.leaderless(s.heard, max(s.heard, s.leadership)), w.leaderless(due, w.now), s.seen[m.index])
}

// checkWritten checks, of a lease that ends by its time under the leader that heard of it last, that it was written down
// in time that it was silent: had the leader died it would have counted.
func (f *facts) checkWritten(l *lease) {
	w, s := f.w, &l.stay
	if s.leadership != 0 || s.written || s.renewalRefused != 0 || s.counts.by == nil {
		return
	}
	silent := s.heard + int64(lessor.SilenceThreshold(l.ttl)+w.slower(s.counts.by, s.counts.from, s.counts.since))
	if known := time.Duration(w.now-silent) - w.leaderless(silent, w.now); known > 2*writingSlack {
		w.fail("it is written down that a lease is silent (P27)", "lease %d of %v was heard last %v ago, and %s, which has led since, has kept for itself for %v that it is silent",
			l.id, l.ttl, time.Duration(w.now-s.heard), s.counts.by.name, known)
	}
}

// span is some real time.
type span struct{ from, to int64 }

// progress is how far a leader has come with something, and since when it has not come any further.
type progress struct {
	member, life int
	at           uint64
	since        int64
}

// stuck returns since when a leader has not come any further with what it has to do; false if it has for less than
// patience, or has nothing to do.
func (p *progress) stuck(w *world, m *member, at uint64, idle bool) (since int64, yes bool) {
	if idle || m.index != p.member || m.life != p.life || at != p.at {
		*p = progress{m.index, m.life, at, w.now}
	}
	return p.since, w.now-p.since >= int64(patience)
}

// watchLeading takes note of time in which nobody had commands committed. It is called after every event.
func (w *world) watchLeading(valid *member) {
	if valid == nil || !valid.replica.Serving() || valid.busy || w.now < valid.stopped {
		w.without(w.looked)
		return
	}
	applied, write := valid.replica.Applied(), 0
	if len(valid.writes) > 0 {
		write = valid.writes[0].number
	}
	if since, yes := w.applying.stuck(w, valid, applied, applied == valid.replica.Last()); yes {
		w.without(since)
	}
	if since, yes := w.writing.stuck(w, valid, uint64(write), write == 0); yes {
		w.without(since)
	}
}

// without is told that since then there was no leader.
func (w *world) without(since int64) {
	if n := len(w.idle); n > 0 && since <= w.idle[n-1].to {
		w.idle[n-1].to = w.now
		w.idle[n-1].from = min(w.idle[n-1].from, since)
		return
	}
	w.idle = append(w.idle, span{since, w.now})
}

// leaderless is for how long, of some time, there was no leader.
func (w *world) leaderless(from, to int64) time.Duration {
	sum := int64(0)
	for i := len(w.idle) - 1; i >= 0 && w.idle[i].to > from; i-- {
		sum += max(0, min(to, w.idle[i].to)-max(from, w.idle[i].from))
	}
	return time.Duration(sum)
}
