package lessor

import (
	"math"
	"time"
)

// place is the queue that holds the entry of a lease. On a primary every lease has one entry. Elsewhere no
// lease has an entry.
type place uint8

const (
	nowhere  place = iota // no entry
	onRaw                 // waits for the raw clock
	onBoot                // the raw clock is past; waits for the boot clock
	expiring              // an expiry was handed out, and is neither applied nor dropped
)

// slot is one queue entry. Its key is a lower bound of the clock reading that the lease waits for: a renewal
// moves only the deadline of the lease. Due corrects the key when the entry is first in its queue.
type slot struct {
	key   int64
	lease *leaseState
}

// before is a total order over the leases of one lessor. So the order of the entries does not depend on how
// the heap was built.
func (s slot) before(t slot) bool {
	switch {
	case s.key != t.key:
		return s.key < t.key
	case s.lease.generation != t.lease.generation:
		return s.lease.generation < t.lease.generation
	}
	return s.lease.id < t.lease.id
}

// queue is a 4-ary heap of slots. Each lease knows the index of its slot: q.slots[i].lease.index == i.
type queue struct {
	place place
	slots []slot
}

// arity is the number of children of a heap node.
const arity = 4

// push adds an entry for l.
func (q *queue) push(l *leaseState, key int64) {
	l.place, l.index = q.place, int32(len(q.slots))
	q.slots = append(q.slots, slot{key, l})
	q.up(len(q.slots) - 1)
}

// pushUnordered adds an entry for l without restoring the heap. The caller must call order before any other
// method.
func (q *queue) pushUnordered(l *leaseState, key int64) {
	l.place, l.index = q.place, int32(len(q.slots))
	q.slots = append(q.slots, slot{key, l})
}

// order makes a heap of the slots, in linear time.
func (q *queue) order() {
	if len(q.slots) < 2 {
		return
	}
	for i := (len(q.slots) - 2) / arity; i >= 0; i-- {
		q.down(i)
	}
}

// remove removes the entry of l. It panics if l has no entry in q.
func (q *queue) remove(l *leaseState) {
	i, last := int(l.index), len(q.slots)-1
	if l.place != q.place || i > last || q.slots[i].lease != l {
		panic("lessor: broken invariant: a lease is not at its index in its queue")
	}
	q.slots[i] = q.slots[last]
	q.slots[i].lease.index = int32(i)
	q.slots[last] = slot{}
	q.slots = q.slots[:last]
	if i < last {
		q.fix(i)
	}
	l.place, l.index = nowhere, 0
}

// rekey changes the key of the entry at index i, and restores the heap.
func (q *queue) rekey(i int, key int64) {
	q.slots[i].key = key
	q.fix(i)
}

// fix restores the heap after the entry at index i has changed.
func (q *queue) fix(i int) {
	if !q.up(i) {
		q.down(i)
	}
}

// up moves the entry at index i towards the root as far as it belongs.
func (q *queue) up(i int) (moved bool) {
	s := q.slots[i]
	for i > 0 {
		parent := (i - 1) / arity
		if !s.before(q.slots[parent]) {
			break
		}
		q.put(i, q.slots[parent])
		i, moved = parent, true
	}
	q.put(i, s)
	return moved
}

// down moves the entry at index i towards the leaves as far as it belongs.
func (q *queue) down(i int) {
	s := q.slots[i]
	for {
		first := arity*i + 1
		if first >= len(q.slots) {
			break
		}
		least := first
		for child := first + 1; child < min(first+arity, len(q.slots)); child++ {
			if q.slots[child].before(q.slots[least]) {
				least = child
			}
		}
		if !q.slots[least].before(s) {
			break
		}
		q.put(i, q.slots[least])
		i = least
	}
	q.put(i, s)
}

// put stores s at index i and records the index in its lease.
func (q *queue) put(i int, s slot) {
	q.slots[i] = s
	s.lease.index = int32(i)
}

// wait returns how long after now the first entry is due: one nanosecond after its key. It reports false if
// the queue is empty.
func (q *queue) wait(now int64) (time.Duration, bool) {
	if len(q.slots) == 0 {
		return math.MaxInt64, false
	}
	key := q.slots[0].key
	switch left := time.Duration(key) - time.Duration(now); {
	case key < now:
		return 0, true
	case left < 0 || left == math.MaxInt64: // longer than the longest duration
		return math.MaxInt64, true
	default:
		return left + 1, true
	}
}

// forEachBelow calls visit for every entry at or under index i whose key is below limit. It inspects few
// other entries.
func (q *queue) forEachBelow(limit int64, i int, visit func(*leaseState)) {
	if i >= len(q.slots) || q.slots[i].key >= limit {
		return
	}
	visit(q.slots[i].lease)
	for child := arity*i + 1; child <= arity*i+arity; child++ {
		q.forEachBelow(limit, child, visit)
	}
}

// reset removes all entries. It keeps the memory of the slots: a demoted primary may become primary again.
func (q *queue) reset() {
	clear(q.slots)
	q.slots = q.slots[:0]
}
