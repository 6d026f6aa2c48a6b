package record

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A database knows which program ran its member last. One that is new was run by none, one without a record by another.
func TestDatabaseKnowsItsProgram(t *testing.T) {
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	last := func(what, id string, founded bool) {
		t.Helper()
		if got, known, err := LastProgram(db); got != id || known != founded || err != nil {
			t.Errorf("%s: %q, %v, %v", what, got, known, err)
		}
	}
	last("a new database", "", false)
	if _, err := Identify(db, NewMember{ClusterID: 1, MemberID: 2, Incarnation: 3}); err != nil {
		t.Fatal(err)
	}
	last("no record", "", true)
	if err := PutProgram(db, "one"); err != nil {
		t.Fatal(err)
	}
	last("a record", "one", true)
}
