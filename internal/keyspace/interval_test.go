package keyspace

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestIntervalTreeFindsSameWatchersAsList compares the tree with a list.
func TestIntervalTreeFindsSameWatchersAsList(t *testing.T) {
	bound := rapid.StringOfN(rapid.RuneFrom([]rune("abc\x00")), 1, 3, -1)
	rapid.Check(t, func(t *rapid.T) {
		var tree intervals
		var list []*watcher
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				w := &watcher{in: spanOf([]byte(bound.Draw(t, "key")), []byte(bound.Draw(t, "end")))}
				if !w.in.empty() {
					tree.add(w)
					list = append(list, w)
				}
			},
			"remove": func(t *rapid.T) {
				if len(list) == 0 {
					return
				}
				i := rapid.IntRange(0, len(list)-1).Draw(t, "which")
				tree.remove(list[i])
				list = slices.Delete(list, i, i+1)
			},
			"visit": func(t *rapid.T) {
				key := bound.Draw(t, "key")
				found := make(map[*watcher]int)
				tree.root.visit(key, func(w *watcher) { found[w]++ })
				for _, w := range list {
					want := 0
					if w.in.contains([]byte(key)) {
						want = 1
					}
					if found[w] != want {
						t.Fatalf("%q: %+v visited %d times, want %d", key, w.in, found[w], want)
					}
					delete(found, w)
				}
				if len(found) > 0 {
					t.Fatalf("%q: %d watchers that were removed", key, len(found))
				}
			},
			"": func(t *rapid.T) { checkNode(t, tree.root) },
		})
	})
}

func checkNode(t *rapid.T, n *interval) {
	if n == nil {
		return
	}
	for _, child := range []*interval{n.left, n.right} {
		if child != nil && child.priority > n.priority {
			t.Fatalf("a child is above its parent")
		}
		checkNode(t, child)
	}
	end, unbounded := n.maxEnd, n.maxUnbounded
	if n.update(); n.maxEnd != end || n.maxUnbounded != unbounded {
		t.Fatalf("the greatest end is wrong")
	}
}
