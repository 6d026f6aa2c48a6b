package interval

import "strings"

// Interval is the keys [Start, End), or all keys from Start on.
type Interval struct {
	Start, End string
	Unbounded  bool // the interval has no end, and End is unused
}

// compare orders intervals by start, then by end; an unbounded interval comes last.
func (i Interval) compare(other Interval) int {
	if c := strings.Compare(i.Start, other.Start); c != 0 {
		return c
	}
	switch {
	case i.Unbounded && other.Unbounded:
		return 0
	case i.Unbounded:
		return 1
	case other.Unbounded:
		return -1
	}
	return strings.Compare(i.End, other.End)
}

// Tree maps intervals to values. It is a treap ordered by the intervals, and each node knows the greatest end in its
// subtree. The zero Tree is empty. One goroutine uses it at a time.
type Tree[V any] struct {
	root *node[V]
	seed uint64
}

type node[V any] struct {
	in          Interval
	value       V
	left, right *node[V]
	priority    uint64 // ≥ those of left and right

	// maxEnd is the greatest end in this subtree; maxUnbounded is set if an interval there has none.
	maxEnd       string
	maxUnbounded bool
}

// At returns the value of an interval, which the caller may change until the next call of a method. An interval that is not
// there is added, with a zero value.
func (t *Tree[V]) At(in Interval) *V {
	for n := t.root; n != nil; {
		switch c := in.compare(n.in); {
		case c == 0:
			return &n.value
		case c < 0:
			n = n.left
		default:
			n = n.right
		}
	}
	add := &node[V]{in: in}
	// A hash of a counter is random enough for the balance of the treap.
	t.seed += 0x9E3779B97F4A7C15
	add.priority = t.seed ^ t.seed>>29
	add.priority *= 0xBF58476D1CE4E5B9
	add.priority ^= add.priority >> 32
	t.root = t.root.insert(add)
	return &add.value
}

// insert adds a node whose interval is not there.
func (n *node[V]) insert(add *node[V]) *node[V] {
	if n == nil {
		add.update()
		return add
	}
	if add.in.compare(n.in) < 0 {
		n.left = n.left.insert(add)
		if n.left.priority > n.priority {
			return n.rotateRight()
		}
	} else {
		n.right = n.right.insert(add)
		if n.right.priority > n.priority {
			return n.rotateLeft()
		}
	}
	n.update()
	return n
}

func (n *node[V]) rotateRight() *node[V] {
	up := n.left
	n.left, up.right = up.right, n
	n.update()
	up.update()
	return up
}

func (n *node[V]) rotateLeft() *node[V] {
	up := n.right
	n.right, up.left = up.left, n
	n.update()
	up.update()
	return up
}

// update computes maxEnd and maxUnbounded from the children's.
func (n *node[V]) update() {
	n.maxEnd, n.maxUnbounded = n.in.End, n.in.Unbounded
	for _, child := range []*node[V]{n.left, n.right} {
		if child == nil {
			continue
		}
		n.maxUnbounded = n.maxUnbounded || child.maxUnbounded
		n.maxEnd = max(n.maxEnd, child.maxEnd)
	}
}

// Remove removes an interval, if it is there.
func (t *Tree[V]) Remove(in Interval) { t.root = t.root.remove(in) }

func (n *node[V]) remove(in Interval) *node[V] {
	if n == nil {
		return nil
	}
	switch c := in.compare(n.in); {
	case c < 0:
		n.left = n.left.remove(in)
	case c > 0:
		n.right = n.right.remove(in)
	default:
		return merge(n.left, n.right)
	}
	n.update()
	return n
}

// merge joins two subtrees; all intervals of a sort before all intervals of b.
func merge[V any](a, b *node[V]) *node[V] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = merge(a.right, b)
		a.update()
		return a
	default:
		b.left = merge(a, b.left)
		b.update()
		return b
	}
}

// Visit calls f with the values of all intervals that contain key, in the order of intervals. f must not change the tree.
func (t *Tree[V]) Visit(key string, f func(V)) { t.root.visit(key, f) }

func (n *node[V]) visit(key string, f func(V)) {
	for n != nil && (n.maxUnbounded || key < n.maxEnd) {
		n.left.visit(key, f)
		if key < n.in.Start {
			return // all intervals to the right also start after key
		}
		if n.in.Unbounded || key < n.in.End {
			f(n.value)
		}
		n = n.right
	}
}

// All calls f with the values of all intervals, in order. f must not change the tree.
func (t *Tree[V]) All(f func(V)) { t.root.all(f) }

func (n *node[V]) all(f func(V)) {
	if n == nil {
		return
	}
	n.left.all(f)
	f(n.value)
	n.right.all(f)
}
