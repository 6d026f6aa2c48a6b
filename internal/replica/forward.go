package replica

import (
	"fmt"
	"maps"
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/lessor"
)

const (
	// otherIDs marks the ids of renewals that came from other members.
	otherIDs = 1 << 63
	// maxForwarded bounds the renewals that a follower has in flight, and those that a leader processes for
	// followers.
	maxForwarded = intake.MaxQueue
	// maxForwardedIDs bounds the ids in one message between members.
	maxForwardedIDs = 8192
	// forwardPatience is how many ticks an answer may take before the renewal is sent again: messages get lost.
	forwardPatience = 3
)

// forwarded are renewals between followers and the leader: those of this member's clients, and those of other
// members.
type forwarded struct {
	sequence uint64 // of the newest renewal that was sent to a leader or came from a follower
	sent     map[uint64]*sentRenewal
	unsent   []uint64      // numbers in sent, to be sent by the present Step
	looked   clock.Instant // of the newest search for lost or overdue renewals
	came     map[uint64]origin
	answers  map[uint64]*answers // of the present Step, by member
}

// sentRenewal is a client's [Renewal] that waits for the leader's answers.
type sentRenewal struct {
	id     uint64
	user   string      // on whose behalf
	left   []lessor.ID // ids without an answer yet
	at     clock.Instant
	until  clock.Instant
	queued bool // its number is in unsent
}

// origin says which member forwarded a renewal.
type origin struct {
	member, number uint64
	left           int // ids not answered yet
}

// answers are the answers of one Step to one member, with the end of the authority on which they rest.
type answers struct {
	renewed   []message.ForwardedRenewed
	authority clock.Instant
}

func newForwarded() forwarded {
	return forwarded{sent: make(map[uint64]*sentRenewal), came: make(map[uint64]origin), answers: make(map[uint64]*answers)}
}

// forward queues a client's renewal for the leader.
func (r *Replica) forward(e Renewal) {
	f := &r.forwarded
	if len(f.sent) >= maxForwarded {
		r.refuse(e, ErrTooManyRequests)
		return
	}
	f.sequence++
	f.sent[f.sequence] = &sentRenewal{id: e.ID, user: e.User, left: slices.Clone(e.Leases), until: r.now.Add(r.cfg.ReadTimeout), queued: true}
	f.unsent = append(f.unsent, f.sequence)
}

// forwardAll sends the queued renewals and, at each tick, queues lost ones again.
func (r *Replica) forwardAll() {
	f := &r.forwarded
	if len(f.sent) > 0 && r.now.Elapsed(f.looked) >= TickInterval {
		f.looked = r.now
		r.forwardAgain()
	}
	if len(f.unsent) == 0 || r.leader == 0 || r.leading || r.halted {
		return
	}
	m := Message{To: r.leader}
	ids := 0
	for _, number := range f.unsent {
		s := f.sent[number]
		if s == nil {
			continue
		}
		s.queued, s.at = false, r.now
		if ids > 0 && ids+len(s.left) > maxForwardedIDs {
			r.sendMessage(m, forever)
			m.Renewals, ids = nil, 0
		}
		m.Renewals = append(m.Renewals, message.ForwardedRenewal{Number: number, Leases: slices.Clone(s.left), User: s.user})
		ids += len(s.left)
	}
	f.unsent = nil
	if len(m.Renewals) > 0 {
		r.sendMessage(m, forever)
	}
}

// forwardAgain queues lost renewals again, and refuses those that have waited for too long.
func (r *Replica) forwardAgain() {
	f, gone := &r.forwarded, false
	for _, number := range slices.Sorted(maps.Keys(f.sent)) {
		s := f.sent[number]
		switch {
		case r.now.After(s.until):
			delete(f.sent, number)
			r.refuse(Renewal{ID: s.id, Leases: s.left}, ErrNoLeader)
			gone = true
		case !s.queued && r.now.Elapsed(s.at) >= forwardPatience*TickInterval:
			s.queued, f.unsent = true, append(f.unsent, number)
		}
	}
	if gone {
		f.unsent = slices.DeleteFunc(f.unsent, func(number uint64) bool { return f.sent[number] == nil })
	}
}

// forwardToNext queues all renewals in flight for the next leader. If that is this member, serveForwarded answers
// them.
func (r *Replica) forwardToNext() {
	f := &r.forwarded
	f.unsent = nil
	for _, number := range slices.Sorted(maps.Keys(f.sent)) {
		s := f.sent[number]
		s.queued = true
		f.unsent = append(f.unsent, number)
	}
}

// serveForwarded answers the renewals that were forwarded before this member began to lead.
func (r *Replica) serveForwarded() {
	f := &r.forwarded
	for _, number := range slices.Sorted(maps.Keys(f.sent)) {
		s := f.sent[number]
		delete(f.sent, number)
		r.serve(Renewal{ID: s.id, Leases: s.left, User: s.user})
	}
	f.unsent = nil
}

// renewedByLeader processes the leader's answers.
func (r *Replica) renewedByLeader(answer message.ForwardedRenewed) {
	s := r.forwarded.sent[answer.Number]
	if s == nil {
		return // answered before, or timed out
	}
	header := r.identity
	header.Revision, header.Term = answer.Revision, answer.Term
	e := Renewed{ID: s.id, Header: header, Authority: forever}
	answered := make(map[lessor.ID]RenewedLease, len(answer.Leases))
	for _, lease := range answer.Leases {
		if lease.Err != ErrNoLeader { // otherwise the next leader is asked
			answered[lease.ID] = lease
		}
	}
	s.left = slices.DeleteFunc(s.left, func(id lessor.ID) bool {
		lease, ok := answered[id]
		if ok {
			e.Leases = append(e.Leases, lease)
		}
		return ok
	})
	if len(s.left) == 0 {
		delete(r.forwarded.sent, answer.Number)
	}
	if len(e.Leases) > 0 {
		r.emitAnswer(e)
	}
}

// renewForOther processes a renewal that a follower has forwarded.
func (r *Replica) renewForOther(member uint64, renewal message.ForwardedRenewal) {
	f := &r.forwarded
	if len(renewal.Leases) == 0 {
		return
	}
	f.sequence++
	id := otherIDs | f.sequence
	e := Renewal{ID: id, Leases: renewal.Leases, User: renewal.User}
	f.came[id] = origin{member, renewal.Number, len(renewal.Leases)}
	switch {
	case !r.serving && !r.leading:
		r.refuse(e, ErrNoLeader)
	case len(f.came) > maxForwarded:
		r.refuse(e, ErrTooManyRequests)
	default:
		r.question(e) // a leader that does not serve yet will do so in a moment
	}
}

// emitAnswer hands out an answer. The answer to another member's renewal goes into a message. This member keeps the
// answers to its own probes.
func (r *Replica) emitAnswer(effect Effect) {
	if r.probed(effect) {
		return
	}
	e, ok := effect.(Renewed)
	if !ok || e.ID < otherIDs {
		r.emit(effect)
		return
	}
	f := &r.forwarded
	from, ok := f.came[e.ID]
	if !ok {
		panic(fmt.Sprintf("replica: renewal %x of another member is answered twice", e.ID))
	}
	if from.left -= len(e.Leases); from.left > 0 {
		f.came[e.ID] = from
	} else {
		delete(f.came, e.ID)
	}
	a := f.answers[from.member]
	if a == nil {
		a = &answers{authority: forever}
		f.answers[from.member] = a
	}
	if e.Authority != forever {
		a.authority = e.Authority // all answers of one Step rest on the same lease, and its newest end counts
	}
	a.renewed = append(a.renewed, message.ForwardedRenewed{
		Number: from.number, Revision: e.Header.Revision, Term: e.Header.Term, Leases: e.Leases,
	})
}

// answerOthers sends the answers of this Step to other members. No message has more ids than a request may have.
func (r *Replica) answerOthers() {
	f := &r.forwarded
	if len(f.answers) == 0 {
		return
	}
	for _, member := range slices.Sorted(maps.Keys(f.answers)) {
		a := f.answers[member]
		m, ids := Message{To: member}, 0
		for _, renewed := range a.renewed {
			if ids > 0 && ids+len(renewed.Leases) > maxForwardedIDs {
				r.sendMessage(m, a.authority)
				m.Renewed, ids = nil, 0
			}
			m.Renewed = append(m.Renewed, renewed)
			ids += len(renewed.Leases)
		}
		r.sendMessage(m, a.authority)
	}
	clear(f.answers)
}
