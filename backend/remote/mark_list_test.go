package remote_test

import (
	"slices"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
)

// Marks are listed without a holder of their names, page by page.
func TestMarksAreListedInPages(t *testing.T) {
	s := startStore(t)
	b := openWith(t, remote.Config{Endpoints: []string{s.Addr}})
	prefix := unique("listed") + "/"
	mark := backend.Mark{Tick: backend.TickNumber(7)}
	var want, got []string
	for _, name := range []string{"a", "b", "c"} {
		done, err := b.ReplaceMark(limited(t), prefix+name, backend.Mark{}, mark)
		if err != nil || !done {
			t.Fatal(done, err)
		}
		want = append(want, prefix+name)
	}
	for after := ""; ; {
		page, err := b.ListMarks(limited(t), prefix, after, 2)
		ok(t, err)
		for _, m := range page {
			ok(t, m.Err)
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
	_, err := b.ListMarks(limited(t), "", "", 0)
	is(t, err, backend.ErrInvalid)
}
