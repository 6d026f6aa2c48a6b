package simulation

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// This file checks how long a lease may outlive its end. Two bounds hold, and the world checks the earlier one.
//
// The first bound is the newest leader's count. It is the TTL from the leader's last renewal of the lease. Without one, it
// is the remaining time in the newest record of the lease, counted from the moment when this leader applied the record.
//
// The second bound is the documented one (P27). It is the TTL from the last renewal at any leader, plus:
//
//   - the silence after which a leader records the remaining time,
//   - the first time without a leader,
//   - for each leader since then the time by which it was behind, or the recorded time from its beginning, if that is less.
//
// Both bounds are in real time. The world adds how much slower the clocks of the leaders ran, which it knows exactly. A
// lease can end only while there is a leader. So all times without a leader at or after the bound are added (P27). Those
// between the first one and the bound are not. The remaining slack of the check is:
//
//   - overstaySlack and writingSlack: a leader takes time to decide and to replicate, and delays of disks and links are drawn.
//   - The time in which a leader with authority was paused, or made no progress for patience, counts as without a leader. A
//     command that was proposed before may still be committed in it.
//   - A renewal counts from its arrival or from its answer, whichever is later, because the world does not see the moment in
//     between. It counts also at a member that could not have had it committed.
//   - A leader counts as behind since the first member had its record. It may have known an earlier end before.
//   - Clocks that led for a part of the time count as slow for all of it.
const (
	// overstaySlack covers delays without faults.
	overstaySlack = 300 * time.Millisecond
	// writingSlack bounds how long a leader takes to record that a lease is silent.
	writingSlack = 150 * time.Millisecond
	// patience is how long a leader with authority may make no progress before it counts as none.
	patience = 100 * time.Millisecond
)

// look is a lease in the replicated state of one member.
type look struct {
	cleared                              lessor.Position
	remaining                            time.Duration
	checkpointed, pinned, renewalRefused bool
}

// count is a length of time that a member counts.
type count struct {
	by     *member       // nil if no member counts
	from   int64         // real time
	since  clock.Instant // the same moment on the member's clocks
	length time.Duration
}

// stay holds the facts that decide when a lease is over.
type stay struct {
	heard          int64           // real time of the last possible renewal by a leader
	clocks         []clock.Instant // by member: its reading at that time
	led            []bool          // by member: it led since then
	leadership     int64           // real time when the first leader after heard began; 0 if there was none
	bound          int64           // the documented bound so far, without slow clocks
	behind         time.Duration   // the sum of the times by which these leaders were behind
	renewalRefused int64           // real time when its tenure was revoked; 0 if it was not
	counts         count           // of the newest leader
	begun          int64           // real time when that leader began, or renewed the lease

	cleared lessor.Position // the newest of any member
	written bool            // a checkpoint was recorded since then

	seen  []look         // by member
	came  []count        // by member: when it had this look, and the remaining time
	first map[look]int64 // real time when the first member had a look
}

func newStay(w *world) stay {
	n := len(w.members)
	return stay{
		heard: w.now, clocks: make([]clock.Instant, n), led: make([]bool, n), seen: make([]look, n), came: make([]count, n),
		first: make(map[look]int64),
	}
}

// hear restarts the count of a lease, for a member that may lead and for later leaders.
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

// heardAll records that a member received renewals or answered them. It matters only at the newest leader.
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

// watchRenewals records the renewals among the events that a member is about to see.
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

// watchAnswers records a member's answers to renewals of its own clients and of other members.
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

// sees records the look of a lease at a member, and since when. installed means that the member has just installed the
// state of another one, and counts from now.
func (f *facts) sees(m *member, l *lease, found lessor.Lease, installed bool) {
	w, s := f.w, &l.stay
	now := look{found.Cleared, found.Remaining, found.Checkpointed, found.Pinned, found.RenewalRefused}
	before := s.seen[m.index]
	if now == before && !installed {
		return
	}
	_, known := s.first[now]
	if !known {
		s.first[now] = w.now
	}
	s.seen[m.index] = now
	s.came[m.index] = count{m, w.now, m.clocks.now(w), found.Remaining}
	newest := now.cleared > s.cleared // granted, cleared, unpinned or retained
	if newest {
		l.ttl = found.TTL
	}
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

// misses records that a member does not have a lease.
func (f *facts) misses(m *member, l *lease) { l.stay.seen[m.index] = look{} }

// watchLeadership records a leader that begins to serve.
func (f *facts) watchLeadership(m *member) {
	_, term := m.replica.Leader()
	if !m.replica.Serving() || f.served[m.index] == term {
		return
	}
	f.served[m.index] = term
	if term < f.newest {
		return // it notices its election late, and another member leads by now
	}
	for _, l := range f.leases {
		f.succeeds(m, l)
	}
}

// succeeds records a new leader, which may not have renewed a lease.
func (f *facts) succeeds(m *member, l *lease) {
	w, s := f.w, &l.stay
	f.checkOverstay(l, m) // by the count of the former leader, which did not end it
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

// slower returns how much slower than real time a member's clocks ran since a reading.
func (w *world) slower(m *member, from int64, since clock.Instant) time.Duration {
	return max(0, time.Duration(w.now-from)-m.clocks.now(w).Elapsed(since))
}

// due returns the real time when a lease is over. ok is false if no member counts yet, or the lease is pinned.
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

// documented returns the real time when a lease is over by the documented bound. It holds once another leader has begun.
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

// checkOverstay checks that a lease has not been over for too long when a member ends it, or still has it.
func (f *facts) checkOverstay(l *lease, m *member) {
	w, s := f.w, &l.stay
	due, ok := f.due(l)
	if !ok {
		return
	}
	over, later := time.Duration(w.now-due), w.leaderless(due, w.now)
	if s.leadership != 0 && later > 0 && s.leadership < due {
		w.mark("a lease was over during a later time without a leader")
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

// checkWritten checks a lease that expires under the leader that renewed it last: its silence was recorded in time. If the
// leader had died, this record would have counted.
func (f *facts) checkWritten(l *lease) {
	w, s := f.w, &l.stay
	if s.leadership != 0 || s.written || s.renewalRefused != 0 || s.counts.by == nil {
		return
	}
	silent := s.heard + int64(lessor.SilenceThreshold(l.ttl)+w.slower(s.counts.by, s.counts.from, s.counts.since))
	if known := time.Duration(w.now-silent) - w.leaderless(silent, w.now); known > 2*writingSlack {
		w.fail("the silence of a lease is recorded (P27)", "lease %d of %v was heard last %v ago, and %s, which has led since, has not recorded that for %v",
			l.id, l.ttl, time.Duration(w.now-s.heard), s.counts.by.name, known)
	}
}

// span is an interval of real time.
type span struct{ from, to int64 }

// progress is the last observed progress of a leader with one kind of work: at counts it, and since is its real time.
type progress struct {
	member, life int
	at           uint64
	since        int64
}

// stuck returns since when a leader has made no progress. yes is false if that is less than patience ago, or if the leader is
// idle.
func (p *progress) stuck(w *world, m *member, at uint64, idle bool) (since int64, yes bool) {
	if idle || m.index != p.member || m.life != p.life || at != p.at {
		*p = progress{m.index, m.life, at, w.now}
	}
	return p.since, w.now-p.since >= int64(patience)
}

// watchLeading records, after every event, the time in which no leader committed commands.
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

// without records that there was no leader since a moment.
func (w *world) without(since int64) {
	if n := len(w.idle); n > 0 && since <= w.idle[n-1].to {
		w.idle[n-1].to = w.now
		w.idle[n-1].from = min(w.idle[n-1].from, since)
		return
	}
	w.idle = append(w.idle, span{since, w.now})
}

// leaderless returns how long there was no leader between two moments.
func (w *world) leaderless(from, to int64) time.Duration {
	sum := int64(0)
	for i := len(w.idle) - 1; i >= 0 && w.idle[i].to > from; i-- {
		sum += max(0, min(to, w.idle[i].to)-max(from, w.idle[i].from))
	}
	return time.Duration(sum)
}
