//go:build unix

package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// explained returns a pool whose connections send the plan of each statement that they execute.
func explained(t *testing.T, database string, p *databases.Plans, settings string) *pgxpool.Pool {
	t.Helper()
	return pool(t, database, func(c *pgxpool.Config) {
		c.MaxConns = 2
		p.Explain(c, settings)
	})
}

// One statement extends many leases. The server chooses from statistics, which may be old or missing, how to join the
// statement's arrays with the table. Whatever it chooses, the work must grow with the number of leases, not with its
// square. Otherwise a keeper of many leases loses all of them when the choice changes.
func TestWorkOfABatchGrowsWithItsSize(t *testing.T) {
	const leases = 1500
	for _, planner := range []string{"force_custom_plan", "force_generic_plan"} {
		for name, statistics := range map[string][2]string{ // statements before the leases exist, and after
			"none":         {"", ""},
			"of no leases": {"ANALYZE leasekeeper_lease; VACUUM leasekeeper_lease", ""},
			"of all":       {"", "ANALYZE leasekeeper_lease"},
			"of one name":  {"", "UPDATE pg_class SET reltuples = 1, relpages = 1 WHERE relname = 'leasekeeper_lease'"},
		} {
			t.Run(planner+", statistics "+name, func(t *testing.T) {
				database := databases.PostgreSQL(t).Database(t)
				p := &databases.Plans{}
				s, err := New(t.Context(), explained(t, database, p, "SET plan_cache_mode = "+planner), Config{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close(context.Background()) })
				execute := func(statements string) {
					for _, one := range strings.Split(statements, "; ") {
						if one != "" {
							run(t, database, one)
						}
					}
				}
				run(t, database, "ALTER TABLE leasekeeper_lease SET (autovacuum_enabled = off)")
				execute(statistics[0])
				swaps := manySwaps(t, s, database, 0)
				for range 8 { // so that the server keeps a plan made for a single lease
					swaps = extend(t, s, swaps)
				}
				swaps = manySwaps(t, s, database, leases)
				execute(statistics[1])
				p.Take()
				swaps = extend(t, s, swaps)
				swaps[0].Record.Written.Raw++ // the swaps differ in more than their names and ops
				extend(t, s, swaps)
				all := p.Take()
				if len(all) < 2 {
					t.Fatalf("%d plans were sent", len(all))
				}
				for _, plan := range all {
					if most := databases.ParsePlan(t, plan).Most(); most > 8*leases {
						t.Errorf("a node read %.0f rows for %d leases:\n%s", most, leases, plan)
					}
				}
			})
		}
	}
}

// extend carries out swaps, and returns the swaps that extend the same leases again.
func extend(t *testing.T, s *Store, swaps []claim.Swap) (next []claim.Swap) {
	t.Helper()
	done, err := s.SwapAll(t.Context(), swaps)
	if err != nil {
		t.Fatal(err)
	}
	for i, ok := range done {
		if !ok {
			t.Fatalf("lease %d was not extended", i)
		}
	}
	for _, w := range swaps {
		next = append(next, following(w.Record))
	}
	return next
}

// following returns a swap that extends the lease of a record.
func following(r claim.Record) claim.Swap {
	old := r.Op
	r.Op[15]++
	return claim.Swap{Old: old, Record: r, Extends: true}
}

// manySwaps adds leases to the first one in the store, and returns swaps that extend all.
func manySwaps(t *testing.T, s *Store, database string, leases int) []claim.Swap {
	t.Helper()
	c, err := claim.NewClient(s, claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if leases == 0 {
		if _, err := c.Claim(t.Context(), request("first", "me", time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	var columns string
	row := pool(t, database, nil).QueryRow(t.Context(), `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'leasekeeper_lease'::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('name', 'op')`)
	if err := row.Scan(&columns); err != nil {
		t.Fatal(err)
	}
	run(t, database, fmt.Sprintf(`INSERT INTO leasekeeper_lease (name, op, %[1]s) SELECT 'held/' || i, gen_random_uuid(), %[1]s
		FROM leasekeeper_lease, generate_series(1, %[2]d) i WHERE name = 'first'`, columns, leases))
	found, err := s.List(t.Context(), "", "", leases+1)
	if err != nil || len(found) != leases+1 {
		t.Fatalf("%d leases, %v", len(found), err)
	}
	var swaps []claim.Swap
	for _, f := range found {
		if f.Err != nil {
			t.Fatal(f.Err)
		}
		swaps = append(swaps, following(f.Record))
	}
	return swaps
}
