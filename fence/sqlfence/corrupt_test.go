package sqlfence

import (
	"errors"
	"testing"

	"github.com/leasekeeper/leasekeeper/fence"
)

// A value in a token column that is no token refuses every write. Examples are a negative number, and a text, which
// SQLite takes in any column and compares digit by digit.
func TestSQLiteRefusesCorruptTokens(t *testing.T) {
	ctx := t.Context()
	for _, kind := range []string{"INTEGER", "TEXT", "REAL", "BLOB", ""} {
		c := sqliteWorld.open(t)
		c.run(t, "CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT, token "+kind+")")
		for _, value := range []string{"-5", "'x'", "'10'", "1.5", "9e18", "x'31'"} {
			var stored any
			c.run(t, "INSERT OR REPLACE INTO jobs (id, state, token) VALUES ('a', 'before', "+value+")")
			wantNil(t, c.QueryRowContext(ctx, "SELECT token FROM jobs").Scan(&stored))
			err := c.update(ctx, c, "a", 20, "state = 'after'")
			if n, whole := stored.(int64); whole && n >= 0 { // the column has converted the value to an integer
				if n <= 20 && err != nil || n > 20 && !errors.Is(err, fence.ErrStale) {
					t.Errorf("%s %s: %v", kind, value, err)
				}
				continue
			}
			if got := c.state(t, "a"); !errors.Is(err, ErrCorrupt) || got != "before" {
				t.Errorf("%s column with %s: %v, state %q", kind, value, err, got)
			}
		}
	}
}

func TestSQLiteRefusesCorruptMarks(t *testing.T) {
	c, ctx := sqliteWorld.withJobs(t), t.Context()
	c.run(t, `DROP TABLE fencing_marks`)
	c.run(t, `CREATE TABLE fencing_marks (name TEXT PRIMARY KEY, token)`) // not made by Create
	c.run(t, `INSERT INTO fencing_marks VALUES ('text', '7'), ('negative', -9), ('half', 7.5)`)
	c.run(t, `INSERT INTO jobs (id, state) VALUES ('a', 'before')`)
	c.run(t, `CREATE TRIGGER no BEFORE INSERT ON fencing_marks WHEN new.name = 'lost' BEGIN SELECT raise(IGNORE); END`)
	wantIs(t, c.write(ctx, "lost", 6, "DELETE FROM jobs"), ErrCorrupt)
	for _, name := range []string{"text", "negative", "half"} {
		wantIs(t, c.write(ctx, name, 6, "DELETE FROM jobs"), ErrCorrupt)
	}
	wantState(t, c, "a", "before")
}

func TestTriggerThatPreventsAnUpdateIsReported(t *testing.T) {
	c, ctx := sqliteWorld.withJobs(t), t.Context()
	c.run(t, "INSERT INTO jobs (id) VALUES ('a')")
	c.run(t, "CREATE TRIGGER no BEFORE UPDATE ON jobs BEGIN SELECT raise(IGNORE); END")
	wantIs(t, c.update(ctx, c, "a", 1, "state = 'x'"), ErrContention)
}

// kindOfColumn is a column type that a user may have chosen for tokens instead of BIGINT, with values that no token may
// replace.
type kindOfColumn struct {
	kind   string
	values []string
}

// refuse checks that no token may replace any of the values, whether this package or the database refuses the write.
func refuse(t *testing.T, w world, kinds []kindOfColumn) {
	ctx := t.Context()
	for _, k := range kinds {
		c := w.open(t)
		c.run(t, "CREATE TABLE jobs (id TEXT_ID PRIMARY KEY, state TEXT, token "+k.kind+")")
		c.run(t, "CREATE TABLE fencing_marks (name TEXT_ID PRIMARY KEY, token "+k.kind+")")
		for _, value := range k.values {
			c.run(t, "DELETE FROM jobs")
			c.run(t, "DELETE FROM fencing_marks")
			c.run(t, "INSERT INTO jobs (id, state, token) VALUES ('a', 'before', "+value+")")
			c.run(t, "INSERT INTO fencing_marks (name, token) VALUES ('a', "+value+")")
			if err := c.update(ctx, c, "a", 20, "state = 'after'"); err == nil || errors.Is(err, ErrNotFound) {
				t.Errorf("%s column with %s: %v", k.kind, value, err)
			}
			if err := c.write(ctx, "a", 20, "UPDATE jobs SET state = 'after'"); err == nil {
				t.Errorf("%s mark with %s: %v", k.kind, value, err)
			}
			wantState(t, c, "a", "before")
		}
	}
}

func corruptTokensAreRefused(t *testing.T, w world) {
	switch w.dialect {
	case PostgreSQL:
		refuse(t, w, []kindOfColumn{
			{"BIGINT", []string{"-1", "-9223372036854775808"}},
			{"NUMERIC", []string{"7", "7.5", "-1", "'NaN'", "1e30"}},
			{"DOUBLE PRECISION", []string{"7", "7.5", "'NaN'"}},
			{"TEXT", []string{"'7'", "'x'", "''"}},
		})
	case MariaDB:
		refuse(t, w, []kindOfColumn{
			{"BIGINT", []string{"-1", "-9223372036854775808"}},
			{"BIGINT UNSIGNED", []string{"18446744073709551615"}},
			{"DECIMAL(40, 1)", []string{"7.5", "-1", "100000000000000000000"}},
			{"DOUBLE", []string{"7.5", "9e18", "1e30"}},
			{"VARCHAR(30)", []string{"'x'", "'7x'", "''", "' 7'", "'-7'", "'7.5'", "'18446744073709551616'"}},
		})
		// An unsigned column may hold a token above the largest int64, which refuses older tokens like any other.
		c := w.open(t)
		c.run(t, "CREATE TABLE jobs (id TEXT_ID PRIMARY KEY, state TEXT, token BIGINT UNSIGNED)")
		c.run(t, "INSERT INTO jobs (id, token) VALUES ('a', 18446744073709551615)")
		wantStale(t, c.update(t.Context(), c, "a", 20, "state = 'after'"), "jobs a", 20, 18446744073709551615)
	}
}

// The tables that Create creates take only valid tokens.
func marksTakeOnlyTokens(t *testing.T, w world) {
	c := w.withJobs(t)
	for _, token := range []string{"-1", "0", "'x'", "NULL"} {
		if _, err := c.Exec(c.sql(`INSERT INTO fencing_marks (name, token) VALUES ('a', ` + token + `)`)); err == nil {
			t.Errorf("the table accepts %s as a token", token)
		}
	}
}
