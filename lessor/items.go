package lessor

import (
	"slices"
	"strings"
)

// node binds one key to one lease. The nodes of a lease form a doubly linked list, so that a lease without
// items costs nothing and a key can leave in constant time.
type node struct {
	key        string
	owner      *leaseState
	prev, next *node
}

// Attach binds items to a lease; an item that was attached to another is moved. With ErrNotFound nothing
// has changed.
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

// Detach undoes Attach. Items that are not attached to this lease stay as they are.
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

// GetLease returns the id of the lease an item is attached to, or [NoLease].
func (l *Lessor) GetLease(item Item) ID {
	if n := l.items[item.Key]; n != nil {
		return n.owner.id
	}
	return NoLease
}

// Attached returns how many items are attached to leases.
func (l *Lessor) Attached() int { return len(l.items) }

// Items returns the items of a lease, sorted by key, or nothing if there is no such lease.
func (l *Lessor) Items(id ID) []Item {
	le, ok := l.leases[id]
	if !ok {
		return nil
	}
	return le.sortedItems()
}

func (le *leaseState) sortedItems() []Item {
	if le.first == nil {
		return nil
	}
	return le.appendItems(make([]Item, 0, le.count))
}

// appendItems appends the items of a lease to none, sorted.
func (le *leaseState) appendItems(items []Item) []Item {
	for n := le.first; n != nil; n = n.next {
		items = append(items, Item{n.key})
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Key, b.Key) })
	return items
}

// detachAll empties a lease that is ending. Who deletes the items may end another lease meanwhile, so it has their
// memory for itself until recycle.
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

// recycle keeps the memory of items that are deleted, but not what they were: keys can be long.
func (l *Lessor) recycle(items []Item) {
	if cap(items) <= maxItemBuffer {
		clear(items)
		l.itemBuffer = items[:0]
	}
}

// maxItemBuffer bounds the memory for items that is kept for the next lease that ends: most have one.
const maxItemBuffer = 64

func (n *node) link(le *leaseState) {
	n.owner, n.prev, n.next = le, nil, le.first
	if n.next != nil {
		n.next.prev = n
	}
	le.first = n
	le.count++
}

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
