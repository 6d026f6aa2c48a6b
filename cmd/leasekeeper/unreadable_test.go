//go:build linux || darwin

package main

import (
	"bytes"
	"database/sql"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// ls lists the other names if a record cannot be read. It reports the record on standard error, and exits with 1.
func TestLsReportsUnreadableRecordsAndListsOtherNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	ls := func(words ...string) (stdout, stderr string, code int) {
		t.Helper()
		var out, warnings bytes.Buffer
		cmd := exec.Command("leasekeeper", append(words, "--store", settings.FileStore(path))...)
		cmd.Stdout, cmd.Stderr = &out, &warnings
		err := cmd.Run()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		return out.String(), warnings.String(), cmd.ProcessState.ExitCode()
	}
	for _, name := range []string{"jobs/1", "jobs/2", "jobs/3"} {
		if _, warnings, code := ls("acquire", name, "--ttl", "60s", "--holder", "me"); code != command.ExitDone {
			t.Fatal(warnings)
		}
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	done, err := db.Exec("UPDATE leasekeeper_lease SET pins = 'nonsense' WHERE name = 'jobs/2'")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := done.RowsAffected(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{console.Table, console.JSON} {
		out, warnings, code := ls("ls", "-o", output)
		if code != command.ExitFailed || !strings.Contains(out, "jobs/1") || strings.Contains(out, "jobs/2") || !strings.Contains(out, "jobs/3") {
			t.Errorf("%s: exit code %d:\n%s", output, code, out)
		}
		if !strings.HasPrefix(warnings, "leasekeeper: could not read jobs/2: sqlite: corrupt: ") || strings.Count(warnings, "\n") != 1 {
			t.Errorf("%s: %s", output, warnings)
		}
	}
}
