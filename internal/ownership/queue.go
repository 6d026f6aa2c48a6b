package ownership

import (
	"cmp"
	"container/list"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// Registry knows who owns each name and who waits for it. [New] makes one. One goroutine at a time may use it.
type Registry struct {
	queues map[string]*queue
	// claims are the waiters whose lease a Claim made. Each is in exactly one queue until its lease ends.
	claims map[lessor.ID]*waiter
	// recovering are the stored claims until Complete.
	recovering map[lessor.ID]ClaimRecord
	// free are the queues without waiters that are kept for their past, in the order in which they became free.
	free *list.List
	// recent is a ring of queues whose owner's tenure is in memory. Most names are held for a short time, and reading
	// a stored tenure costs more than storing it.
	recent [rememberedTenures]*queue
	next   int // index in recent
	// unbound are the leases of keys NAME/LEASE that may be attached to another lease or to none.
	unbound unboundKeys
	// forgotten is the highest token of the forgotten names.
	forgotten int64
	ended     endedClaims

	// The fields below collect the changes of keys since the last UpdateOwners.
	touched []*queue
	cards   []freshCard
	left    []*waiter
	orphans []lessor.ID
}

// rememberedTenures is the number of names with their owner's tenure in memory.
const rememberedTenures = 1 << 12

// queue is one name and its waiters.
type queue struct {
	name string
	// waiters are sorted by create revision; the first is the owner.
	waiters []*waiter
	// barred are waiters that never own the name, sorted in the same way. Their keys are not newer than the last
	// owner's, so the token would not grow. Such a key was attached to its lease after its creation, or was created
	// at the same revision as another.
	barred []*waiter

	owner   *waiter // the first waiter, except between a change of keys and UpdateOwners; nil: no owner
	touched bool    // in Registry.touched

	current    *Tenure // the owner's tenure as stored; nil: not in memory, or no owner
	remembered int     // index in Registry.recent; only meaningful if the queue is there

	ended    uint64 // number of ended tenures
	last     int64  // token of the last ended tenure
	pinned   *string
	revoked  *string
	finished bool  // a Finish ended the owner's tenure; the owner's lease may last for a time
	revision int64 // of the last change of the owner or its card
	// freed and freedOrder say when the name lost its last owner; place is nil unless the queue is in Registry.free.
	freed      int64
	freedOrder uint32
	place      *list.Element
}

// waiter is a key NAME/LEASE that is attached to that very lease.
type waiter struct {
	lease   lessor.ID
	created int64 // the key's create revision
	queue   *queue
	claimed bool // a Claim made the lease

	// The fields below are of claims only.
	priority  int32
	creator   string // the user that claimed it; see [Claim]
	overtaken bool   // it was queued again
	requeued  bool   // it is out of the queue between the deletion of its key and the next put of it
}

// freshCard is a new value of a waiter's key.
type freshCard struct {
	waiter *waiter
	card   []byte
}

// New returns an empty registry.
func New() *Registry {
	g := new(Registry)
	g.Reset()
	return g
}

// Reset empties the registry, except for the recently ended claims.
func (g *Registry) Reset() {
	ended := g.ended
	*g = Registry{}
	g.queues, g.claims, g.recovering = make(map[string]*queue), make(map[lessor.ID]*waiter), make(map[lessor.ID]ClaimRecord)
	g.free, g.ended = list.New(), ended
}

// KeyPut reports that a key was put, its lease and its create revision. value must not change until UpdateOwners; if
// the key is a waiter's, it must never change.
func (g *Registry) KeyPut(key, value []byte, attached lessor.ID, created int64) {
	name, lease, ok := parseKey(key)
	switch {
	case !ok:
	case attached == lease:
		w := g.join(g.queue(name), lease, created)
		g.cards = append(g.cards, freshCard{w, value})
		g.touch(w.queue)
	default:
		g.unbound.add(lease)
		g.leave(g.queues[string(name)], lease)
	}
}

// KeyDeleted reports that a key was deleted, by itself or together with its lease.
func (g *Registry) KeyDeleted(key []byte) {
	if name, lease, ok := parseKey(key); ok {
		g.leave(g.queues[string(name)], lease)
	}
}

// MayHaveUnboundKey reports whether there may be a key NAME/LEASE, of any name, that is not attached to that lease.
func (g *Registry) MayHaveUnboundKey(lease lessor.ID) bool { return g.unbound.mayHave(lease) }

// queue returns the queue of a name, and makes it if there is none.
func (g *Registry) queue(name []byte) *queue {
	q := g.queues[string(name)]
	if q == nil {
		q = &queue{name: string(name)}
		g.queues[q.name] = q
	}
	return q
}

// join adds a waiter to a queue, unless it is there already.
func (g *Registry) join(q *queue, lease lessor.ID, created int64) *waiter {
	w := &waiter{lease: lease, created: created, queue: q}
	if again := g.claims[lease]; again != nil && again.requeued {
		w, again.created, again.requeued = again, created, false
	}
	into := &q.waiters
	if g.outdated(q, w) {
		into = &q.barred
	}
	g.unfree(q) // at once, so that another name that becomes free at this revision does not push it out
	i, there := slices.BinarySearchFunc(*into, w, byCreated)
	if there {
		return (*into)[i]
	}
	*into = slices.Insert(*into, i, w)
	return w
}

// outdated reports whether the name has, or had, an owner whose token is not lower than the waiter's token.
func (g *Registry) outdated(q *queue, w *waiter) bool {
	switch {
	case q.owner == nil && q.ended == 0: // the name is new, or was forgotten
		return w.created <= g.forgotten
	case q.owner == nil || byCreated(q.owner, w) == 0:
		return w.created <= q.last
	}
	return w.created <= max(q.last, q.owner.created)
}

// advance makes the first waiter the owner, if there is one. It bars the other waiters of the owner's revision.
func (q *queue) advance() {
	q.owner = q.head()
	for len(q.waiters) > 1 && q.waiters[1].created == q.owner.created {
		i, _ := slices.BinarySearchFunc(q.barred, q.waiters[1], byCreated)
		q.barred = slices.Insert(q.barred, i, q.waiters[1])
		q.waiters = slices.Delete(q.waiters, 1, 2)
	}
}

func byCreated(a, b *waiter) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.lease, b.lease))
}

// fewWaiters is the number of waiters that are cheap to move.
const fewWaiters = 8

// leave removes a lease's waiter from a queue, if it is there.
func (g *Registry) leave(q *queue, lease lessor.ID) {
	w := g.find(q, lease)
	if w == nil {
		return
	}
	if w.requeued {
		q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == w })
		g.touch(q)
		return
	}
	switch i, there := slices.BinarySearchFunc(q.waiters, w, byCreated); {
	case there && i == 0 && len(q.waiters) > fewWaiters:
		q.waiters[0] = nil // the array keeps its first elements
		q.waiters = q.waiters[1:]
		if len(q.waiters) == fewWaiters {
			q.waiters = slices.Clone(q.waiters) // frees the long queue's memory
		}
	case there:
		q.waiters = slices.Delete(q.waiters, i, i+1)
	default:
		q.barred = slices.DeleteFunc(q.barred, func(other *waiter) bool { return other == w })
	}
	g.cards = slices.DeleteFunc(g.cards, func(f freshCard) bool { return f.waiter == w })
	if w != q.owner {
		g.left = append(g.left, w)
	}
	if w.claimed {
		delete(g.claims, lease)
		g.orphans = append(g.orphans, lease)
	}
	g.touch(q)
}

// touch marks a queue for the next UpdateOwners.
func (g *Registry) touch(q *queue) {
	if !q.touched {
		q.touched = true
		g.touched = append(g.touched, q)
	}
}

// find returns a lease's waiter in a queue, or nil. q may be nil. In long queues most waiters are claims.
func (g *Registry) find(q *queue, lease lessor.ID) *waiter {
	if q == nil {
		return nil
	}
	if w := g.claims[lease]; w != nil && w.queue == q {
		return w
	}
	for _, w := range slices.Backward(q.waiters) { // a new claim is the last
		if w.lease == lease {
			return w
		}
	}
	for _, w := range q.barred {
		if w.lease == lease {
			return w
		}
	}
	return nil
}

// head returns the first waiter, or nil.
func (q *queue) head() *waiter {
	if len(q.waiters) == 0 {
		return nil
	}
	return q.waiters[0]
}

// before returns the number of waiters ahead of w.
func (q *queue) before(w *waiter) int {
	i, _ := slices.BinarySearchFunc(q.waiters, w, byCreated)
	return i
}

// setFree adds a queue without waiters to the free queues.
func (g *Registry) setFree(q *queue) {
	before := g.free.Back()
	for before != nil && byFreed(before.Value.(*queue), q) > 0 {
		before = before.Prev()
	}
	if before == nil {
		q.place = g.free.PushFront(q)
		return
	}
	q.place = g.free.InsertAfter(q, before)
}

// unfree removes a queue from the free queues, if it is there.
func (g *Registry) unfree(q *queue) {
	if q.place != nil {
		g.free.Remove(q.place)
		q.place = nil
	}
}

func byFreed(a, b *queue) int {
	return cmp.Or(cmp.Compare(a.freed, b.freed), cmp.Compare(a.freedOrder, b.freedOrder), strings.Compare(a.name, b.name))
}
