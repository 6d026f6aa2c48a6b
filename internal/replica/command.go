package replica

import (
	"fmt"
	"maps"
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// maxOrdinal is the place in an entry after every command.
const maxOrdinal = 1<<16 - 1

// fail answers commands that were certainly not logged, or whose outcome this member cannot learn.
func (r *Replica) fail(commands []intake.Pending, reason error) {
	r.intake.Done(commands)
	for _, p := range commands {
		if p.ID == 0 {
			r.decideAgain(p.Command)
			continue
		}
		r.emit(Reply{ID: p.ID, Err: reason, Authority: forever})
		for _, id := range p.Duplicates() {
			r.emit(Reply{ID: id, Err: reason, Authority: forever})
		}
	}
}

// decideAgain lets the member decide again about a command of its own that was not logged.
func (r *Replica) decideAgain(c entry.Command) {
	switch c := c.(type) {
	case entry.Expire:
		r.lessor.ExpiryDropped(c)
	case entry.Checkpoint:
		r.lessor.CheckpointsDropped(c.Quiet)
		r.lessor.ClearsDropped(c.Cleared)
	case entry.Compact:
		r.history.proposed = 0
	default:
		panic(fmt.Sprintf("replica: a member does not propose %T by itself", c))
	}
}

// onRequest takes on a client's command. The name of the client matters only if the command is bulk.
func (r *Replica) onRequest(client string, e Request) {
	if !r.leading && !r.soleVoter() || r.left {
		r.emit(Reply{ID: e.ID, Err: r.notLeader(), Authority: forever})
		return
	}
	err := r.admit(client, e)
	if err == nil {
		err = r.checkGate(e.Command)
	}
	if err != nil {
		r.emit(Reply{ID: e.ID, Err: err, Authority: forever})
		return
	}
	e.Caller = audit.Actor(e.Caller, e.Command, r.audits(), r.policy().Enabled())
	if r.policy().Enabled() && r.deny(e, r.permitted) {
		return
	}
	claim, isClaim := e.Command.(ownership.Claim)
	if isClaim && (r.joinClaim(e.ID, claim, e.Caller.User) || r.answerClaim(e.ID, claim)) {
		return
	}
	if r.policy().Enabled() && r.deny(e, r.exhausted) {
		return
	}
	p := r.intake.Prepare(e.ID, e.Command, e.Caller)
	if p.Size > r.maxCommandBytes() {
		r.emit(Reply{ID: e.ID, Err: ErrTooLarge, Authority: forever})
		return
	}
	r.intake.Add(r.now, client, p)
}

// checkGate returns an error if another member may be unable to apply a command. [ErrTooNew] is definite, so a leader
// does not give it in its first moments: the log may still have such a command for it to apply, and other members that
// it has not heard yet may be about to say what they understand.
func (r *Replica) checkGate(c entry.Command) error {
	switch {
	case r.gates.Open(entry.Gate(c), r.others):
		return nil
	case !r.serving, r.gates.Unheard(r.others) && !r.now.After(r.served.Add(r.cfg.ReadTimeout)):
		return ErrNoLeader
	}
	return ErrTooNew
}

// joinClaim lets a repeated claim wait for the answer of the first, if that is in flight. It reports whether that is so.
func (r *Replica) joinClaim(request uint64, claim ownership.Claim, user string) bool {
	joined, full := r.intake.Join(request, claim, user)
	if full {
		r.emit(Reply{ID: request, Err: ErrTooManyRequests, Authority: forever})
	}
	return joined || full
}

// parked is a question that waits until this member serves or has applied enough.
type parked struct {
	event Event
	until clock.Instant
	index uint64 // the entry that must be applied before the answer
}

// question processes a Renewal, a Read or an Inspection. Only a leader answers them. A follower forwards renewals and
// asks the leader about reads; it refuses inspections and names the leader.
func (r *Replica) question(event Event) {
	if r.serving {
		r.serve(event)
		return
	}
	if r.left {
		r.refuse(event, ErrNoLeader)
		return
	}
	if r.soleVoter() || r.leading {
		r.park(event)
		return
	}
	switch e := event.(type) {
	case Renewal:
		r.forward(e)
	case Read:
		r.confirmLater(ReadAt{ID: e.ID})
	case Inspection:
		r.refuse(event, r.notLeader())
	}
}

// park keeps a question until the member serves.
func (r *Replica) park(event Event) {
	if len(r.parked) < intake.MaxQueue {
		r.parked = append(r.parked, parked{event: event, until: r.now.Add(r.cfg.ReadTimeout)})
		return
	}
	r.refuse(event, ErrTooManyRequests)
}

// behind reports whether entries up to index are committed and not yet applied here. Other members may have applied
// them and shown their changes, so an answer must not come from an older state. A cluster's only member shows nothing
// before it has applied it.
func (r *Replica) behind() (index uint64, yes bool) {
	if r.alone() {
		return 0, false
	}
	index = r.raft.BasicStatus().HardState.GetCommit()
	return index, r.applied.Index < index
}

// answerLagging answers the questions that waited until this member's state was new enough.
func (r *Replica) answerLagging() {
	for len(r.lagging) > 0 && r.lagging[0].index <= r.applied.Index {
		p := r.lagging[0]
		r.lagging = r.lagging[1:]
		r.serveNow(p.event)
	}
}

// timeOutParked refuses questions that have waited for too long, or that wait for a member that does not lead. The
// only member of a cluster leads sooner or later, so its questions wait.
func (r *Replica) timeOutParked() {
	if r.soleVoter() {
		return
	}
	r.parked = r.timeOut(r.parked)
	r.lagging = r.timeOut(r.lagging)
}

func (r *Replica) timeOut(list []parked) []parked {
	for len(list) > 0 && (!r.leading || r.now.After(list[0].until)) {
		r.refuse(list[0].event, ErrNoLeader)
		list = list[1:]
	}
	return list
}

// serveWaitingReads answers the reads for which this member would have asked a leader before it became one.
func (r *Replica) serveWaitingReads() {
	questions := r.confirming.waiting
	r.confirming.waiting = nil
	for _, q := range questions {
		r.serve(Read{ID: q.effect.(ReadAt).ID})
	}
}

// leaderChanged resubmits the requests in flight to the next leader.
func (r *Replica) leaderChanged() {
	r.resubmit()
	r.forwardToNext()
	if r.leader == 0 {
		r.awaitElection()
	}
}

func (r *Replica) refuse(event Event, reason error) {
	switch e := event.(type) {
	case Renewal:
		leases := make([]RenewedLease, len(e.Leases))
		for i, id := range e.Leases {
			leases[i] = RenewedLease{ID: id, Err: reason}
		}
		r.emitAnswer(Renewed{ID: e.ID, Header: r.Header(), Leases: leases, Authority: forever})
	case Read:
		r.emitAnswer(Reply{ID: e.ID, Err: reason, Authority: forever})
	case Inspection:
		r.emit(Reply{ID: e.ID, Err: reason, Authority: forever})
	}
}

// serve answers a question from memory. The answer rests on this member's authority, which a cluster's only voter
// never loses: see answerWithAuthority.
func (r *Replica) serve(event Event) {
	if index, behind := r.behind(); behind {
		if len(r.lagging) < intake.MaxQueue {
			r.lagging = append(r.lagging, parked{event, r.now.Add(r.cfg.ReadTimeout), index})
		} else {
			r.refuse(event, ErrTooManyRequests)
		}
		return
	}
	r.serveNow(event)
}

// serveNow answers a question. The caller has made sure that the state is as new as it was when the question came.
func (r *Replica) serveNow(event Event) {
	switch e := event.(type) {
	case Renewal:
		r.renew(e)
	case Read:
		r.answerWithAuthority(ReadAt{ID: e.ID, Header: r.Header()})
	case Inspection:
		result, err := r.inspect(e.Query)
		r.answerWithAuthority(Reply{ID: e.ID, Header: r.Header(), Result: result, Err: err})
	}
}

func (r *Replica) inspect(query Query) (Result, error) {
	switch q := query.(type) {
	case TimeToLive:
		return r.inspectLease(q)
	case ListLeases:
		return Ends(r.lessor.Ends()), nil
	case NamesQuery:
		return r.inspectNames(q), nil
	case MembersQuery:
		return Members(r.list().Members()), nil
	case MarksQuery:
		return nil, r.checkGate(ownership.Finish{})
	case PlaceQuery:
		return asResult(r.names.Place(q.Name, q.Lease))
	}
	panic(fmt.Sprintf("replica: unknown query %T", query))
}

func (r *Replica) inspectLease(q TimeToLive) (Result, error) {
	lease, ok := r.lessor.Lookup(q.Lease)
	if !ok {
		return nil, lessor.ErrNotFound
	}
	remaining, err := r.lessor.Remaining(q.Lease, r.now)
	if err != nil {
		return nil, err
	}
	status := LeaseStatus{ID: q.Lease, Granted: lease.TTL, Remaining: remaining}
	if q.Items {
		status.Items = r.lessor.Items(q.Lease)
	}
	return status, nil
}

// renew moves deadlines in memory. An id whose fate is being decided waits for the decision; the other ids do not
// wait for it.
func (r *Replica) renew(e Renewal) {
	answered := make([]RenewedLease, 0, len(e.Leases))
	for _, id := range e.Leases {
		if lease, decided := r.tryRenew(e.ID, id, e.User); decided {
			answered = append(answered, lease)
		}
	}
	if len(answered) > 0 {
		r.answerWithAuthority(Renewed{ID: e.ID, Header: r.Header(), Leases: answered})
	}
}

func (r *Replica) tryRenew(request uint64, id lessor.ID, user string) (lease RenewedLease, decided bool) {
	if err := r.mayRenew(user, id); err != nil {
		return RenewedLease{ID: id, Err: err}, true
	}
	ttl, err := r.lessor.Renew(id, r.now)
	switch err {
	case nil:
		r.counts.Renewed++
		return RenewedLease{ID: id, TTL: ttl}, true
	case lessor.ErrNotFound, lessor.ErrRenewalRefused:
		return RenewedLease{ID: id, Err: r.whyNot(id, err)}, true
	case lessor.ErrClearing, lessor.ErrEnding:
		if r.waiters >= maxWaiters {
			return RenewedLease{ID: id, Err: ErrTooManyRequests}, true
		}
		granted, _ := r.lessor.Lookup(id)
		r.waiting[id] = append(r.waiting[id], waiter{request, granted.Generation, user})
		r.waiters++
		return RenewedLease{}, false
	}
	return RenewedLease{ID: id, Err: ErrNoLeader}, true
}

// waiter is a renewal that waits for a decision about a lease.
type waiter struct {
	request uint64
	// generation is that of the lease to be renewed. If the id has another generation by now, that lease has ended.
	generation lessor.Generation
	user       string // on whose behalf
}

// settle repeats the renewals that waited for a decision about these leases.
func (r *Replica) settle(ids []lessor.ID) {
	if len(r.waiting) == 0 {
		return
	}
	var order []uint64
	answers := make(map[uint64][]RenewedLease)
	for _, id := range ids {
		waiters := r.waiting[id]
		delete(r.waiting, id)
		r.waiters -= len(waiters)
		for _, w := range waiters {
			request := w.request
			lease, decided := RenewedLease{ID: id, Err: lessor.ErrNotFound}, true
			if now, ok := r.lessor.Lookup(id); !ok || now.Generation == w.generation {
				lease, decided = r.tryRenew(request, id, w.user)
			}
			if !decided {
				continue
			}
			if answers[request] == nil {
				order = append(order, request)
			}
			answers[request] = append(answers[request], lease)
		}
	}
	for _, request := range order {
		r.answerWithAuthority(Renewed{ID: request, Header: r.Header(), Leases: answers[request]})
	}
}

// stepDown ends this member's right to answer, and fails the commands in flight. Commands that it proposed may still
// be committed by other members.
func (r *Replica) stepDown() {
	r.serving = false
	r.lessor.Demote()
	for _, sequence := range slices.Sorted(maps.Keys(r.proposals)) {
		r.fail(r.proposals[sequence], ErrUnknownOutcome)
	}
	clear(r.proposals)
	if c := r.changing; c != nil && c.id != 0 {
		r.emit(Reply{ID: c.id, Err: ErrUnknownOutcome, Authority: forever})
	}
	r.changing = nil
	r.fail(r.intake.Drain(), ErrNoLeader)
	for _, id := range sortedIDs(r.waiting) {
		for _, w := range r.waiting[id] {
			r.refuse(Renewal{ID: w.request, Leases: []lessor.ID{id}}, ErrNoLeader)
		}
	}
	clear(r.waiting)
	r.waiters = 0
	for _, p := range r.lagging {
		r.refuse(p.event, ErrNoLeader)
	}
	r.lagging = nil
}
