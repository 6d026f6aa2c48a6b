package survey

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Filter selects the names that a plain loop selects, counts only them, and leaves the survey as it was.
func TestFilterSelectsAsALoopDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		c := Collect(clock.Instant{}, 100)
		var page []backend.Info
		for i := range random.IntN(12) {
			page = append(page, backend.Info{Name: fmt.Sprintf("n%02d", i), Held: random.IntN(2) == 0, Waiting: random.IntN(3) - 1})
		}
		if _, err := c.Add(page, clock.Instant{}); err != nil {
			t.Fatal(err)
		}
		s := c.Finish(clock.Instant{})
		visible := make(map[string]bool)
		for _, i := range page {
			visible[i.Name] = random.IntN(3) > 0
		}
		most := random.IntN(13)
		var want []backend.Info
		truncated := false
		for _, i := range page {
			switch {
			case !visible[i.Name]:
			case len(want) == most:
				truncated = true
			default:
				want = append(want, i)
			}
		}
		expected := Collect(clock.Instant{}, 100)
		if _, err := expected.Add(want, clock.Instant{}); err != nil {
			t.Fatal(err)
		}
		e := expected.Finish(clock.Instant{})
		got := s.Filter(func(name string) bool { return visible[name] }, most)
		if fmt.Sprint(got.Names) != fmt.Sprint(e.Names) || got.Counts != e.Counts || got.Truncated != truncated {
			t.Fatalf("of %v, visible %v, at most %d: got %v %+v, want %v %+v", page, visible, most, got.Names, got.Counts, e.Names, e.Counts)
		}
		for i := range page {
			if s.Names[i].Name != page[i].Name {
				t.Fatalf("the survey has changed: %v", s.Names)
			}
		}
	}
}
