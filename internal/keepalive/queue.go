package keepalive

import "time"

// entry is the place of one slot in the queue. The key is a lower bound of the progress ([Renewer.progress]) at which the
// slot needs attention. If that moment moves later, the key stays; it is corrected when the entry surfaces.
type entry struct {
	key  time.Duration
	slot uint32
}

// before orders all entries, so that the order in which they surface does not depend on how the heap was built.
func (e entry) before(f entry) bool { return e.key < f.key || e.key == f.key && e.slot < f.slot }

// queue is a 4-ary heap. Each slot knows its index: slots[entries[i].slot].index == i.
type queue struct{ entries []entry }

const arity = 4

// push adds an entry for slot s.
func (q *queue) push(slots []slot, s uint32, key time.Duration) {
	q.entries = append(q.entries, entry{key, s})
	slots[s].index = uint32(len(q.entries) - 1)
	q.up(slots, len(q.entries)-1)
}

// remove deletes the entry of slot s.
func (q *queue) remove(slots []slot, s uint32) {
	i, last := int(slots[s].index), len(q.entries)-1
	q.entries[i] = q.entries[last]
	q.entries = q.entries[:last]
	if i < last {
		slots[q.entries[i].slot].index = uint32(i)
		q.fix(slots, i)
	}
}

// rekey changes the key of the entry of slot s.
func (q *queue) rekey(slots []slot, s uint32, key time.Duration) {
	i := int(slots[s].index)
	q.entries[i].key = key
	q.fix(slots, i)
}

// fix moves the entry at i up or down to where its key belongs.
func (q *queue) fix(slots []slot, i int) {
	if !q.up(slots, i) {
		q.down(slots, i)
	}
}

// order restores the heap after any number of keys was changed, in linear time.
func (q *queue) order(slots []slot) {
	if len(q.entries) < 2 {
		return
	}
	for i := (len(q.entries) - 2) / arity; i >= 0; i-- {
		q.down(slots, i)
	}
}

// up moves the entry at i towards the root, and reports whether it moved.
func (q *queue) up(slots []slot, i int) (moved bool) {
	e := q.entries[i]
	for i > 0 {
		parent := (i - 1) / arity
		if !e.before(q.entries[parent]) {
			break
		}
		q.put(slots, i, q.entries[parent])
		i, moved = parent, true
	}
	if moved {
		q.put(slots, i, e)
	}
	return moved
}

// down moves the entry at i away from the root.
func (q *queue) down(slots []slot, i int) {
	e, from := q.entries[i], i
	for {
		first := arity*i + 1
		if first >= len(q.entries) {
			break
		}
		least := first
		for child := first + 1; child < min(first+arity, len(q.entries)); child++ {
			if q.entries[child].before(q.entries[least]) {
				least = child
			}
		}
		if !q.entries[least].before(e) {
			break
		}
		q.put(slots, i, q.entries[least])
		i = least
	}
	if i != from {
		q.put(slots, i, e)
	}
}

// put stores an entry at i, and its index in its slot.
func (q *queue) put(slots []slot, i int, e entry) {
	q.entries[i] = e
	slots[e.slot].index = uint32(i)
}

// upTo appends the slots of the subtree at i whose keys are not past limit. It visits few other entries.
func (q *queue) upTo(limit time.Duration, i int, found []uint32) []uint32 {
	if i >= len(q.entries) || q.entries[i].key > limit {
		return found
	}
	found = append(found, q.entries[i].slot)
	for child := arity*i + 1; child <= arity*i+arity; child++ {
		found = q.upTo(limit, child, found)
	}
	return found
}
