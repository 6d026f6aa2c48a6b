package intake

import (
	"iter"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// The limits of the length of the queue when a client's command joins it. Commands that make work for later are refused
// first: every granted lease will be renewed. Commands of the member's own are never refused, and a renewal as such never
// waits in the queue.
const (
	// MaxQueue bounds the commands that wait to be proposed.
	MaxQueue = 1 << 14
	// MaxQueueForWrites is the bound for commands that add to the state.
	MaxQueueForWrites = MaxQueue / 4 * 3
	// MaxQueueForGrants is the bound for grants and claims.
	MaxQueueForGrants = MaxQueue / 2
	// MaxBytes is the size from which on both queues are full, however few commands are in them.
	MaxBytes = 64 << 20
)

// MaxEntryBytes and MaxEntryWeight bound the short commands of one log entry, which holds at least one command.
const (
	MaxEntryBytes  = 1 << 20
	MaxEntryWeight = 1 << 12
)

// maxSpareQueues is how many proposals are usually in flight at a time.
const maxSpareQueues = 4

// Pending is a command on its way into the log and through it.
type Pending struct {
	ID uint64 // of the request; 0 for a command of the member's own
	entry.Prepared
	weight int            // how much there is to apply; see entry.Weight
	flight *claimInFlight // of a claim; nil of another command
}

// Queue holds the commands that wait to be proposed, and counts those that are in flight. It is not safe for concurrent
// use.
type Queue struct {
	short      []Pending // in order; len ≤ MaxQueue plus commands of the member's own
	shortBytes int       // of the clients' commands in short
	bulk       bulkQueue
	spares     [][]Pending // empty, to be used again; len ≤ maxSpareQueues
	making     int         // leases that clients' commands in flight make
	expiring   int         // leases that expire by commands in short
	limiter    limiter
	inFlight   inFlight
	users      map[string]int // the clients' commands in short that each user has sent; only users that have some
}

// New returns an empty queue.
func New() *Queue {
	return &Queue{bulk: newBulkQueue(), inFlight: newInFlight(), users: make(map[string]int)}
}

// Prepare encodes a command, which is final from then on. id is that of the request; 0 for a command of the member's own. by
// is the user on whose behalf it is applied.
func (q *Queue) Prepare(id uint64, c entry.Command, by access.Caller) Pending {
	p := Pending{ID: id, Prepared: entry.Prepare(c, by), weight: entry.Weight(c)}
	if claim, ok := c.(ownership.Claim); ok {
		p.flight = q.inFlight.newClaim(claim, by.User)
	}
	return p
}

// Full reports whether the queue refuses a command of a client. The client matters for bulk commands only, and the user for
// short ones only.
func (q *Queue) Full(client string, by access.Caller, c entry.Command) bool {
	switch {
	case q.shortBytes+q.bulk.bytes() >= MaxBytes:
		return true
	case entry.IsBulk(c):
		return q.bulk.full(client, entry.ApproximateBytes(c))
	}
	return len(q.short) >= bound(c) || q.hasShare(by.User)
}

// hasShare reports whether a user has as many short commands in the queue as one user may have: three quarters of what the
// others leave of the bound for grants, and at least one. So a user with a flood of commands, of any kind, leaves room for
// the grants and claims of others. Commands without a user are not counted here, and so have no such bound.
func (q *Queue) hasShare(user string) bool {
	own := q.users[user]
	left := MaxQueueForGrants - (len(q.short) - own)
	return own >= max(1, left-left/4)
}

// bound returns the length of the queue at which a short command is refused.
func bound(c entry.Command) int {
	switch c.(type) {
	case entry.Grant, ownership.Claim:
		return MaxQueueForGrants
	case entry.Revoke, entry.Compact, keyspace.DeleteRequest, ownership.Release, ownership.Revoke, ownership.Unpin, ownership.Finish:
		return MaxQueue
	}
	return MaxQueueForWrites
}

// Add takes on a command of a client. It is in flight until [Queue.Done]. Clients take turns with bulk commands.
func (q *Queue) Add(now clock.Instant, client string, p Pending) {
	q.count(p, 1)
	if entry.IsBulk(p.Command) {
		q.bulk.add(client, p)
	} else {
		q.short = append(q.short, p)
		q.shortBytes += p.Size
		q.countUser(p, 1)
	}
	q.limiter.clientWrote(now)
}

// AddOwn takes on a command of the member's own. It is never refused.
func (q *Queue) AddOwn(c entry.Command) { q.short = append(q.short, q.Prepare(0, c, access.Caller{})) }

// AddExpiry takes on the end of leases. Callers ask [Queue.MayExpire] first.
func (q *Queue) AddExpiry(now clock.Instant, e entry.Expire) {
	q.AddOwn(e)
	q.expiring += len(e)
	q.limiter.decided(now, len(e))
}

// Len returns the number of commands that wait to be proposed.
func (q *Queue) Len() int { return len(q.short) + q.bulk.length() }

// Short returns the number of short commands that wait to be proposed.
func (q *Queue) Short() int { return len(q.short) }

// Making returns how many leases the clients' commands in flight make, if all of them succeed.
func (q *Queue) Making() int { return q.making }

// Take returns the commands of the next entry: as many short ones as keep the time to apply them short, and a little of
// bulk. The caller hands them to [Queue.Done] when their fate is known.
func (q *Queue) Take(now clock.Instant) []Pending {
	var taken []Pending
	if len(q.short) == 0 {
		taken = q.bulk.take()
	} else {
		taken = q.takeShort(fitting(q.short, MaxEntryBytes, MaxEntryWeight))
		q.shortBytes -= clientBytes(taken)
		for _, p := range taken {
			q.countUser(p, -1)
		}
		if q.bulk.length() > 0 {
			taken = append(taken, q.bulk.take()...)
		}
	}
	expiring, clients := 0, 0
	for _, p := range taken {
		if e, ok := p.Command.(entry.Expire); ok {
			expiring += len(e)
		}
		if p.ID != 0 {
			clients++
		}
	}
	q.expiring -= expiring
	q.limiter.proposed(now, clients)
	return taken
}

// takeShort takes the first n short commands. If those are all, the queue goes on in the memory of a proposal that was
// applied. No two share memory, so memory that is kept for reuse keeps nothing of others alive.
func (q *Queue) takeShort(n int) []Pending {
	if n < len(q.short) {
		taken := slices.Clone(q.short[:n])
		clear(q.short[:n])
		q.short = q.short[n:]
		return taken
	}
	taken := q.short
	q.short = nil
	if last := len(q.spares) - 1; last >= 0 {
		q.short, q.spares = q.spares[last], q.spares[:last]
	}
	return taken
}

// fitting returns how many of the commands fit within bounds: at least one, unless there is none.
func fitting(commands []Pending, maxBytes, maxWeight int) int {
	n, size, weight := 0, 0, 0
	for _, p := range commands {
		size, weight = size+p.Size, weight+p.weight
		if n > 0 && (size > maxBytes || weight > maxWeight) {
			break
		}
		n++
	}
	return n
}

// clientBytes returns how many bytes the clients' commands among these have.
func clientBytes(commands []Pending) int {
	n := 0
	for _, p := range commands {
		if p.ID != 0 {
			n += p.Size
		}
	}
	return n
}

// Remove removes the commands that are unwanted, and returns them: short ones first, in order, and then bulk ones, client
// by client.
func (q *Queue) Remove(unwanted func(entry.Command) bool) (removed []Pending) {
	var kept []Pending
	for _, p := range q.short {
		if unwanted(p.Command) {
			removed = append(removed, p)
			q.countUser(p, -1)
		} else {
			kept = append(kept, p)
		}
	}
	q.short, q.shortBytes = kept, clientBytes(kept)
	return append(removed, q.bulk.removeIf(func(p Pending) bool { return unwanted(p.Command) })...)
}

// Drain empties the queue, and returns its commands: short ones first, in order, and then bulk ones, client by client.
func (q *Queue) Drain() []Pending {
	all := append(q.short, q.bulk.removeIf(func(Pending) bool { return true })...)
	q.short, q.shortBytes, q.expiring = nil, 0, 0
	clear(q.users)
	return all
}

// countUser counts a command among the short ones of its user: by is 1 when it joins the queue, and -1 when it leaves.
func (q *Queue) countUser(p Pending, by int) {
	user := p.Caller.User
	if user == "" { // also of the member's own commands
		return
	}
	if q.users[user] += by; q.users[user] == 0 {
		delete(q.users, user)
	}
}

// Done ends the flight of commands whose fate is known.
func (q *Queue) Done(commands []Pending) {
	for _, p := range commands {
		if p.ID != 0 {
			q.count(p, -1)
		}
	}
}

// count counts a client's command among those in flight: by is 1 when the command is taken on, and -1 when its fate is
// known.
func (q *Queue) count(p Pending, by int) {
	if _, ok := entry.LeaseMade(p.Command); ok {
		q.making += by
	}
	q.inFlight.count(p, by)
}

// Recycle keeps the memory of commands that are answered for reuse.
func (q *Queue) Recycle(commands []Pending) {
	for _, p := range commands {
		q.inFlight.recycle(p)
	}
	if cap(commands) <= maxSpare && len(q.spares) < maxSpareQueues {
		clear(commands)
		q.spares = append(q.spares, commands[:0])
	}
}

// MayExpire reports whether the queue takes on more ends of leases: few enough wait to be proposed, and the rate limiter
// does not hold them up. It looks first at the number, and then at the rate.
func (q *Queue) MayExpire(now clock.Instant) bool {
	return q.HasRoomForExpiries(now) && q.ExpiryDelay(now) <= 0
}

// HasRoomForExpiries reports whether few enough ends of leases wait to be proposed.
func (q *Queue) HasRoomForExpiries(now clock.Instant) bool { return q.expiring < q.limiter.room(now) }

// ExpiryDelay returns for how long the rate limiter still holds up the ends of leases. It is not positive if it does not.
func (q *Queue) ExpiryDelay(now clock.Instant) time.Duration { return q.limiter.delay(now) }

// ExpiriesApplied notes that leases ended in the step at now.
func (q *Queue) ExpiriesApplied(now clock.Instant, leases int) { q.limiter.applied(now, leases) }

// MeasureExpiries measures how long the step took in which leases ended. Now is the beginning of the next step.
func (q *Queue) MeasureExpiries(now clock.Instant) { q.limiter.measure(now) }

// MeasuresExpiries reports whether the next step should begin at once, so that the time of this one is measured.
func (q *Queue) MeasuresExpiries() bool { return q.limiter.measuring() }

// Prepared yields commands for the log entry that is to have them.
func Prepared(commands []Pending) iter.Seq[*entry.Prepared] {
	return func(yield func(*entry.Prepared) bool) {
		for i := range commands {
			if !yield(&commands[i].Prepared) {
				return
			}
		}
	}
}
