//go:build linux || darwin

package main

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// openRecords opens the database of a store, as an operator would to read the records.
func openRecords(t *testing.T, store string) *sql.DB {
	t.Helper()
	kind, source := "pgx", store
	if path, isFile := strings.CutPrefix(store, "sqlite:"); isFile {
		kind, source = "sqlite", path
	}
	db, err := sql.Open(kind, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// recordsPage returns docs/records.md and the SQL statements in it.
func recordsPage(t *testing.T) (page string, statements []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "records.md"))
	if err != nil {
		t.Fatal(err)
	}
	page = string(text)
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(page, -1) {
		statements = append(statements, strings.TrimSpace(block[1]))
	}
	return page, statements
}

// at runs the command on a store, and returns its output and its exit code.
func at(t *testing.T, store string, words ...string) (string, int) {
	t.Helper()
	cmd := exec.Command("leasekeeper", words...)
	cmd.Env = append(os.Environ(), settings.StoreVariable+"="+store)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// The statements of docs/records.md run, and the page explains every column. Its steps for a record that cannot be read
// free the name, with tokens that keep growing.
func TestStatementsOfTheRecordsPageWork(t *testing.T) {
	page, statements := recordsPage(t)
	raise := regexp.MustCompile(`(?m)^leasekeeper (floor raise) 41\b`).FindStringSubmatch(page)
	if len(statements) != 3 || raise == nil {
		t.Fatalf("docs/records.md has other statements: %q, %q", statements, raise)
	}
	look, token, remove := statements[0], statements[1], statements[2]
	onDatabases(t, func(t *testing.T, fresh func() string) {
		store := fresh()
		for range 3 {
			if out, code := at(t, store, "run", "jobs/nightly", "--", "true"); code != command.ExitDone {
				t.Fatal(out)
			}
		}
		for _, name := range []string{"jobs/nightly", "other"} {
			if out, code := at(t, store, "acquire", name, "--ttl", "60s", "--holder", "me"); code != command.ExitDone {
				t.Fatal(out)
			}
		}
		db := openRecords(t, store)
		explained(t, db, page)
		if names := firstColumn(t, db, look); strings.Join(names, " ") != "jobs/nightly other" && strings.Join(names, " ") != "other jobs/nightly" {
			t.Errorf("the held names are %q", names)
		}
		if _, err := db.Exec("UPDATE leasekeeper_lease SET pins = 'nonsense' WHERE name = 'jobs/nightly'"); err != nil {
			t.Fatal(err)
		}
		if out, code := at(t, store, "show", "jobs/nightly"); code != command.ExitTrouble || !strings.Contains(out, "corrupt") || !strings.Contains(out, "pins") {
			t.Errorf("for an unreadable record show exits with %d: %s", code, out)
		}
		last := firstColumn(t, db, token)
		if len(last) != 1 || last[0] != "7" {
			t.Fatalf("the token is %q", last)
		}
		if out, code := at(t, store, append(strings.Fields(raise[1]), last[0])...); code != command.ExitDone {
			t.Fatal(out)
		}
		if _, err := db.Exec(remove); err != nil {
			t.Fatal(err)
		}
		out, code := at(t, store, "run", "jobs/nightly", "--", "printenv", settings.TokenVariable)
		if next, err := strconv.Atoi(strings.TrimSpace(out)); code != command.ExitDone || err != nil || next <= 7 {
			t.Errorf("the next token is %s", out)
		}
		if out, code := at(t, store, "show", "other"); code != command.ExitDone || !strings.Contains(out, "me") {
			t.Errorf("another name: %s", out)
		}
	})
}

// A database that was restored from a backup does not know the tokens that were issued since. When its floor is raised
// as docs/records.md says, later tokens are above them.
func TestTokensGrowAfterARestoreWithARaisedFloor(t *testing.T) {
	page, _ := recordsPage(t)
	raise := regexp.MustCompile("`leasekeeper (floor raise --by [0-9]+)`").FindStringSubmatch(page)
	if raise == nil {
		t.Fatal("the page does not say how to raise the floor")
	}
	onDatabases(t, func(t *testing.T, fresh func() string) {
		store := fresh()
		token := func(store string) int {
			t.Helper()
			out, code := at(t, store, "run", "jobs/nightly", "--", "printenv", settings.TokenVariable)
			n, err := strconv.Atoi(strings.TrimSpace(out))
			if code != command.ExitDone || err != nil {
				t.Fatal(out)
			}
			return n
		}
		token(store)
		restored := backup(t, store)
		var last int
		for range 3 {
			last = token(store)
		}
		if forgotten := token(backup(t, restored)); forgotten > last {
			t.Fatalf("the restored database continues at %d, after %d: the test checks nothing", forgotten, last)
		}
		if out, code := at(t, restored, strings.Fields(raise[1])...); code != command.ExitDone {
			t.Fatal(out)
		}
		if next := token(restored); next <= last {
			t.Errorf("token %d came after %d", next, last)
		}
	})
}

// backup copies the database of a store that no program uses.
func backup(t *testing.T, store string) string {
	t.Helper()
	if strings.HasPrefix(store, "sqlite:") {
		path := filepath.Join(t.TempDir(), "copy.db")
		db := openRecords(t, store)
		defer db.Close()
		if _, err := db.Exec("VACUUM INTO ?", path); err != nil {
			t.Fatal(err)
		}
		return settings.FileStore(path)
	}
	u, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	if _, err := openRecords(t, u.String()).Exec(fmt.Sprintf("CREATE DATABASE %s_copy TEMPLATE %[1]s", name)); err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name + "_copy"
	return u.String()
}

// firstColumn runs a query and returns the first column of its rows.
func firstColumn(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprint(*values[0].(*any)))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// explained checks that the table in docs/records.md explains each column, and no other.
func explained(t *testing.T, db *sql.DB, page string) {
	t.Helper()
	rows, err := db.Query("SELECT * FROM leasekeeper_lease")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\| ").FindAllStringSubmatch(page, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			documented[name[1]] = true
		}
	}
	for _, column := range columns {
		if !documented[column] {
			t.Errorf("the page does not explain the column %s", column)
		}
		delete(documented, column)
	}
	for _, name := range []string{"written_at", "place", "door", "kind"} { // only PostgreSQL has them
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("the page explains %s, but there is no such column", name)
	}
}
