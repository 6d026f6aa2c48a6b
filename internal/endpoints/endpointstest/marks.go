package endpointstest

import (
	"slices"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
)

// MarkedBackend is a backend whose marks can be set and listed.
type MarkedBackend interface {
	backend.Marker
	backend.MarkLister
}

// ListMarksInPages fails the test unless marks are listed without a holder of their names, page by page.
func ListMarksInPages(t *testing.T, b MarkedBackend) {
	t.Helper()
	prefix := Unique("listed") + "/"
	mark := backend.Mark{Tick: backend.TickNumber(7)}
	var want, got []string
	for _, name := range []string{"a", "b", "c"} {
		done, err := b.ReplaceMark(Limited(t), prefix+name, backend.Mark{}, mark)
		if err != nil || !done {
			t.Fatal(done, err)
		}
		want = append(want, prefix+name)
	}
	for after := ""; ; {
		page, err := b.ListMarks(Limited(t), prefix, after, 2)
		OK(t, err)
		for _, m := range page {
			OK(t, m.Err)
			if m.Mark != mark {
				t.Errorf("%s has the mark %v", m.Name, m.Mark)
			}
			got = append(got, m.Name)
		}
		if len(page) < 2 {
			break
		}
		after = page[1].Name
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	_, err := b.ListMarks(Limited(t), "", "", 0)
	Is(t, err, backend.ErrInvalid)
}
