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
	// claims are the leases that a Claim made. Each is in exactly one queue for as long as it lives.
	claims map[lessor.ID]*waiter
	// recovering are the names of stored claims until Complete; an empty name means any.
	recovering map[lessor.ID]string
	// free are the queues without any waiter that are remembered for their past, the longest free first.
	free *list.List
	// recent is a ring of queues whose owner's tenure is in memory. Most names are held for a moment, and reading a
	// stored tenure costs more than storing it.
	recent [rememberedTenures]*queue
	next   int // in recent
	// unbound are keys that look like a waiter's and are none.
	unbound unboundKeys
	// forgotten is the highest token of the forgotten names.
	forgotten int64
	ended     endedClaims

	// Of the changes of keys since the last UpdateOwners.
	touched []*queue
	cards   []freshCard
	left    []*waiter
	orphans []lessor.ID
}

// rememberedTenures is the number of names whose owner's tenure is in memory.
const rememberedTenures = 1 << 12

// queue is one name and its waiters.
type queue struct {
	name string
	// waiters are sorted by create revision; the first is the owner.
	waiters []*waiter
	// barred are waiters that never own the name, likewise sorted: their keys are not newer than the last owner's, so
	// tokens would not grow. Such a key was attached to its lease only later, or created in one revision with another.
	barred []*waiter

	owner   *waiter // as recorded: the first waiter, except between a change of keys and UpdateOwners
	touched bool    // in Registry.touched

	current    *Tenure // the owner's, as stored; nil: not in memory, or no owner
	remembered int     // the newest place in Registry.recent; only meaningful if the queue is there

	ended    uint64 // tenures
	last     int64  // the token of the last that ended
	pinned   *string
	revoked  *string
	revision int64 // of the newest change of the owner or its card
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
}

// freshCard is the value that a waiter's key was just set to.
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

// Reset empties the registry, except for what ended recently.
func (g *Registry) Reset() {
	ended := g.ended
	*g = Registry{}
	g.queues, g.claims, g.recovering = make(map[string]*queue), make(map[lessor.ID]*waiter), make(map[lessor.ID]string)
	g.free, g.ended = list.New(), ended
}

// KeyPut reports that a key was put, with the lease that it is attached to and its create revision. The value stays
// unchanged until UpdateOwners, and if it is a waiter's, longer.
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

// queue returns the queue of a name, and makes one if there is none.
func (g *Registry) queue(name []byte) *queue {
	q := g.queues[string(name)]
	if q == nil {
		q = &queue{name: string(name)}
		g.queues[q.name] = q
	}
	return q
}

// join adds a waiter to a queue, if it is not there yet.
func (g *Registry) join(q *queue, lease lessor.ID, created int64) *waiter {
	w := &waiter{lease: lease, created: created, queue: q}
	into := &q.waiters
	if g.outdated(q, w) {
		into = &q.barred
	}
	g.unfree(q) // now: another name that becomes free in this revision must not push it out
	i, there := slices.BinarySearchFunc(*into, w, byCreated)
	if there {
		return (*into)[i]
	}
	*into = slices.Insert(*into, i, w)
	return w
}

// outdated reports whether the name has, or had, an owner whose token is not lower than the waiter's would be.
func (g *Registry) outdated(q *queue, w *waiter) bool {
	switch {
	case q.owner == nil && q.ended == 0: // the name is new, or was forgotten
		return w.created <= g.forgotten
	case q.owner == nil || byCreated(q.owner, w) == 0:
		return w.created <= q.last
	}
	return w.created <= max(q.last, q.owner.created)
}

// advance makes the first waiter, if there is any, the owner. Waiters of the owner's revision are barred.
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

// fewWaiters is how many waiters move up at no cost worth saving.
const fewWaiters = 8

// leave removes a lease's waiter from a queue, if it is there.
func (g *Registry) leave(q *queue, lease lessor.ID) {
	w := g.find(q, lease)
	if w == nil {
		return
	}
	switch i, there := slices.BinarySearchFunc(q.waiters, w, byCreated); {
	case there && i == 0 && len(q.waiters) > fewWaiters:
		q.waiters[0] = nil // what is cut off in front stays in memory
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

// find returns a lease's waiter in a queue, which may be nil, or nil. In long queues the waiters are claims.
func (g *Registry) find(q *queue, lease lessor.ID) *waiter {
	if q == nil {
		return nil
	}
	if w := g.claims[lease]; w != nil && w.queue == q {
		return w
	}
	for _, w := range slices.Backward(q.waiters) { // a claim that has just joined is the last
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

// before returns how many waiters are ahead of one.
func (q *queue) before(w *waiter) int {
	i, _ := slices.BinarySearchFunc(q.waiters, w, byCreated)
	return i
}

// setFree puts a queue without waiters among those that are remembered for their past.
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

// unfree takes a queue out of those, if it is there.
func (g *Registry) unfree(q *queue) {
	if q.place != nil {
		g.free.Remove(q.place)
		q.place = nil
	}
}

func byFreed(a, b *queue) int {
	return cmp.Or(cmp.Compare(a.freed, b.freed), cmp.Compare(a.freedOrder, b.freedOrder), strings.Compare(a.name, b.name))
}
