package datadir

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// Rebuild makes a data directory from that of a member that is stopped, which it does not change. dir must be empty or
// not exist. refound changes the database to that of a new cluster, and returns the version that it then uses. If Rebuild
// fails, it removes the copied database.
//
// Both directories should be on one file system: then unchanged files are shared and not copied.
func Rebuild(ctx context.Context, files vfs.FS, from, dir string, refound func(*pebble.DB) (gate.Version, error)) error {
	inUse, err := checkExisting(files, from)
	if err != nil {
		return err
	}
	stopped, err := lockDirectory(files, from, "stop its server first")
	if err != nil {
		return err
	}
	lock, err := lockEmptyDirectory(files, dir)
	if err != nil {
		return errors.Join(err, stopped.Close())
	}
	return errors.Join(finish(files, dir, lock, rebuildFrom(ctx, files, from, dir, inUse, refound)), stopped.Close())
}

func rebuildFrom(ctx context.Context, files vfs.FS, from, dir string, inUse gate.Version, refound func(*pebble.DB) (gate.Version, error)) error {
	if err := copyDatabase(ctx, files, files.PathJoin(from, DatabaseDir), files.PathJoin(dir, DatabaseDir)); err != nil {
		return fmt.Errorf("data directory %s cannot be copied: %w", from, err)
	}
	return refoundCopy(files, dir, inUse, refound)
}

// checkExisting returns the version in use of a data directory, or an error if dir is not one that this program knows.
func checkExisting(files vfs.FS, dir string) (gate.Version, error) {
	text, err := readVersion(files, dir)
	if err != nil {
		return 0, fmt.Errorf("%s is not a data directory of leasekeeper: its %s file cannot be read (%w)", dir, VersionFile, err)
	}
	return checkText("data directory "+dir, text)
}

// tableSuffix ends the names of tables.
const tableSuffix = ".sst"

// copyDatabase copies the files of a database that no process has open. Tables never change, so they are linked where
// that is possible.
func copyDatabase(ctx context.Context, files vfs.FS, from, to string) error {
	names, err := files.List(from)
	if err != nil {
		return err
	}
	if err := files.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		info, err := files.Stat(files.PathJoin(from, name))
		if err != nil {
			return err
		}
		if info.IsDir() || name == "LOCK" {
			continue
		}
		copied := vfs.Copy
		if strings.HasSuffix(name, tableSuffix) {
			copied = vfs.LinkOrCopy
		}
		if err := copied(files, files.PathJoin(from, name), files.PathJoin(to, name)); err != nil {
			return err
		}
	}
	return syncDirs(files, to)
}
