//go:build unix

package sqlstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// newExplained returns a swapper whose database explains each statement that it executes, and a function that returns the
// plans since its last call.
func newExplained(t *testing.T, settings string) (b swapper, plans func() []string) {
	t.Helper()
	config, err := pgxpool.ParseConfig(databases.PostgreSQL(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &databases.Plans{}
	p.Explain(config, settings)
	return newSwapperOn(t, config, Config{}), p.Take
}

// One statement claims and releases several names. The server chooses from statistics, which may be old, missing or wrong,
// how it finds their rows and their tickets. Whatever it chooses, the work must grow with the number of the names in the
// statement, and not with that of the names in the table. Otherwise claims become slower with every name that was ever used.
func TestWorkOfClaimsAndReleasesGrowsWithTheirNumber(t *testing.T) {
	const names = 3_000
	for _, planner := range []string{"force_custom_plan", "force_generic_plan"} {
		for what, statistics := range map[string][2]string{ // statements before the names exist, and after
			"none":         {"", ""},
			"of no names":  {"VACUUM ANALYZE leasekeeper_lease; VACUUM ANALYZE leasekeeper_ticket", ""},
			"of all":       {"", "ANALYZE leasekeeper_lease; ANALYZE leasekeeper_ticket"},
			"of one name":  {"", "UPDATE pg_class SET reltuples = 1, relpages = 1 WHERE relname IN ('leasekeeper_lease', 'leasekeeper_ticket')"},
			"of a billion": {"", "UPDATE pg_class SET reltuples = 1e9, relpages = 1 WHERE relname IN ('leasekeeper_lease', 'leasekeeper_ticket')"},
			"of one queue": {"", "DELETE FROM leasekeeper_ticket WHERE name <> 'queued'; ANALYZE leasekeeper_lease; ANALYZE leasekeeper_ticket"},
		} {
			t.Run(planner+", statistics "+what, func(t *testing.T) {
				b, plans := newExplained(t, "SET plan_cache_mode = "+planner)
				b.script("ALTER TABLE leasekeeper_lease SET (autovacuum_enabled = off); ALTER TABLE leasekeeper_ticket SET (autovacuum_enabled = off)")
				b.script(statistics[0])
				b.script(copiesOf(b, "leasekeeper_lease", names))
				var all []tried
				for i := range maxBatch {
					name := fmt.Sprint("batch/", i)
					if i%2 == 0 {
						all = append(all, tried{name, end(b.made(name, 5, true), nil), true})
						continue
					}
					all = append(all, tried{name, take(b.made(name, 5, false), func(w *claim.Swap) { w.Alone = i%4 == 1 }), true})
				}
				b.script(fmt.Sprintf("INSERT INTO leasekeeper_ticket (ns, name, door) SELECT 'default', CASE WHEN i %% 2 = 0 THEN 'queued' ELSE 'queued/' || i END, 1 FROM generate_series(1, %d) i", 2*names))
				b.script(statistics[1])
				plans()
				b.do(all)
				found := 0
				for _, plan := range plans() {
					top := databases.ParsePlan(t, plan)
					if top.Rows == maxBatch {
						found++
					}
					if most := top.Most(); most > 8*maxBatch {
						t.Errorf("a node read %.0f rows for %d names:\n%s", most, maxBatch, plan)
					}
				}
				if found != 1 {
					t.Errorf("%d plans of the statement for all names", found)
				}
			})
		}
	}
}

// script executes statements, each in a transaction of its own.
func (b swapper) script(statements string) {
	b.Helper()
	for _, one := range strings.Split(statements, ";") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		if _, err := b.db.Exec(b.Context(), one); err != nil {
			b.Fatalf("%s: %v", one, err)
		}
	}
}

// copiesOf makes a record, and returns a statement that copies it under that many other names.
func copiesOf(b swapper, table string, names int) string {
	b.Helper()
	b.made("first", 5, true)
	var columns string
	row := b.db.QueryRow(b.Context(), `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('name', 'op')`, table)
	if err := row.Scan(&columns); err != nil {
		b.Fatal(err)
	}
	return fmt.Sprintf(`INSERT INTO %[1]s (name, op, %[2]s) SELECT 'held/' || i, gen_random_uuid(), %[2]s FROM %[1]s, generate_series(1, %[3]d) i
		WHERE name = 'first'`, table, columns, names)
}
