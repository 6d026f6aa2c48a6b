package datadir

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// Restore makes a data directory from a snapshot. dir must be empty or not exist. refound changes the database to
// that of a new cluster, so that no member of the old cluster accepts it, and returns the version that the database then
// uses. If Restore fails, dir is empty.
func Restore(ctx context.Context, files vfs.FS, snapshot io.ReadSeeker, dir string, refound func(*pebble.DB) (gate.Version, error)) error {
	if err := checkSnapshot(ctx, snapshot); err != nil {
		return err
	}
	lock, err := lockEmptyDirectory(files, dir)
	if err != nil {
		return err
	}
	return finish(files, dir, lock, restoreInto(ctx, files, snapshot, dir, refound))
}

// Create makes a data directory with a new database, which fill fills. fill returns the version that the database uses. dir
// must be empty or not exist. If Create fails, dir is empty.
func Create(files vfs.FS, dir string, fill func(*pebble.DB) (gate.Version, error)) error {
	lock, err := lockEmptyDirectory(files, dir)
	if err != nil {
		return err
	}
	uses, err := refoundIn(files, dir, fill)
	if err == nil {
		err = writeVersion(files, dir, uses)
	}
	return finish(files, dir, lock, err)
}

// finish unlocks a new data directory. After an error it empties the directory, so that another try finds it empty.
func finish(files vfs.FS, dir string, lock *pebble.Lock, err error) error {
	if err == nil {
		return lock.Close()
	}
	return errors.Join(err, files.RemoveAll(files.PathJoin(dir, DatabaseDir)), lock.Close(), files.Remove(files.PathJoin(dir, "LOCK")))
}

// ErrHalted says that the disk failed under a database in such a way that it cannot be closed. Its memory, its files and its
// goroutines, also the one that runs the caller's function, stay until the process ends. A process that goes on must
// therefore bound how often this happens, and must no longer use what that function uses.
var ErrHalted = errors.New("the database cannot go on, and stays open until the process ends")

// Inspect checks a snapshot, and calls look with its database. It unpacks the snapshot into the directory dir, which must be
// empty or not exist. The caller removes dir. look runs in a goroutine of its own and may write, but not synced. It has
// returned when Inspect returns, except with [ErrHalted].
func Inspect(ctx context.Context, files vfs.FS, snapshot io.ReadSeeker, dir string, look func(*pebble.DB) error) error {
	if err := checkSnapshot(ctx, snapshot); err != nil {
		return err
	}
	if _, err := unpack(ctx, files, snapshot, dir); err != nil {
		return err
	}
	if err := lookInto(files, files.PathJoin(dir, DatabaseDir), look); err != nil {
		return Explain(dir, err)
	}
	return nil
}

// checkSnapshot compares the contents with the checksum at the end.
func checkSnapshot(ctx context.Context, snapshot io.ReadSeeker) error {
	size, err := snapshot.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = snapshot.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("the snapshot cannot be read: %w", err)
	}
	if err := refuseFormatOfEtcd(snapshot); err != nil {
		return err
	}
	if size%tarBlock != sha256.Size {
		return errors.New("this is not a snapshot, or it is not complete: its length is not that of one with a checksum")
	}
	sum := sha256.New()
	if _, err := io.CopyN(&counter{w: sum, ctx: ctx}, snapshot, size-sha256.Size); err != nil {
		return fmt.Errorf("the snapshot cannot be read: %w", err)
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(snapshot, want); err != nil {
		return fmt.Errorf("the snapshot cannot be read: %w", err)
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return errors.New("the snapshot is damaged: its contents do not match its checksum; use another one")
	}
	_, err = snapshot.Seek(0, io.SeekStart)
	return err
}

// refuseFormatOfEtcd returns an error if the file is a snapshot in etcd's format. It leaves the file at its beginning.
func refuseFormatOfEtcd(snapshot io.ReadSeeker) error {
	const at, magic = 16, "\xed\xda\x0c\xed" // where bbolt, etcd's database, puts its mark, in the order of most machines
	text := make([]byte, at+len(magic))
	if _, err := io.ReadFull(snapshot, text); err == nil && string(text[at:]) == magic {
		return errors.New("this is a snapshot in etcd's format: make a data directory of it with `leasekeeper import --from-etcd`")
	}
	if _, err := snapshot.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("the snapshot cannot be read: %w", err)
	}
	return nil
}

func lockEmptyDirectory(files vfs.FS, dir string) (*pebble.Lock, error) {
	if dir == "" {
		return nil, errors.New("no data directory is named: say where to restore to")
	}
	names, err := files.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("directory %s cannot be read: %w", dir, err)
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("directory %s is not empty: name one that is, or that does not exist", dir)
	}
	if err := files.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the data directory cannot be made: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, files)
	if err != nil {
		return nil, fmt.Errorf("data directory %s cannot be locked: %w", dir, err)
	}
	return lock, nil
}

func restoreInto(ctx context.Context, files vfs.FS, snapshot io.Reader, dir string, refound func(*pebble.DB) (gate.Version, error)) error {
	inUse, err := unpack(ctx, files, snapshot, dir)
	if err != nil {
		return err
	}
	return refoundCopy(files, dir, inUse, refound)
}

// refoundCopy has refound change the copied database of a new directory, and makes that a data directory. inUse is the
// version that the copied database uses.
func refoundCopy(files vfs.FS, dir string, inUse gate.Version, refound func(*pebble.DB) (gate.Version, error)) error {
	uses, err := refoundIn(files, dir, refound)
	if err != nil {
		return Explain(dir, err)
	}
	return writeVersion(files, dir, max(inUse, uses)) // last: only now is it a data directory
}

// refoundIn has refound change the database of a directory, and returns the version that it then uses.
func refoundIn(files vfs.FS, dir string, refound func(*pebble.DB) (gate.Version, error)) (uses gate.Version, err error) {
	err = changeDatabase(files, files.PathJoin(dir, DatabaseDir), func(db *pebble.DB) (err error) {
		uses, err = refound(db)
		return err
	})
	return uses, err
}

// changeDatabase opens the database in the directory path and calls refound on it. It returns also when the database cannot
// go on, with [ErrHalted].
func changeDatabase(files vfs.FS, path string, refound func(*pebble.DB) error) error {
	return untilHalt(func(halt func(error)) error { return change(path, DatabaseOptions(files, halt), refound) })
}

// lookInto is changeDatabase for a copy that is removed afterwards. The copy is written without a write-ahead log, because the
// database panics when that cannot be written, which would end the process.
func lookInto(files vfs.FS, path string, look func(*pebble.DB) error) error {
	return untilHalt(func(halt func(error)) error {
		options := DatabaseOptions(files, halt)
		options.DisableWAL = true
		return change(path, options, look)
	})
}

// untilHalt calls work and returns its error, joined with the damage that work reports by halt. When work reports another
// error by halt, untilHalt returns that as [ErrHalted], and halt never returns: the database would try the same again forever.
func untilHalt(work func(halt func(error)) error) error {
	var damage atomic.Pointer[record.DamagedError] // the first
	halted, done := make(chan error, 1), make(chan error, 1)
	go func() {
		done <- work(func(err error) {
			var damaged *record.DamagedError
			if errors.As(err, &damaged) { // the reader gets an error too, and then the database is closed
				damage.CompareAndSwap(nil, damaged)
				return
			}
			select {
			case halted <- err:
			default: // it has halted already
			}
			select {}
		})
	}()
	select {
	case err := <-halted:
		return fmt.Errorf("%w: %w", ErrHalted, err)
	case err := <-done:
		if first := damage.Load(); first != nil {
			return errors.Join(first, err)
		}
		return err
	}
}

// change opens the database in the directory path and calls refound on it.
func change(path string, options *pebble.Options, refound func(*pebble.DB) error) error {
	files := options.FS
	options.CacheSize = changeCacheBytes
	db, err := OpenDatabase(path, options)
	if err != nil {
		return err
	}
	if err = refound(db); err == nil {
		err = db.Flush()
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	return syncDirs(files, path)
}

// unpack writes the files of the database, and returns the version in use.
func unpack(ctx context.Context, files vfs.FS, snapshot io.Reader, dir string) (inUse gate.Version, err error) {
	if err := files.MkdirAll(files.PathJoin(dir, DatabaseDir), 0o700); err != nil {
		return 0, err
	}
	archive := tar.NewReader(snapshot)
	for first := true; ; first = false {
		header, err := archive.Next()
		if err == io.EOF && !first {
			return inUse, nil
		}
		if err != nil {
			return 0, fmt.Errorf("this is not a snapshot of leasekeeper: %w", err)
		}
		if first {
			if inUse, err = checkSnapshotVersion(header, archive); err != nil {
				return 0, err
			}
			continue
		}
		name, ok := strings.CutPrefix(header.Name, DatabaseDir+"/")
		if !ok || header.Typeflag != tar.TypeReg || name == "" || name != path.Base(name) || strings.Contains(name, `\`) || name == ".." {
			return 0, fmt.Errorf("this is not a snapshot of leasekeeper: it holds %q", header.Name)
		}
		if err := unpackFile(ctx, files, files.PathJoin(dir, DatabaseDir, name), archive); err != nil {
			return 0, err
		}
	}
}

func checkSnapshotVersion(header *tar.Header, archive io.Reader) (gate.Version, error) {
	if header.Name != VersionFile {
		return 0, fmt.Errorf("this is not a snapshot of leasekeeper: it begins with %q", header.Name)
	}
	text, err := io.ReadAll(io.LimitReader(archive, maxVersion))
	if err != nil {
		return 0, fmt.Errorf("the snapshot cannot be read: %w", err)
	}
	return checkText("the snapshot", string(text))
}

func unpackFile(ctx context.Context, files vfs.FS, path string, from io.Reader) error {
	f, err := files.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("the data directory cannot be written to: %w", err)
	}
	_, err = io.Copy(&counter{w: f, ctx: ctx}, from)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	return nil
}
