package lessor

import (
	"math"
	"time"
)

// place says which queue holds a lease's one entry. On a primary every lease has one, elsewhere none.
type place uint8

const (
	nowhere  place = iota
	onRaw          // waits for the raw clock
	onBoot         // the raw clock is past; waits for the boot clock
	expiring       // put on an expiry that is not decided yet
)

// slot is one entry. The key is a lower bound of the reading it waits for: renewing moves only the lease's
// deadline, and the entry is put right when it surfaces.
type slot struct {
	key   int64
	lease *leaseState
}

// before is a total order over the leases of one lessor, so the order in which entries surface does not
// depend on how the heap was built.
func (s slot) before(t slot) bool {
	switch {
	case s.key != t.key:
		return s.key < t.key
	case s.lease.generation != t.lease.generation:
		return s.lease.generation < t.lease.generation
	}
	return s.lease.id < t.lease.id
}

// queue is a 4-ary heap whose members know their index: q.slots[i].lease.index == i.
type queue struct {
	place place
	slots []slot
}

const arity = 4

func (q *queue) push(l *leaseState, key int64) {
	l.place, l.index = q.place, int32(len(q.slots))
	q.slots = append(q.slots, slot{key, l})
	q.up(len(q.slots) - 1)
}

// pushUnordered is push without the work; order must be called before anything else.
func (q *queue) pushUnordered(l *leaseState, key int64) {
	l.place, l.index = q.place, int32(len(q.slots))
	q.slots = append(q.slots, slot{key, l})
}

// order makes a heap of whatever the slots are, in linear time.
func (q *queue) order() {
	if len(q.slots) < 2 {
		return
	}
	for i := (len(q.slots) - 2) / arity; i >= 0; i-- {
		q.down(i)
	}
}

func (q *queue) remove(l *leaseState) {
	i, last := int(l.index), len(q.slots)-1
	if l.place != q.place || i > last || q.slots[i].lease != l {
		panic("lessor: broken invariant: a lease is not where it says it is queued")
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

// rekey moves the entry at index i to where key belongs.
func (q *queue) rekey(i int, key int64) {
	q.slots[i].key = key
	q.fix(i)
}

func (q *queue) fix(i int) {
	if !q.up(i) {
		q.down(i)
	}
}

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

func (q *queue) put(i int, s slot) {
	q.slots[i] = s
	s.lease.index = int32(i)
}

// wait returns how long after now the first entry surfaces, which it does one nanosecond past its key.
func (q *queue) wait(now int64) (time.Duration, bool) {
	if len(q.slots) == 0 {
		return math.MaxInt64, false
	}
	key := q.slots[0].key
	switch left := time.Duration(key) - time.Duration(now); {
	case key < now:
		return 0, true
	case left < 0 || left == math.MaxInt64: // more than there are durations
		return math.MaxInt64, true
	default:
		return left + 1, true
	}
}

// forEachBelow calls visit for every entry whose key is below limit, and looks at few others.
func (q *queue) forEachBelow(limit int64, i int, visit func(*leaseState)) {
	if i >= len(q.slots) || q.slots[i].key >= limit {
		return
	}
	visit(q.slots[i].lease)
	for child := arity*i + 1; child <= arity*i+arity; child++ {
		q.forEachBelow(limit, child, visit)
	}
}

// reset forgets all entries. The slots' memory is kept: a primary that was demoted may be one again.
func (q *queue) reset() {
	clear(q.slots)
	q.slots = q.slots[:0]
}
