package lessor

import (
	"slices"
	"strings"
)

// node binds one key to one lease. The nodes of a lease form a doubly linked list. So a lease without items
// needs no memory for them, and a key detaches in constant time.
type node struct {
	key        string
	owner      *leaseState
	prev, next *node // in the owner's list
}

// Attach binds items to a lease. It moves an item that was attached to another lease. If it returns
// ErrNotFound, nothing has changed.
func (l *Lessor) Attach(id ID, items []Item) error {
	le, ok := l.leases[id]
	if !ok {
		return ErrNotFound
	}
	for _, item := range items {
		switch n := l.items[item.Key]; {
		case n == nil:
			n = &node{key: item.Key}
			l.items[item.Key] = n
			n.link(le)
		case n.owner != le:
			n.unlink()
			n.link(le)
		}
	}
	return nil
}

// Detach undoes Attach. It ignores items that are not attached to this lease.
func (l *Lessor) Detach(id ID, items []Item) error {
	le, ok := l.leases[id]
	if !ok {
		return ErrNotFound
	}
	for _, item := range items {
		if n := l.items[item.Key]; n != nil && n.owner == le {
			n.unlink()
			delete(l.items, item.Key)
		}
	}
	return nil
}

// GetLease returns the id of the lease that an item is attached to, or [NoLease].
func (l *Lessor) GetLease(item Item) ID {
	if n := l.items[item.Key]; n != nil {
		return n.owner.id
	}
	return NoLease
}

// Attached returns the number of items that are attached to any lease.
func (l *Lessor) Attached() int { return len(l.items) }

// Items returns the items of a lease, sorted by key. It returns nil if there is no such lease.
func (l *Lessor) Items(id ID) []Item {
	le, ok := l.leases[id]
	if !ok {
		return nil
	}
	return le.sortedItems()
}

// sortedItems returns the items of a lease, sorted by key; nil if there are none.
func (le *leaseState) sortedItems() []Item {
	if le.first == nil {
		return nil
	}
	return le.appendItems(make([]Item, 0, le.count))
}

// appendItems appends the items of a lease to an empty slice, and sorts them by key.
func (le *leaseState) appendItems(items []Item) []Item {
	for n := le.first; n != nil; n = n.next {
		items = append(items, Item{n.key})
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Key, b.Key) })
	return items
}

// detachAll detaches all items of an ending lease, and returns them sorted. The RangeDeleter may end another
// lease while it deletes these items. So detachAll takes the buffer out of the lessor until recycle returns
// it.
func (l *Lessor) detachAll(le *leaseState) []Item {
	items := l.itemBuffer
	l.itemBuffer = nil
	if int(le.count) > cap(items) {
		items = make([]Item, 0, le.count)
	}
	items = le.appendItems(items)
	for _, item := range items {
		delete(l.items, item.Key)
	}
	le.first, le.count = nil, 0
	return items
}

// recycle keeps the memory of deleted items for the next lease that ends. It clears the items, because keys
// can be long.
func (l *Lessor) recycle(items []Item) {
	if cap(items) <= maxItemBuffer {
		clear(items)
		l.itemBuffer = items[:0]
	}
}

// maxItemBuffer is the largest buffer that recycle keeps, in items. Most leases have one item.
const maxItemBuffer = 64

// link adds n to the items of le.
func (n *node) link(le *leaseState) {
	n.owner, n.prev, n.next = le, nil, le.first
	if n.next != nil {
		n.next.prev = n
	}
	le.first = n
	le.count++
}

// unlink removes n from the items of its owner.
func (n *node) unlink() {
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		n.owner.first = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	}
	n.owner.count--
	n.owner, n.prev, n.next = nil, nil, nil
}
