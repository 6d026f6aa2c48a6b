package replica

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A member is ready if linearizable reads and renewals work through it. Knowing a leader proves neither: a leader
// refuses a member with an emptied data directory, and the path to the leader may be cut while the path back is not.
// So each member sends both kinds of request itself, on the path of its clients' requests, and remembers when they
// were last answered.

const (
	// probeIDs marks the ids of a member's own probes. The ids of its clients are smaller.
	probeIDs = 1 << 62
	// probeQuestions are a read and a renewal.
	probeQuestions = 2
	// probes is how often a member probes within one election timeout.
	probes = 2
	// readyFor is for how many election timeouts a member stays ready after a successful probe.
	readyFor = 2
)

// health is what a member knows about whether requests work through it.
type health struct {
	number  uint64        // of the newest probe
	asked   clock.Instant // when that was begun
	awaited int           // questions of it that are not answered yet
	refused bool          // one of its questions was refused
	until   clock.Instant // the member is ready up to then
}

// probeInterval returns the time from one probe to the next. It is short while a member is not ready.
func (r *Replica) probeInterval() time.Duration {
	if r.now.After(r.health.until) {
		return TickInterval
	}
	return r.cfg.ElectionTimeout / probes
}

// Ready returns until when this member counts as ready: two election timeouts after reads and renewals last worked
// through it. A cluster's only member is ready while it serves.
func (r *Replica) Ready() clock.Instant {
	switch {
	case r.halted || r.left || r.soleVoter() && !r.serving:
		return clock.Instant{}
	case r.soleVoter():
		return forever
	}
	return r.health.until
}

// probe sends a linearizable read, and a renewal of a lease that does not exist. One probe is in flight at a time, so
// slow answers count like quick ones. Every question is answered, if only by a refusal after ReadTimeout.
func (r *Replica) probe() {
	h := &r.health
	if r.soleVoter() || r.halted || r.left || h.awaited > 0 || h.number > 0 && r.now.Elapsed(h.asked) < r.probeInterval() {
		return
	}
	h.number++
	h.asked, h.awaited, h.refused = r.now, probeQuestions, false
	id := probeIDs | h.number
	r.question(Read{ID: id})
	r.question(Renewal{ID: id, Leases: []lessor.ID{lessor.NoLease}})
}

// probed processes an answer to one of this member's own probes. It reports whether the answer was one.
func (r *Replica) probed(answer Effect) bool {
	id, worked := uint64(0), false
	switch e := answer.(type) {
	case ReadAt:
		id, worked = e.ID, true
	case Renewed:
		id, worked = e.ID, len(e.Leases) == 1 && e.Leases[0].Err == lessor.ErrNotFound
	case Reply: // a refusal
		id = e.ID
	}
	if !isProbe(id) {
		return false
	}
	h := &r.health
	h.awaited--
	h.refused = h.refused || !worked
	if h.awaited == 0 && !h.refused {
		h.until = r.now.Add(readyFor * r.cfg.ElectionTimeout)
	}
	return true
}

func isProbe(id uint64) bool { return id >= probeIDs && id < otherIDs }
