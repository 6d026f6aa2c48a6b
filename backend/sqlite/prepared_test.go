package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// Each statement is prepared once for all callers, and closed with the store; the caller's database stays open.
func TestStatementsArePreparedOnce(t *testing.T) {
	db := raw(t, newPath(t), durable)
	s, err := New(t.Context(), db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	first := mustSwap(t, s, claim.Op{}, record("x", 1))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if f, err := s.Get(t.Context(), "x"); err != nil || f.Record.Op != first.Op {
				t.Errorf("%+v, %v", f, err)
			}
		})
	}
	all.Wait()
	before := len(s.file.prepared.statements)
	for i := range 20 {
		first = mustSwap(t, s, first.Op, record("x", backend.Token(i+2)))
		if _, err := s.Get(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.file.prepared.statements); n != before+1 { // the update
		t.Errorf("%d statements are prepared, and before there were %d", n, before)
	}
	kept, err := s.file.prepared.get(t.Context(), db, s.Owners())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.QueryContext(t.Context(), "default"); err == nil || failureOf(err, true).Kind != backend.ErrClosed {
		t.Errorf("a statement was not closed, or that is not known of it: %v", err)
	}
	if _, err := s.file.Query(t.Context(), "SELECT 1"); !isClosed(err) {
		t.Errorf("after Close: %v", err)
	}
	run(t, db, "DROP TABLE leasekeeper_lease") // nothing holds it
}

// Prepared statements do not lock a database that has a single connection, and survive a changed schema.
func TestPreparedStatementsSurviveASchema(t *testing.T) {
	db := raw(t, newPath(t), durable)
	db.SetMaxOpenConns(1)
	s, err := New(t.Context(), db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	first := mustSwap(t, s, claim.Op{}, record("x", 1))
	run(t, db, "ALTER TABLE leasekeeper_lease ADD COLUMN more TEXT NOT NULL DEFAULT ''")
	mustSwap(t, s, first.Op, record("x", 2))
	if f, err := s.Get(t.Context(), "x"); err != nil || f.Record.Token != 2 {
		t.Errorf("%+v, %v", f, err)
	}
}

// The time to renew many leases grows with their number, and not with its square: for 2 000 the square would
// take seconds.
func TestRenewalOfManyGrowsLinearly(t *testing.T) {
	s := opened(t, newPath(t), Config{})
	const many = 2000
	db := raw(t, s.file.path, "")
	mustSwap(t, s, claim.Op{}, record("0", 1))
	run(t, db, `WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 1999) INSERT INTO leasekeeper_lease
		SELECT ns, n, holder, token, op, incarnation, domain, written_raw, written_boot, expiry_raw, expiry_boot, ttl_ns, card, revoked, since, pins, mark, recent, past
		FROM leasekeeper_lease, i`)
	all, err := s.List(t.Context(), "", "", many)
	if err != nil || len(all) != many {
		t.Fatal(len(all), err)
	}
	swaps := make([]claim.Swap, many)
	for i, f := range all {
		r := f.Record
		r.Op = claim.NewOp()
		swaps[i] = claim.Swap{Old: f.Record.Op, Record: r, Extends: true}
	}
	done, err := s.SwapAll(t.Context(), swaps)
	if err != nil {
		t.Fatal(err)
	}
	for i, ok := range done {
		if !ok {
			t.Fatalf("%d was not done", i)
		}
	}
	plan, err := s.file.Query(t.Context(), "EXPLAIN QUERY PLAN "+batchStatement(s), "default", "[]", "writer")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fmt.Sprint(plan), "(ns=? AND name=?)") || strings.Contains(fmt.Sprint(plan), "SCAN l") {
		t.Errorf("rows are not found by their key: %v", plan)
	}
}

// batchStatement finds the statement that was prepared for many.
func batchStatement(s *Store) string {
	s.file.prepared.mu.Lock()
	defer s.file.prepared.mu.Unlock()
	for text := range s.file.prepared.statements {
		if len(text) > 5 && text[:5] == "WITH " {
			return text
		}
	}
	return ""
}

func isClosed(err error) bool {
	var f *sqlstore.Failure
	return errors.As(err, &f) && f.Kind == backend.ErrClosed
}
