package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

const (
	// VersionFile is the file that says in plain text what a data directory is, so that a person, or another version of
	// this program, need not open the database to find out.
	VersionFile = "VERSION"
	versionText = "leasekeeper data format 2\n"
	// DatabaseDir is the folder of the database in the data directory.
	DatabaseDir = "db"
	// SnapshotPrefix begins the names of folders in the data directory that hold a snapshot which is being sent.
	SnapshotPrefix = "snapshot-"
	// StagedPrefix begins the names of folders in the data directory that hold a state which is being received.
	StagedPrefix = "staged-"

	cacheBytes = 64 << 20
	// The database keeps one table of what is not yet in files, or two, for as long as it is open: they are small,
	// so that a server that holds much in them costs little more than what it holds. If files are written more
	// slowly than tables fill, there may be more of them for a while before writes have to wait.
	memTableBytes = 4 << 20
	maxMemTables  = 8
	// maxUnsorted is how many files' worth of newest data may wait to be merged before writes have to wait.
	maxUnsorted = 48
)

// Options say how Open opens a data directory.
type Options struct {
	// OpenFiles bounds the files that the database keeps open for later use.
	OpenFiles int
	// Halt is called when the database cannot go on. The goroutine that calls it never comes back.
	Halt func(error)
	// Wrap gives the database another view of its files, to watch what it does with them; nil leaves them as they are.
	Wrap func(vfs.FS) vfs.FS
}

// Open makes the data directory if need be, locks it, removes what an earlier process left unfinished, and opens its
// database.
func Open(files vfs.FS, dir string, o Options) (*pebble.DB, *pebble.Lock, error) {
	if dir == "" {
		return nil, nil, errors.New("no data folder is named: say where to keep the data")
	}
	if err := makeDirs(files, dir); err != nil {
		return nil, nil, fmt.Errorf("the data folder cannot be made: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, files)
	if err != nil {
		return nil, nil, fmt.Errorf("data folder %s is in use by another process, or cannot be locked: "+
			"stop that process or choose another folder (%w)", dir, err)
	}
	if err := checkVersion(files, dir); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	if err := errors.Join(removeAll(files, dir, SnapshotPrefix), removeAll(files, dir, StagedPrefix), removeReserve(files, dir)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("data folder %s cannot be cleaned up: %w", dir, err), lock.Close())
	}
	options := DatabaseOptions(files, o.Halt)
	if o.Wrap != nil {
		options.FS = o.Wrap(options.FS)
	}
	options.MaxOpenFiles = o.OpenFiles
	db, err := OpenDatabase(files.PathJoin(dir, DatabaseDir), options)
	if err != nil {
		return nil, nil, errors.Join(Explain(dir, err), lock.Close())
	}
	return db, lock, nil
}

// removeAll removes the folders in the data directory whose names begin with a prefix.
func removeAll(files vfs.FS, dir, prefix string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			if err := files.RemoveAll(files.PathJoin(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// OpenDatabase opens a database, a new one twice: the write-ahead log that is made together with a database
// is of an old form, which cannot tell a damaged record from one that a crash left unfinished. The log that
// the second opening starts can.
func OpenDatabase(path string, options *pebble.Options) (*pebble.DB, error) {
	if err := makeDirs(options.FS, path); err != nil {
		return nil, err
	}
	desc, err := pebble.Peek(path, options.FS)
	if err == nil && !desc.Exists {
		var db *pebble.DB
		if db, err = pebble.Open(path, options); err == nil {
			err = db.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	return pebble.Open(path, options)
}

// DatabaseOptions returns how the database of a data directory is opened.
func DatabaseOptions(files vfs.FS, halt func(error)) *pebble.Options {
	options := &pebble.Options{
		FS:                 databaseFiles{files},
		FormatMajorVersion: pebble.FormatNewest,
		CacheSize:          cacheBytes,
		MemTableSize:       memTableBytes,

		MemTableStopWritesThreshold: maxMemTables,
		L0StopWritesThreshold:       maxUnsorted,
		// How many files' worth of newest data are merged at a time, times two: what they are merged with is rewritten
		// each time, however little they change of it. Readers look into each that may have a key.
		L0CompactionThreshold: 32,
		Logger:                databaseLogger{halt},
		EventListener: &pebble.EventListener{
			// The reader of damaged data gets an error too. Without a listener of ours the database would
			// call Fatalf instead of returning it.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				halt(&record.DamagedError{What: "file " + info.Path, Err: info.Details})
			},
			// A flush that fails is tried again for ever, and meanwhile every write waits.
			BackgroundError: func(err error) {
				halt(fmt.Errorf("the disk failed while data was moved in the background: %w", err))
			},
		},
	}
	options.Experimental.SpanPolicyFunc = keepApart
	return options
}

// keepApart has no file hold both what happened and anything else: the history only grows at its end, so its files never
// overlap, and are not merged, and so rewritten, again and again together with those of keys.
func keepApart(start []byte) (pebble.SpanPolicy, []byte, error) {
	for _, border := range []byte{keyspace.FamilyHistory, keyspace.FamilyHistory + 1} {
		if len(start) == 0 || start[0] < border {
			return pebble.SpanPolicy{}, []byte{border}, nil
		}
	}
	return pebble.SpanPolicy{}, nil, nil
}

// databaseFiles is the file system as the database gets it.
//
// It does not let the database ask how much room there is: it only would report a failure to find out as one
// of the disk. The member asks for itself.
//
// And it makes write-ahead logs as long as they will become before they are written. The database reserves
// their blocks, but lets the length grow with each write, so that each sync also writes the length to the
// disk, until logs are used again after the first tens of megabytes. What is written to logs, and read from
// them, goes through [walFile] and [checkWALFile].
type databaseFiles struct{ vfs.FS }

func (databaseFiles) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{}, vfs.ErrUnsupported
}

// Create is part of vfs.FS, as are the methods below.
func (d databaseFiles) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	if err == nil && isWAL(name) {
		return &walFile{File: f}, nil
	}
	return f, err
}

// ReuseForWrite makes another log of one that is no longer needed.
func (d databaseFiles) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(old, name, category)
	if err == nil && isWAL(name) {
		return &walFile{File: f}, nil
	}
	return f, err
}

// Open opens a log only if it is whole.
func (d databaseFiles) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if isWAL(name) {
		if err := checkWALFile(d.FS, name); err != nil {
			return nil, err
		}
	}
	return d.FS.Open(name, options...)
}

// Unwrap is part of vfs.FS.
func (d databaseFiles) Unwrap() vfs.FS { return d.FS }

// makeDirs makes a folder and those above it, and makes sure that they stay.
func makeDirs(files vfs.FS, dir string) error {
	var above []string
	for missing := dir; ; {
		_, err := files.Stat(missing)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		parent := files.PathDir(missing)
		above = append(above, parent)
		if parent == missing {
			break
		}
		missing = parent
	}
	if err := files.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDirs(files, above...)
}

// checkVersion reads what the folder says it is. A new folder is labelled before anything else is in it.
func checkVersion(files vfs.FS, dir string) error {
	path := files.PathJoin(dir, VersionFile)
	f, err := files.Open(path)
	if err == nil {
		text, err := io.ReadAll(io.LimitReader(f, 1024))
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s cannot be read: %w", path, err)
		}
		if string(text) != versionText {
			return fmt.Errorf("data folder %s is of another version: its %s file says %q and this program knows %q; "+
				"use the version of leasekeeper that wrote it", dir, VersionFile, strings.TrimSpace(string(text)), strings.TrimSpace(versionText))
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s cannot be read: %w", path, err)
	}
	names, err := files.List(dir)
	if err != nil {
		return fmt.Errorf("data folder %s cannot be read: %w", dir, err)
	}
	for _, name := range names {
		if name != "LOCK" && name != VersionFile+".new" {
			return fmt.Errorf("%s holds %q but no %s file, so it is not a data folder of leasekeeper: "+
				"choose an empty folder or a new one", dir, name, VersionFile)
		}
	}
	return writeVersion(files, dir)
}

// writeVersion puts the whole file there or none of it, and makes sure that it stays.
func writeVersion(files vfs.FS, dir string) error {
	fresh := files.PathJoin(dir, VersionFile+".new")
	f, err := files.Create(fresh, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("the data folder cannot be written to: %w", err)
	}
	_, err = io.WriteString(f, versionText)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = files.Rename(fresh, files.PathJoin(dir, VersionFile))
	}
	if err != nil {
		return fmt.Errorf("the data folder cannot be written to: %w", err)
	}
	return syncDirs(files, dir)
}

// syncDirs makes the entries of directories durable.
func syncDirs(files vfs.FS, dirs ...string) error {
	for _, dir := range dirs {
		d, err := files.OpenDir(dir)
		if err != nil {
			return fmt.Errorf("%s cannot be opened: %w", dir, err)
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return fmt.Errorf("%s cannot be synced: %w", dir, err)
		}
	}
	return nil
}

// Explain says in one sentence what is wrong with a data folder and what to do.
func Explain(dir string, err error) error {
	detail, _, _ := strings.Cut(err.Error(), "\n") // the database adds lines for its developers
	var damaged *record.DamagedError
	if errors.As(err, &damaged) || pebble.IsCorruptionError(err) {
		return &sentence{fmt.Sprintf("the data in %s is damaged; restore the folder from a copy, "+
			"or move it away and start with an empty one, which loses every lease and key: %s", dir, detail), err}
	}
	return &sentence{fmt.Sprintf("data folder %s: %s", dir, detail), err}
}

// sentence is an error told in words of ours.
type sentence struct {
	text string
	err  error
}

func (s *sentence) Error() string { return s.text }
func (s *sentence) Unwrap() error { return s.err }

// databaseLogger keeps the database silent and hears when it cannot go on.
type databaseLogger struct{ halt func(error) }

func (databaseLogger) Infof(string, ...any)  {}
func (databaseLogger) Errorf(string, ...any) {}

// Fatalf must not return: the database relies on it. The process is about to end (see Err of package node).
func (l databaseLogger) Fatalf(format string, args ...any) {
	l.halt(fmt.Errorf("the disk failed: "+format, args...))
	select {}
}
