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
	// choreLimit bounds a change of tickets that nobody waits for. If it fails, other processes pass the tickets over.
	choreLimit = 2 * time.Second
	// withoutTicket is for how long a process polls after it could not put a ticket into a queue.
	withoutTicket = time.Second
	// maxBusy bounds of how many names a process remembers that others wait for them.
	maxBusy = 1024
)

// room is this process's part in the queues of a [claim.Queuer]: one ticket for each name that it waits for. One goroutine
// looks at all of them while anybody waits. If the store has no queues, waiters poll instead, and listen to hints.
type storeQueue struct {
	b      *Backend
	store  claim.Queuer // nil if the store is none
	wanted whileWanted

	// What follows is guarded by the lock of the backend.

	queues  claim.Queues             // nil unless they are open
	failed  bool                     // they could not be opened when that was tried last
	tickets map[string]*ticket       // in these queues
	joining map[string]bool          // names for which a ticket is being put
	busy    map[string]clock.Instant // names that this process had to wait for, and until when it assumes that others do
	wake    chan struct{}            // has room for one: there is another ticket to look at
}

// ticket is the ticket of this process in the queue of one name.
type ticket struct {
	name     string
	place    int64
	ahead    int // at the last look
	waiter   queue.Waiter
	turn     bool          // the name is to be claimed
	claiming bool          // it is being claimed
	waited   bool          // it was not its turn at once
	ends     clock.Instant // when the holder's lease is over as far as is known, if knows
	knows    bool
	step     queue.Step
	planned  bool // a look was begun when it was there
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

// run opens the queues, and opens them again when they break. Meanwhile waiters poll.
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

// listen has hints wake those who wait, where there are no queues. It returns when it is worth trying again.
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

// opened has those who wait put tickets. Tickets in queues that were opened earlier count no longer: the goroutine that
// opened those deletes them.
func (r *storeQueue) afterOpen(queues claim.Queues) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.queues, r.failed = queues, false
	clear(r.tickets)
	r.wakeAll()
}

// closed has those who wait poll, unless another goroutine has opened the queues again meanwhile.
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

// wakeAll has all waiters look again. The lock is held.
func (r *storeQueue) wakeAll() {
	for _, q := range r.b.localQueues { // order: all are woken
		if t := q.head(); t != nil {
			t.wake()
		}
	}
}

// plan says how to look at the tickets. It returns false if there is nothing to look for, as in queues that were opened
// again by another goroutine.
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
		case k.step == (queue.Step{}): // a ticket just made: the waiter that made it looks for itself
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
	return look, any
}

// saw takes in what a look has shown.
func (r *storeQueue) applyLook(ctx context.Context, queues claim.Queues, standings []claim.Standing) error {
	for i := range standings {
		if s := &standings[i]; r.isOrphan(s) {
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

// planned returns the names of the tickets that a look at these queues was planned for. One that was put later may be
// missing in it.
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

// is reports whether the process's ticket for a name has that place.
func (r *storeQueue) hasTicketAt(name string, place int64) bool {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.tickets[name] != nil && r.tickets[name].place == place
}

// orphan reports whether a ticket of this process is none that it knows of.
func (r *storeQueue) isOrphan(s *claim.Standing) bool {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	k := r.tickets[s.Name]
	return !r.joining[s.Name] && (k == nil || k.place > s.Place)
}

// see takes in how a ticket in these queues stands. If a ticket before it is to be passed over, it returns the place of
// that. A standing without a place says that the ticket is gone.
func (r *storeQueue) applyStanding(ctx context.Context, queues claim.Queues, s *claim.Standing) (pass int64) {
	v := queue.View{Place: s.Place, Head: s.Head, Ahead: s.Ahead, Write: s.Found.Record.Op, Token: uint64(s.Found.Record.Token), For: s.For}
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

// wakeFirst has the first waiter for a name look again. The lock is held.
func (r *storeQueue) wakeFirst(name string) {
	if q := r.b.localQueues[name]; q != nil && q.head() != nil {
		q.head().wake()
	}
}

// wakeWorker has the goroutine look at another ticket.
func (r *storeQueue) wakeWorker() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// queued is what somebody who waits is to do in the queue.
type queueAction uint8

const (
	pollStore   queueAction = iota // there is no queue, or no ticket could be put: ask now and then
	addTicket                      // put a ticket
	waitForTurn                    // until it is told of its turn
	claimNow                       // it is its turn
)

// prospect says what the first who waits for a name is to do. The lock is held.
func (r *storeQueue) nextAction(q *localQueue, name string, now clock.Instant) queueAction {
	k := r.tickets[name]
	switch {
	case r.queues == nil, k == nil && now.Before(q.pollUntil):
		return pollStore
	case k != nil && k.turn:
		return claimNow
	case k != nil, r.joining[name]:
		return waitForTurn
	}
	return addTicket
}

// usable reports whether this process can wait in queues, so that it leaves names to others who do. The lock is held.
func (r *storeQueue) usable() bool { return r.store != nil && !r.failed }

// crowded reports whether others surely wait for a name. The lock is held.
func (r *storeQueue) contended(name string, now clock.Instant) bool {
	until, ok := r.busy[name]
	if ok && !now.Before(until) {
		delete(r.busy, name)
		ok = false
	}
	return ok && r.usable()
}

// join puts a ticket into the queue of a name, and sees how it stands there.
func (r *storeQueue) join(ctx context.Context, name string) {
	r.b.mu.Lock()
	queues := r.queues
	if queues == nil || r.joining[name] || r.tickets[name] != nil {
		r.b.mu.Unlock()
		return
	}
	r.joining[name] = true
	r.b.mu.Unlock()
	s, err := queues.Join(ctx, name)
	r.b.mu.Lock()
	delete(r.joining, name)
	q := r.b.localQueues[name]
	switch {
	case err != nil && ctx.Err() != nil: // the next who waits puts one
	case err != nil && q != nil:
		q.pollUntil = r.b.clock.Now().Add(withoutTicket)
		q.nextPoll = r.b.clock.Now().Add(about(r.b.poll))
	case err == nil && r.queues == queues && q != nil:
		r.tickets[name] = &ticket{name: name, place: s.Place}
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

// ask notes that a name is being claimed, and reports whether that is because it is this process's turn. The lock is
// held.
func (r *storeQueue) attemptBegins(name string) (turn bool) {
	k := r.tickets[name]
	if k == nil || !k.turn {
		return false
	}
	k.turn, k.claiming = false, true
	return true
}

// asked takes in what became of that. The lock is held.
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
			clear(r.busy) // a claim that does not know tries at once, and is refused
		}
		r.busy[name] = r.b.clock.Now().Add(queue.Busy)
	}
	r.deleteTicket(k, true)
}

// left gives up the ticket of a name that nobody waits for here any longer. The lock is held.
func (r *storeQueue) leave(name string) {
	if k := r.tickets[name]; k != nil {
		r.deleteTicket(k, false)
	}
}

// leaveQueue deletes a ticket, and those before it if this process has claimed the name. Nobody waits for that. The
// lock is held.
func (r *storeQueue) deleteTicket(k *ticket, claimed bool) {
	delete(r.tickets, k.name)
	queues := r.queues
	if queues == nil {
		return
	}
	r.inBackground(func(ctx context.Context) { _ = queues.Leave(ctx, k.name, k.place, claimed) })
}

// chore does something that nobody waits for but Close.
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

// released has this process claim a name that it has given back, if it is at the head of the queue itself. The lock is
// held.
func (r *storeQueue) releasedHere(name string) {
	if k := r.tickets[name]; k != nil && k.ahead == 0 && !k.claiming && k.step.Act == queue.Wait && k.step.Look != 0 {
		k.turn = true
	}
}
