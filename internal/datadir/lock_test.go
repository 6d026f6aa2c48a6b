package datadir

import (
	"context"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// foreign is a file system on which another user owns the files.
type foreign struct{ vfs.FS }

func (foreign) Lock(name string) (io.Closer, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EACCES}
}

// locked is a file system on which another process has all locks. Some systems report that with the same number as a lack
// of permission.
type locked struct{ vfs.FS }

func (locked) Lock(string) (io.Closer, error) { return nil, syscall.EACCES }

func TestDirectoryOfAnotherUserIsNotSaidToBeInUse(t *testing.T) {
	open := func(files vfs.FS) error {
		_, _, err := Open(files, "data", Options{OpenFiles: 100})
		return err
	}
	rebuild := func(files vfs.FS) error {
		return Rebuild(context.Background(), files, "data", "new", nil, func(*pebble.DB) (gate.Version, error) { return 0, nil })
	}
	files := vfs.NewMem()
	db, lock, err := Open(files, "data", Options{OpenFiles: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func(vfs.FS) error{"open": open, "rebuild": rebuild} {
		if err := do(foreign{files}); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("%s of another user's directory: %v", what, err)
		}
		if err := do(locked{files}); err == nil || !strings.Contains(err.Error(), "is in use by another process") {
			t.Errorf("%s of a directory in use: %v", what, err)
		}
	}
}
