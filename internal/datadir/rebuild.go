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
// not exist. progress receives how many bytes of how many were copied; it may be nil. refound changes the database to that
// of a new cluster, and returns the version that it then uses. If Rebuild fails, it removes the copied database.
//
// Both directories should be on one file system: then unchanged files are shared and not copied.
func Rebuild(ctx context.Context, files vfs.FS, from, dir string, progress func(copied, size int64), refound func(*pebble.DB) (gate.Version, error)) error {
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
	err = copyDatabase(ctx, files, files.PathJoin(from, DatabaseDir), files.PathJoin(dir, DatabaseDir), progress)
	if err != nil {
		err = fmt.Errorf("data directory %s cannot be copied: %w", from, err)
	} else {
		err = refoundCopy(files, dir, inUse, refound)
	}
	return errors.Join(finish(files, dir, lock, err), stopped.Close())
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
// that is possible. progress receives how many bytes of how many were copied or linked; it may be nil.
func copyDatabase(ctx context.Context, files vfs.FS, from, to string, progress func(copied, size int64)) error {
	all, size, err := filesOf(files, from)
	if err != nil {
		return err
	}
	if err := files.MkdirAll(to, 0o700); err != nil {
		return err
	}
	var copied int64
	for _, info := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name, copyFile := info.Name(), vfs.Copy
		if strings.HasSuffix(name, tableSuffix) {
			copyFile = vfs.LinkOrCopy
		}
		if err := copyFile(files, files.PathJoin(from, name), files.PathJoin(to, name)); err != nil {
			return err
		}
		if copied += info.Size(); progress != nil {
			progress(copied, size)
		}
	}
	return syncDirs(files, to)
}

// filesOf returns the files of a database, without that of its lock, and their size in all.
func filesOf(files vfs.FS, dir string) (all []vfs.FileInfo, size int64, err error) {
	names, err := files.List(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		info, err := files.Stat(files.PathJoin(dir, name))
		if err != nil {
			return nil, 0, err
		}
		if !info.IsDir() && name != "LOCK" {
			all, size = append(all, info), size+info.Size()
		}
	}
	return all, size, nil
}
