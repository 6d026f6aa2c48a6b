package datadir

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// The version file keeps the text that earlier programs know until the log uses what they do not understand.
func TestVersionFileNamesTheVersionInUse(t *testing.T) {
	files := vfs.NewMem()
	db, lock, err := Open(files, "dir", Options{Halt: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mark gate.Version
		want string
	}{
		{0, "leasekeeper data format 2\n"},
		{gate.Marks, "leasekeeper data format 2\n"},
		{gate.Statements, "leasekeeper data format 2, version 2 in use\n"},
		{gate.Marks, "leasekeeper data format 2, version 2 in use\n"},
	} {
		if err := MarkInUse(files, "dir", c.mark); err != nil {
			t.Fatal(err)
		}
		if got, err := readVersion(files, "dir"); got != c.want || err != nil {
			t.Errorf("marked with %d: %q, %v", c.mark, got, err)
		}
	}
	var saved bytes.Buffer
	s, err := TakeSnapshot(t.Context(), files, "dir", db, 7, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.WriteTo(&saved); err != nil || n != s.Size() {
		t.Fatalf("%d of %d bytes, %v", n, s.Size(), err)
	}
	if err := errors.Join(s.Close(), db.Close(), lock.Close()); err != nil {
		t.Fatal(err)
	}
	for dir, uses := range map[string]gate.Version{"version 2": gate.Marks, "version 3": gate.Members} {
		refound := func(*pebble.DB) (gate.Version, error) { return uses, nil }
		if err := Restore(t.Context(), files, bytes.NewReader(saved.Bytes()), dir, refound); err != nil {
			t.Fatal(err)
		}
		if got, err := readVersion(files, dir); got != "leasekeeper data format 2, "+dir+" in use\n" || err != nil {
			t.Errorf("restored: %q, %v", got, err)
		}
	}
}

// A directory that uses a version this program does not know is refused with what to do, and is left as it is.
func TestDirectoryOfANewerVersionIsRefused(t *testing.T) {
	files := vfs.NewMem()
	if err := errors.Join(files.MkdirAll("dir", 0o700), writeVersion(files, "dir", gate.Newest+1)); err != nil {
		t.Fatal(err)
	}
	_, _, err := Open(files, "dir", Options{})
	var newer *gate.NewerError
	if !errors.As(err, &newer) || !strings.Contains(err.Error(), "dir is of a newer version") || !strings.Contains(err.Error(), "start the newer program again") {
		t.Errorf("opened: %v", err)
	}
	if err := MarkInUse(files, "dir", gate.Newest); !errors.As(err, &newer) {
		t.Errorf("marked: %v", err)
	}
	if got, err := readVersion(files, "dir"); got != versionText(gate.Newest+1) || err != nil {
		t.Errorf("the file has %q, %v", got, err)
	}
	for _, text := range []string{"leasekeeper data format 1\n", "leasekeeper data format 2", "leasekeeper data format 2, version 1 in use\n", "leasekeeper data format 2, version 2 in use\nmore"} {
		if _, err := checkText("it", text); err == nil || !strings.Contains(err.Error(), "use the version of leasekeeper that wrote it") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
