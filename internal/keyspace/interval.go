package keyspace

import "strings"

// intervals finds the watchers of ranges that contain a key. It is a treap ordered by the start of the ranges. Each
// node knows the greatest end in its subtree. Watchers of equal ranges share a node.
type intervals struct {
	root *interval
	seed uint64
}

type interval struct {
	start, end  string // [start, end)
	unbounded   bool   // the range has no end, and end is unused
	watchers    []*watcher
	left, right *interval
	priority    uint64 // ≥ those of left and right

	// maxEnd is the greatest end in this subtree; maxUnbounded is set if a range there has none.
	maxEnd       string
	maxUnbounded bool
}

// compareInterval orders ranges by start, then by end; an unbounded range comes last.
func compareInterval(a, b *interval) int {
	if c := strings.Compare(a.start, b.start); c != 0 {
		return c
	}
	switch {
	case a.unbounded && b.unbounded:
		return 0
	case a.unbounded:
		return 1
	case b.unbounded:
		return -1
	}
	return strings.Compare(a.end, b.end)
}

func intervalOf(in span) *interval {
	return &interval{start: string(in.key), end: string(in.end), unbounded: in.unbounded}
}

// add adds w, whose span must not be a single key.
func (t *intervals) add(w *watcher) {
	n := intervalOf(w.in)
	n.watchers = enlist(nil, w)
	// A hash of a counter is random enough for the balance of the treap.
	t.seed += 0x9E3779B97F4A7C15
	n.priority = t.seed ^ t.seed>>29
	n.priority *= 0xBF58476D1CE4E5B9
	n.priority ^= n.priority >> 32
	t.root = t.root.insert(n)
}

func (n *interval) insert(add *interval) *interval {
	if n == nil {
		add.update()
		return add
	}
	switch c := compareInterval(add, n); {
	case c == 0:
		n.watchers = enlist(n.watchers, add.watchers[0])
		return n
	case c < 0:
		n.left = n.left.insert(add)
		if n.left.priority > n.priority {
			return n.rotateRight()
		}
	default:
		n.right = n.right.insert(add)
		if n.right.priority > n.priority {
			return n.rotateLeft()
		}
	}
	n.update()
	return n
}

func (n *interval) rotateRight() *interval {
	up := n.left
	n.left, up.right = up.right, n
	n.update()
	up.update()
	return up
}

func (n *interval) rotateLeft() *interval {
	up := n.right
	n.right, up.left = up.left, n
	n.update()
	up.update()
	return up
}

// update computes maxEnd and maxUnbounded from the children's.
func (n *interval) update() {
	n.maxEnd, n.maxUnbounded = n.end, n.unbounded
	for _, child := range []*interval{n.left, n.right} {
		if child == nil {
			continue
		}
		n.maxUnbounded = n.maxUnbounded || child.maxUnbounded
		n.maxEnd = max(n.maxEnd, child.maxEnd)
	}
}

// remove removes w.
func (t *intervals) remove(w *watcher) { t.root = t.root.remove(intervalOf(w.in), w) }

func (n *interval) remove(at *interval, w *watcher) *interval {
	if n == nil {
		return nil
	}
	switch c := compareInterval(at, n); {
	case c < 0:
		n.left = n.left.remove(at, w)
	case c > 0:
		n.right = n.right.remove(at, w)
	default:
		if n.watchers = delist(n.watchers, w); len(n.watchers) == 0 {
			return merge(n.left, n.right)
		}
	}
	n.update()
	return n
}

// merge joins two subtrees; all ranges of a sort before all ranges of b.
func merge(a, b *interval) *interval {
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

// visit calls f for the watchers of all ranges that contain key.
func (n *interval) visit(key string, f func(*watcher)) {
	for n != nil && (n.maxUnbounded || key < n.maxEnd) {
		n.left.visit(key, f)
		if key < n.start {
			return // all ranges to the right also start after key
		}
		if n.unbounded || key < n.end {
			for _, w := range n.watchers {
				f(w)
			}
		}
		n = n.right
	}
}

// enlist appends w to one of the hub's unordered lists. Each watcher is in one list and knows its index, so that
// removing one of tens of thousands is fast.
func enlist(list []*watcher, w *watcher) []*watcher {
	w.at = len(list)
	return append(list, w)
}

// delist removes w from its list.
func delist(list []*watcher, w *watcher) []*watcher {
	last := len(list) - 1
	list[w.at] = list[last]
	list[w.at].at = w.at
	list[last] = nil
	return list[:last]
}

// without removes w from an unordered list.
func without(list []*watcher, w *watcher) []*watcher {
	for i := range list {
		if list[i] == w {
			last := len(list) - 1
			list[i], list[last] = list[last], nil
			return list[:last]
		}
	}
	return list
}
