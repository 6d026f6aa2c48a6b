package claimed

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/backoff"
	"github.com/leasekeeper/leasekeeper/internal/queue"
)

const (
	// choreLimit bounds a change of tickets in the background. If it fails, other processes pass the tickets
	// over.
	choreLimit = 2 * time.Second
	// withoutTicket is how long a process polls after it could not add a ticket to a queue.
	withoutTicket = time.Second
	// maxBusy bounds for how many names a process remembers that others wait for them.
	maxBusy = 1024
)

// storeQueue is this process's part in the queues of a [claim.Queuer]: one ticket for each name for which it
// waits. One goroutine looks at all of them while any caller waits. If the store has no queues, waiters poll
// instead, and listen to hints.
type storeQueue struct {
	b      *Backend
	store  claim.Queuer // nil if the store has no queues
	wanted whileWanted

	// The lock of the backend guards the fields below.

	queues  claim.Queues             // nil unless they are open
	failed  bool                     // the last attempt to open them has failed
	tickets map[string]*ticket       // in these queues
	joining map[string]bool          // names for which a ticket is being added
	busy    map[string]clock.Instant // names for which this process had to wait, and until when it assumes that others do
	wake    chan struct{}            // has room for one: there is another ticket to look at
}

// ticket is the ticket of this process in the queue of one name.
type ticket struct {
	name      string
	priority  backend.Priority
	holder    string // of the waiter for which it was added
	place     int64
	preferred bool // another client has moved it to the front
	ahead     int  // at the last look
	waiter    queue.Waiter
	turn      bool          // the name is to be claimed
	claiming  bool          // an attempt to claim it is under way
	waited    bool          // its turn had not come at once
	ends      clock.Instant // when the holder's lease has expired as far as is known, if knows
	knows     bool
	step      queue.Step
	planned   bool // a look began when the ticket existed
}

func newStoreQueue(b *Backend) *storeQueue {
	r := &storeQueue{b: b, tickets: make(map[string]*ticket), joining: make(map[string]bool), busy: make(map[string]clock.Instant), wake: make(chan struct{}, 1)}
	r.store, _ = b.store.(claim.Queuer)
	r.wanted.calls, r.wanted.run = b.calls, r.run
	return r
}

// want keeps the queues open until the returned function is called.
func (r *storeQueue) want() (enough func()) {
	if r.store == nil {
		return r.b.hints.want()
	}
	return r.wanted.want()
}

// run opens the queues, and opens them again when they fail. Waiters poll meanwhile.
func (r *storeQueue) run(ctx context.Context) {
	for fails := 0; ; fails++ {
		began := time.Now()
		err := r.serve(ctx)
		if ctx.Err() == nil && errors.Is(err, backend.ErrUnsupported) {
			r.listen(ctx)
			fails = 0
		}
		if time.Since(began) > longestRelisten {
			fails = 0
		}
		if !rest(ctx, backoff.Doubled(firstRelisten, longestRelisten, fails)) {
			return
		}
	}
}

// listen lets hints wake waiters while there are no queues. It returns when opening them is worth another
// attempt.
func (r *storeQueue) listen(ctx context.Context) {
	defer r.b.hints.want()()
	_ = rest(ctx, 2*longestRelisten)
}

// serve opens the queues and looks at them until that fails or ctx ends.
func (r *storeQueue) serve(ctx context.Context) error {
	queues, err := r.store.Queues(ctx)
	if err != nil {
		r.afterClose(ctx, nil)
		return err
	}
	defer func() {
		r.afterClose(ctx, queues)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), choreLimit)
		defer cancel()
		queues.Close(ctx)
	}()
	r.afterOpen(queues)
	for {
		look, any := r.planLook(queues)
		if !any {
			select {
			case <-r.wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		standings, err := queues.Look(ctx, look)
		if err != nil {
			return err
		}
		if err := r.applyLook(ctx, queues, standings); err != nil {
			return err
		}
	}
}

// afterOpen makes waiters add tickets. Tickets in queues that were opened earlier no longer count: the
// goroutine that opened those deletes them.
func (r *storeQueue) afterOpen(queues claim.Queues) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.queues, r.failed = queues, false
	clear(r.tickets)
	r.wakeAll()
}

// afterClose makes waiters poll, unless another goroutine has opened the queues again meanwhile.
func (r *storeQueue) afterClose(ctx context.Context, queues claim.Queues) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if r.queues != queues {
		return
	}
	r.queues, r.failed = nil, ctx.Err() == nil
	clear(r.tickets)
	r.wakeAll()
}

// wakeAll makes the heads of all local queues look again. The caller holds the lock.
func (r *storeQueue) wakeAll() {
	for _, q := range r.b.localQueues { // order: all are woken
		if t := q.head(); t != nil {
			t.wake()
		}
	}
}

// planLook says how to look at the tickets. It returns false if there is nothing to look for, as in queues that
// another goroutine has opened again.
func (r *storeQueue) planLook(queues claim.Queues) (look claim.Look, any bool) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if r.queues != queues {
		return claim.Look{}, false
	}
	now := r.b.clock.Now()
	first := true
	for _, k := range r.tickets { // order: the least of all
		k.planned = true
		switch {
		case k.step == (queue.Step{}): // a new ticket: the waiter that added it looks for itself
			continue
		case k.turn, k.claiming:
			look.Known = append(look.Known, k.place)
			continue
		}
		any = true
		long, calm := k.step.Look, k.step.Calm
		if k.ahead == 0 {
			long = min(long, r.b.poll)
		}
		if k.knows && !now.After(k.ends) {
			long = min(long, now.Until(k.ends)+1) // strictly past the end
		}
		if first {
			look.For, look.Calm, first = long, calm, false
		}
		look.For, look.Calm = min(look.For, long), min(look.Calm, calm)
	}
	slices.Sort(look.Known)
	look.Every = r.b.poll
	return look, any
}

// applyLook takes in the result of a look.
func (r *storeQueue) applyLook(ctx context.Context, queues claim.Queues, standings []claim.Standing) error {
	for i := range standings {
		s := &standings[i]
		if s.Preferred {
			r.follow(queues, s)
		} else if r.isOrphan(s) {
			if err := queues.Leave(ctx, s.Name, s.Place, false); err != nil {
				return err
			}
		}
	}
	for _, name := range r.planned(queues) {
		s := &claim.Standing{Name: name}
		if i := slices.IndexFunc(standings, func(s claim.Standing) bool { return s.Name == name && r.hasTicketAt(name, s.Place) }); i >= 0 {
			s = &standings[i]
		}
		if head := r.applyStanding(ctx, queues, s); head != 0 {
			if err := queues.Pass(ctx, name, head); err != nil {
				return err
			}
		}
	}
	return nil
}

// planned returns the names of the tickets for which a look at these queues was planned. Later tickets may be
// missing in its result.
func (r *storeQueue) planned(queues claim.Queues) (names []string) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for name, k := range r.tickets { // order: sorted below
		if r.queues == queues && k.planned && !k.claiming {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// hasTicketAt reports whether the process's ticket for a name has that place.
func (r *storeQueue) hasTicketAt(name string, place int64) bool {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.tickets[name] != nil && r.tickets[name].place == place
}

// follow makes a ticket of this process that was moved to the front the ticket that it knows.
func (r *storeQueue) follow(queues claim.Queues, s *claim.Standing) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if k := r.tickets[s.Name]; k != nil && r.queues == queues && s.Place <= k.place {
		k.place, k.preferred = s.Place, true
	}
}

// isOrphan reports whether a ticket of this process is unknown to it.
func (r *storeQueue) isOrphan(s *claim.Standing) bool {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	k := r.tickets[s.Name]
	return !r.joining[s.Name] && (k == nil || k.place > s.Place)
}

// applyStanding takes in the standing of a ticket in these queues. If a ticket before it has to be passed over,
// it returns that ticket's place. A standing without a place says that the ticket is gone.
func (r *storeQueue) applyStanding(ctx context.Context, queues claim.Queues, s *claim.Standing) (pass int64) {
	v := queue.View{Place: s.Place, Head: s.Head, Ahead: s.Ahead, Write: s.Found.Record.Op, Token: uint64(s.Found.Record.Token), For: s.For, Patience: s.Patience}
	var ends clock.Instant
	knows := false
	if s.Place != 0 {
		v.Free, ends, knows = r.b.client.Assess(ctx, s)
	}
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	k := r.tickets[s.Name]
	if k == nil || r.queues != queues || k.claiming || s.Place != 0 && k.place != s.Place {
		return 0
	}
	k.step = k.waiter.See(b.clock.Now(), v)
	k.ahead, k.ends, k.knows = s.Ahead, ends, knows
	k.waited = k.waited || k.step.Act != queue.Claim
	k.turn = k.step.Act == queue.Claim
	switch k.step.Act {
	case queue.Claim:
		r.wakeFirst(s.Name)
	case queue.Join:
		delete(r.tickets, s.Name)
		r.wakeFirst(s.Name)
	case queue.Pass:
		return k.step.Head
	}
	return 0
}

// wakeFirst makes the head of a name's local queue look again. The caller holds the lock.
func (r *storeQueue) wakeFirst(name string) {
	if q := r.b.localQueues[name]; q != nil && q.head() != nil {
		q.head().wake()
	}
}

// wakeWorker makes the goroutine look at another ticket.
func (r *storeQueue) wakeWorker() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// queueAction is what a waiter has to do about the store's queue.
type queueAction uint8

const (
	pollStore   queueAction = iota // there is no queue, or no ticket could be added: ask at the poll interval
	addTicket                      // add a ticket
	waitForTurn                    // until its turn has come
	claimNow                       // its turn has come
)

// nextAction returns what the head of a name's local queue has to do. The caller holds the lock.
func (r *storeQueue) nextAction(q *localQueue, t *tenure, now clock.Instant) queueAction {
	name := t.request.Name
	k := r.tickets[name]
	switch {
	case r.queues == nil, k == nil && now.Before(q.pollUntil):
		return pollStore
	case k != nil && k.turn:
		return claimNow
	case k != nil && k.priority != t.request.Priority && !k.claiming && !k.preferred:
		return addTicket
	case k != nil, r.joining[name]:
		return waitForTurn
	}
	return addTicket
}

// usable reports whether this process can wait in the store's queues. It then leaves names to other processes
// that wait in them. The caller holds the lock.
func (r *storeQueue) usable() bool { return r.store != nil && !r.failed }

// contended reports whether other processes certainly wait for a name. The caller holds the lock.
func (r *storeQueue) contended(name string, now clock.Instant) bool {
	until, ok := r.busy[name]
	if ok && !now.Before(until) {
		delete(r.busy, name)
		ok = false
	}
	return ok && r.usable()
}

// join adds a ticket to the queue of a waiter's name, and takes in its standing. A ticket with another priority is deleted first.
func (r *storeQueue) join(ctx context.Context, q *backend.Claim) {
	name := q.Name
	r.b.mu.Lock()
	queues, old := r.queues, r.tickets[name]
	if queues == nil || r.joining[name] || old != nil && (old.priority == q.Priority || old.turn || old.claiming || old.preferred) {
		r.b.mu.Unlock()
		return
	}
	r.joining[name] = true
	delete(r.tickets, name)
	r.b.mu.Unlock()
	if old != nil {
		_ = queues.Leave(ctx, name, old.place, false) // a ticket that is left is passed over
	}
	s, err := joinWith(ctx, queues, name, claim.Ticket{Priority: q.Priority, Holder: q.Holder.ID, Every: r.b.poll})
	r.b.mu.Lock()
	delete(r.joining, name)
	local := r.b.localQueues[name]
	switch {
	case err != nil && ctx.Err() != nil: // the next waiter adds one
	case err != nil && local != nil:
		local.pollUntil = r.b.clock.Now().Add(withoutTicket)
		local.nextPoll = r.b.clock.Now().Add(about(r.b.poll))
	case err == nil && r.queues == queues && local != nil:
		r.tickets[name] = &ticket{name: name, priority: q.Priority, holder: q.Holder.ID, place: s.Place}
	case err == nil:
		r.inBackground(func(ctx context.Context) { _ = queues.Leave(ctx, name, s.Place, false) })
	}
	r.wakeFirst(name)
	r.b.mu.Unlock()
	if err == nil {
		r.applyStanding(ctx, queues, &s)
		r.wakeWorker()
	}
}

// joinWith adds a ticket. Where queues have no priorities, all claims have the priority 0.
func joinWith(ctx context.Context, queues claim.Queues, name string, t claim.Ticket) (claim.Standing, error) {
	if ranked, ok := queues.(claim.PriorityQueues); ok {
		return ranked.JoinWith(ctx, name, t)
	}
	return queues.Join(ctx, name)
}

// prioritizes reports whether the store orders waiters by priority.
func (r *storeQueue) prioritizes() bool {
	q, ok := r.store.(claim.PriorityQueuer)
	return ok && q.Prioritizes()
}

// attemptBegins notes that a name is being claimed. It reports whether the reason is that this process's turn
// has come. The caller holds the lock.
func (r *storeQueue) attemptBegins(name string) (turn bool) {
	k := r.tickets[name]
	if k == nil || !k.turn {
		return false
	}
	k.turn, k.claiming = false, true
	return true
}

// attemptEnded takes in the result of that. The caller holds the lock.
func (r *storeQueue) attemptEnded(name string, holds bool) {
	k := r.tickets[name]
	if k == nil {
		return
	}
	k.claiming = false
	if !holds {
		r.wakeWorker()
		return
	}
	if k.waited {
		if len(r.busy) >= maxBusy {
			clear(r.busy) // a claim without this knowledge tries at once, and is refused
		}
		r.busy[name] = r.b.clock.Now().Add(queue.Busy)
	}
	r.deleteTicket(k, true)
}

// leave deletes the ticket of a name for which no caller waits here. The caller holds the lock.
func (r *storeQueue) leave(name string) {
	if k := r.tickets[name]; k != nil {
		r.deleteTicket(k, false)
	}
}

// deleteTicket deletes a ticket, and those before it if this process has claimed the name. It works in the
// background. The caller holds the lock.
func (r *storeQueue) deleteTicket(k *ticket, claimed bool) {
	delete(r.tickets, k.name)
	queues := r.queues
	if queues == nil {
		return
	}
	r.inBackground(func(ctx context.Context) { _ = queues.Leave(ctx, k.name, k.place, claimed) })
}

// inBackground runs do on a goroutine for which only Close waits.
func (r *storeQueue) inBackground(do func(ctx context.Context)) {
	ctx, end, err := r.b.calls.begin(context.Background())
	if err != nil {
		return // closing the queues deletes all tickets
	}
	go func() {
		defer end()
		ctx, cancel := context.WithTimeout(ctx, choreLimit)
		defer cancel()
		do(ctx)
	}()
}

// releasedHere makes this process claim a name that it has released, if it is itself at the head of the queue.
// The caller holds the lock.
func (r *storeQueue) releasedHere(name string) {
	if k := r.tickets[name]; k != nil && k.ahead == 0 && !k.claiming && k.step.Act == queue.Wait && k.step.Look != 0 {
		k.turn = true
	}
}
