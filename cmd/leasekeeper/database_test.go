//go:build linux || darwin

package main

import (
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

func init() { runTests = databases.Main }

// TestScriptsOnPostgreSQL runs the scripts of TestScriptsOnSQLite.
func TestScriptsOnPostgreSQL(t *testing.T) {
	server := databases.PostgreSQL(t)
	runScripts(t, "testdata/database", func(env *testscript.Env) error {
		env.Setenv("KIND", "postgres")
		for _, name := range databaseNames {
			env.Setenv(name, server.Database(t))
		}
		env.Setenv("SAME_A", env.Getenv("A")+"&poll=1s")
		return nil
	})
}

// onDatabases runs a test on each kind of database. fresh returns the URL of a new database.
func onDatabases(t *testing.T, test func(t *testing.T, fresh func() string)) {
	t.Run("sqlite", func(t *testing.T) {
		dir, n := t.TempDir(), 0
		test(t, func() string {
			n++
			return settings.FileStore(filepath.Join(dir, fmt.Sprintf("%d.db", n)))
		})
	})
	t.Run("postgres", func(t *testing.T) {
		server := databases.PostgreSQL(t)
		test(t, func() string { return server.Database(t) })
	})
}

// moveToOtherMachine changes the record of a name as if another machine had written it: in another clock domain, whose
// clocks show other times.
func moveToOtherMachine(t *testing.T, store string) {
	t.Helper()
	const statement = `UPDATE leasekeeper_lease SET domain = 'another machine', written_raw = written_raw - 1000000000000000,
		expiry_raw = expiry_raw - 1000000000000000, written_boot = written_boot - 2000000000000000, expiry_boot = expiry_boot - 2000000000000000`
	if !strings.HasPrefix(store, "sqlite:") {
		databases.PostgreSQL(t).Run(t, store, statement)
		return
	}
	db, err := sql.Open("sqlite", strings.TrimPrefix(store, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

func TestWatchPrintsChangesInADatabase(t *testing.T) {
	onDatabases(t, func(t *testing.T, fresh func() string) { checkWatch(t, fresh()) })
}

// The SQL that `schema` prints creates the same tables as a program that opens the database.
func TestSchemaPrintsTheTablesThatProgramsCreate(t *testing.T) {
	schemaOf := func(kind string) string {
		t.Helper()
		out, err := exec.Command("leasekeeper", "schema", kind).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	run := func(store string) {
		t.Helper()
		if out, err := exec.Command("leasekeeper", "run", "--store", store, "x", "--", "true").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		described := func(prepare bool) (text string) {
			path := filepath.Join(t.TempDir(), "x.db")
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if prepare {
				if _, err := db.Exec(schemaOf("sqlite")); err != nil {
					t.Fatal(err)
				}
			}
			run(settings.FileStore(path))
			if err := db.QueryRow("SELECT group_concat(sql, char(10)) FROM (SELECT sql FROM sqlite_master ORDER BY name)").Scan(&text); err != nil {
				t.Fatal(err)
			}
			return text
		}
		if by, itself := described(true), described(false); by != itself || !strings.Contains(by, "leasekeeper_lease") {
			t.Errorf("created by the SQL of schema:\n%s\ncreated by a program:\n%s", by, itself)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		server := databases.PostgreSQL(t)
		store := server.Database(t)
		server.Run(t, store, schemaOf("postgres"), "CREATE ROLE clerk LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk")
		run(strings.Replace(store, databases.Superuser+"@", "clerk@", 1))
	})
}
