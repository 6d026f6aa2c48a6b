package sqlite

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

func TestInspectionMakesNeitherFileNorTables(t *testing.T) {
	path := newPath(t)
	found, err := backend.Inspect(t.Context(), "sqlite:"+path)
	if err != nil || found.Schema != 0 || found.Newest != sqlstore.Version {
		t.Fatalf("%+v, %v", found, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the inspection made the file")
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE own (x)"); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if found, err = backend.Inspect(t.Context(), "sqlite:"+path); err != nil || found.Schema != 0 || found.RoundTrip <= 0 {
		t.Errorf("%+v, %v", found, err)
	}
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(before, after) {
		t.Errorf("the inspection changed the file: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("the inspection left files: %v, %v", left, err)
	}
	s, err := Open(t.Context(), path, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if found, err = backend.Inspect(t.Context(), "sqlite:"+path); err != nil || found.Schema != sqlstore.Version {
		t.Errorf("%+v, %v", found, err)
	}
	other, err := backend.Inspect(t.Context(), "sqlite:"+path+"?prefix=other_")
	if err != nil || other.Schema != 0 {
		t.Errorf("%+v, %v", other, err)
	}
}

func TestConnectionOfAnInspectionCannotWrite(t *testing.T) {
	path := newPath(t)
	db, err := sql.Open("sqlite", source(path)+"&mode=rwc&_pragma=query_only(1)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := (inspected{db}).Query(t.Context(), "CREATE TABLE x (y)"); err == nil {
		t.Error("it made a table")
	}
	if err := (inspected{db}).Script(t.Context(), "CREATE TABLE x (y)"); err == nil {
		t.Error("it ran a script")
	}
}

func TestJournalModeOfAnInspectionIsJudged(t *testing.T) {
	for mode, safe := range map[string]bool{"wal": true, "delete": true, "off": false, "memory": false} {
		for _, accepted := range []bool{false, true} {
			if s := journalSetting(mode, accepted); (s.Fix == "") != safe || s.Accepted != (accepted && !safe) {
				t.Errorf("%s: %+v", mode, s)
			}
		}
	}
}

func TestFileThatIsNoDatabaseIsNotInspected(t *testing.T) {
	path := newPath(t)
	if err := os.WriteFile(path, []byte("this is no database, and long enough to be read as one ...................."), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := backend.Inspect(t.Context(), "sqlite:"+path); err == nil {
		t.Error("it was inspected")
	}
}
