package sqlite

import (
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// older removes the column of marks, as in a file from before there were marks.
func older(t testing.TB, path string) {
	t.Helper()
	run(t, raw(t, path, durable), "ALTER TABLE leasekeeper_lease DROP COLUMN mark")
}

// finished holds a name and completes a tick.
func finished(t testing.TB, c *claim.Client, name string, n int64) {
	t.Helper()
	l, err := c.Claim(t.Context(), claim.Request{Name: name, ID: backend.ID(claim.NewOp()), Holder: backend.Holder{ID: "a"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(t.Context(), l, backend.Finish{Tick: backend.TickNumber(n)}); err != nil {
		t.Fatal(err)
	}
}

// A file from before marks gets their column, and keeps its records.
func TestOldFileGetsMarks(t *testing.T) {
	path := newPath(t)
	first := opened(t, path, Config{})
	r := record("x", 7)
	mustSwap(t, first, claim.Op{}, r)
	older(t, path)
	var all sync.WaitGroup
	for range 8 { // several programs open it at once
		all.Go(func() {
			s, err := Open(t.Context(), path, Config{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.CanMark(); err != nil {
				t.Error(err)
			}
			_ = s.Close(t.Context())
		})
	}
	all.Wait()
	s := opened(t, path, Config{})
	f, err := s.Get(t.Context(), "x")
	if err != nil || f.Record.Op != r.Op || f.Record.Token != 7 || !f.Record.Mark.IsZero() {
		t.Errorf("%+v, %v", f.Record, err)
	}
	c := client(t, path)
	finished(t, c, "y", 3)
	if m, err := c.Mark(t.Context(), "y"); m.Tick != backend.TickNumber(3) || err != nil {
		t.Error(m, err)
	}
}

// Programs from before marks go on using the file. Their statements do not name the column, so marks stay.
func TestMarksSurviveProgramsWithoutThem(t *testing.T) {
	path := newPath(t)
	c := client(t, path)
	finished(t, c, "x", 3)
	db := raw(t, path, durable)
	run(t, db, "UPDATE leasekeeper_lease SET holder = 'old', ttl_ns = 1, token = token + 1, op = ?, recent = '', past = '' WHERE name = 'x'", claim.NewOp().String())
	if m, err := c.Mark(t.Context(), "x"); m.Tick != backend.TickNumber(3) || err != nil {
		t.Error(m, err)
	}
}
