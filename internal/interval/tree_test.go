package interval

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The tree finds the same intervals as a look at each of them, in order, and keeps its shape.
func TestTreeFindsSameIntervalsAsMap(t *testing.T) {
	bound := rapid.StringOfN(rapid.RuneFrom([]rune("abc\x00")), 1, 3, -1)
	rapid.Check(t, func(t *rapid.T) {
		var tree Tree[int]
		model := make(map[Interval]int)
		sorted := func() []Interval { return slices.SortedFunc(maps.Keys(model), Interval.compare) }
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				in := Interval{Start: bound.Draw(t, "start"), Unbounded: rapid.Bool().Draw(t, "unbounded")}
				if !in.Unbounded {
					if in.End = bound.Draw(t, "end"); in.End <= in.Start {
						return
					}
				}
				value := tree.At(in)
				if *value != model[in] {
					t.Fatalf("the value of %+v is %d, want %d", in, *value, model[in])
				}
				next++
				*value, model[in] = next, next
			},
			"remove": func(t *rapid.T) {
				in := Interval{Start: bound.Draw(t, "start"), Unbounded: true}
				if all := sorted(); len(all) > 0 && rapid.Bool().Draw(t, "one that is there") {
					in = rapid.SampledFrom(all).Draw(t, "which")
				}
				tree.Remove(in)
				delete(model, in)
			},
			"visit": func(t *rapid.T) {
				key := bound.Draw(t, "key")
				var found, want []int
				tree.Visit(key, func(v int) { found = append(found, v) })
				for _, in := range sorted() {
					if in.Start <= key && (in.Unbounded || key < in.End) {
						want = append(want, model[in])
					}
				}
				if !slices.Equal(found, want) {
					t.Fatalf("%q is in %v, want %v", key, found, want)
				}
			},
			"": func(t *rapid.T) {
				var found, want []int
				tree.All(func(v int) { found = append(found, v) })
				for _, in := range sorted() {
					want = append(want, model[in])
				}
				if !slices.Equal(found, want) {
					t.Fatalf("there are %v, want %v", found, want)
				}
				checkNode(t, tree.root)
			},
		})
	})
}

func checkNode(t *rapid.T, n *node[int]) {
	if n == nil {
		return
	}
	for _, child := range []*node[int]{n.left, n.right} {
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
