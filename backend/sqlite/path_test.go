package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// ways are the ways to open a store in a file: by the file's path, and in a database of the caller's in each
// journal mode.
var ways = map[string]func(ctx context.Context, path string) (*Store, error){
	"Open": func(ctx context.Context, path string) (*Store, error) { return Open(ctx, path, Config{}) },
	"New, with a log": func(ctx context.Context, path string) (*Store, error) {
		return newOn(ctx, path, durable+"&_pragma=journal_mode(WAL)")
	},
	"New, with a rollback journal": func(ctx context.Context, path string) (*Store, error) {
		return newOn(ctx, path, durable)
	},
	"New, with a loss accepted": func(ctx context.Context, path string) (*Store, error) {
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			return nil, err
		}
		s, err := New(ctx, db, Config{AcceptLoss: true})
		return s, errors.Join(err, db.Close())
	},
}

func newOn(ctx context.Context, path, settings string) (*Store, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)"+settings)
	if err != nil {
		return nil, err
	}
	s, err := New(ctx, db, Config{})
	return s, errors.Join(err, db.Close())
}

// refused fails if any of the ways opens a store at a path through which SQLite would write a second log.
func refused(t *testing.T, path string, texts ...string) {
	t.Helper()
	for way, open := range ways { // order: each is checked by itself
		s, err := open(t.Context(), path)
		if err == nil {
			_ = s.Close(t.Context())
			t.Errorf("%s opened %s", way, path)
			continue
		}
		says(t, err, backend.ErrInvalid, texts...)
	}
}

func accepted(t *testing.T, path string) {
	t.Helper()
	for way, open := range ways { // order: each is checked by itself
		s, err := open(t.Context(), path)
		if err != nil {
			t.Errorf("%s, %s: %v", way, path, err)
			continue
		}
		_ = s.Close(t.Context())
	}
}

// Two clients that reach one file through two hard links would each have a log, and both would hold the name.
func TestHardLinksAreRefused(t *testing.T) {
	path := heldAndClosed(t)
	second := filepath.Join(t.TempDir(), "other.db")
	if err := os.Link(path, second); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, second} {
		refused(t, p, p, "2 links", "directory")
	}
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	accepted(t, path)
}

// heldAndClosed returns the path of a file in which x is held, and which this process does not have open:
// within one process SQLite itself fails with a second path.
func heldAndClosed(t *testing.T) string {
	t.Helper()
	path := newPath(t)
	s := opened(t, path, Config{here: hostBoot, look: onOwnDisk})
	c, err := claim.NewClient(s, claim.Options{Domain: hostBoot, Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tryClaim(t, c, "x")
	if err := errors.Join(err, s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return path
}

// The refusal comes before SQLite has touched the file: no log is left next to the second path.
func TestRefusedFileIsNotTouched(t *testing.T) {
	path := heldAndClosed(t)
	dir := t.TempDir()
	if err := os.Link(path, filepath.Join(dir, "leases.db")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "leases.db"), Config{}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a second link: %v", err)
	}
	if in, err := os.ReadDir(dir); err != nil || len(in) != 1 {
		t.Errorf("beside the second path lie %v, %v", in, err)
	}
}

// A log that lies elsewhere, or that is also another file's, becomes a second log as soon as a process looks
// through another directory.
func TestLogOutsideTheDirectoryIsRefused(t *testing.T) {
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		path := newPath(t)
		if err := opened(t, path, Config{}).Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		elsewhere := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(elsewhere, path+suffix); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), path, Config{})
		says(t, err, backend.ErrInvalid, path+suffix, "no plain file")
		if err := errors.Join(os.Remove(path+suffix), os.Link(elsewhere, path+suffix)); err != nil {
			t.Fatal(err)
		}
		_, err = Open(t.Context(), path, Config{})
		says(t, err, backend.ErrInvalid, path+suffix, "2 links")
	}
}

// Symbolic links to the file, to its directory and to each other lead to one path.
func TestSymbolicLinksLeadToOneStore(t *testing.T) {
	path := newPath(t)
	dir := t.TempDir()
	folder, file, chain := filepath.Join(dir, "folder"), filepath.Join(dir, "file"), filepath.Join(dir, "chain")
	for link, to := range map[string]string{folder: filepath.Dir(path), file: path, chain: "folder/../" + filepath.Base(filepath.Dir(path)) + "/leases.db"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	// This also holds while the file does not exist: the link's target is created.
	if _, err := tryClaim(t, kernel(t, file, hostBoot, onOwnDisk), "x"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, file, chain, filepath.Join(folder, "leases.db")} {
		accepted(t, p)
		s := opened(t, p, Config{})
		if s.file.path != path {
			t.Errorf("%s leads to %s, and not to %s", p, s.file.path, path)
		}
		if _, err := tryClaim(t, kernel(t, p, hostBoot, onOwnDisk), "x"); !errors.Is(err, backend.ErrHeld) {
			t.Errorf("a name that is held, through %s: %v", p, err)
		}
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), loop, Config{}); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a link to itself: %v", err)
	}
}
