package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

const (
	// VersionFile names the file that identifies a data directory in plain text, so that a person or another version
	// of this program need not open the database.
	VersionFile = "VERSION"
	// DatabaseDir is the name of the database's directory in the data directory.
	DatabaseDir = "db"
	// SnapshotPrefix begins the names of directories in the data directory that hold a snapshot being sent.
	SnapshotPrefix = "snapshot-"
	// StagedPrefix begins the names of directories in the data directory that hold a state being received.
	StagedPrefix = "staged-"

	cacheBytes = 64 << 20
	// changeCacheBytes is the same for a database that is open for one pass over it.
	changeCacheBytes = 8 << 20
	// memTableBytes is the size of a table of data that is not in files yet. The database keeps one or two tables
	// while it is open. They are small, so that a server with little data needs little memory. If files are written
	// more slowly than tables fill, up to maxMemTables accumulate before writes wait.
	memTableBytes = 4 << 20
	maxMemTables  = 8
	// maxUnsorted is the number of files of new data that may wait to be merged before writes wait.
	maxUnsorted = 48
)

// Options are the parameters of Open.
type Options struct {
	// OpenFiles bounds the number of files that the database keeps open.
	OpenFiles int
	// Halt is called when the database cannot go on. The goroutine that calls it never returns.
	Halt func(error)
	// Wrap, if not nil, wraps the database's file system, for example to watch its operations.
	Wrap func(vfs.FS) vfs.FS
}

// lockDirectory locks a data directory for this process. ifInUse says what to do if another process has locked it.
func lockDirectory(files vfs.FS, dir, ifInUse string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, files)
	if opening := (*fs.PathError)(nil); errors.As(err, &opening) && errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("data directory %s belongs to another user: run this as that user, or make the directory and everything in it belong to this user (%w)", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s is in use by another process, or cannot be locked: %s (%w)", dir, ifInUse, err)
	}
	return lock, nil
}

// Open creates the data directory if it does not exist, locks it, removes unfinished work of an earlier process, and
// opens its database.
func Open(files vfs.FS, dir string, o Options) (*pebble.DB, *pebble.Lock, error) {
	if dir == "" {
		return nil, nil, errors.New("no data directory is named: say where to keep the data")
	}
	if err := makeDirs(files, dir); err != nil {
		return nil, nil, fmt.Errorf("the data directory cannot be made: %w", err)
	}
	lock, err := lockDirectory(files, dir, "stop that process or choose another directory")
	if err != nil {
		return nil, nil, err
	}
	if _, err := checkVersion(files, dir); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	if err := errors.Join(removeAll(files, dir, SnapshotPrefix), removeAll(files, dir, StagedPrefix), removeReserve(files, dir)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("data directory %s cannot be cleaned up: %w", dir, err), lock.Close())
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

// removeAll removes the directories in the data directory whose names begin with prefix.
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

// OpenDatabase opens a database, and opens a new one twice. The write-ahead log that is created with a database has
// an old format, in which a damaged record looks like one that a crash cut off. The log that the second opening
// starts does not have this defect.
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

// DatabaseOptions returns the options for a data directory's database.
func DatabaseOptions(files vfs.FS, halt func(error)) *pebble.Options {
	options := &pebble.Options{
		FS:                 databaseFiles{files},
		FormatMajorVersion: pebble.FormatNewest,
		CacheSize:          cacheBytes,
		MemTableSize:       memTableBytes,

		MemTableStopWritesThreshold: maxMemTables,
		L0StopWritesThreshold:       maxUnsorted,
		// Merge when 16 files' worth of new data are waiting: the database counts each twice. Merging rewrites the
		// files below, so it should not be done for few changes. Readers must look into each unmerged file that may
		// contain a key.
		L0CompactionThreshold: 32,
		Logger:                databaseLogger{halt},
		EventListener: &pebble.EventListener{
			// The reader of damaged data gets an error too. Without this listener the database would call Fatalf
			// instead of returning it.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				halt(&record.DamagedError{What: "file " + info.Path, Err: info.Details})
			},
			// The database retries a failed flush forever, and every write waits meanwhile.
			BackgroundError: func(err error) {
				halt(fmt.Errorf("the disk failed while data was moved in the background: %w", err))
			},
		},
	}
	options.Experimental.SpanPolicyFunc = keepApart
	return options
}

// keepApart keeps the history in files of its own. The history only grows at its end, so its files never overlap and
// need no merging. In files shared with other keys it would be rewritten with each merge.
func keepApart(start []byte) (pebble.SpanPolicy, []byte, error) {
	for _, border := range []byte{keyspace.FamilyHistory, keyspace.FamilyHistory + 1} {
		if len(start) == 0 || start[0] < border {
			return pebble.SpanPolicy{}, []byte{border}, nil
		}
	}
	return pebble.SpanPolicy{}, nil, nil
}

// databaseFiles is the file system of the database.
//
// It refuses the database's queries of free space: the database would report a failed query as a disk failure, and
// the member queries the free space itself.
//
// It extends write-ahead logs to their final length before they are written. The database reserves their blocks, but
// lets the length grow with each write. Each sync would then also write the length, until logs are reused after the
// first tens of megabytes.
//
// It writes logs through [walFile] and checks them with [checkWALFile] before they are read.
type databaseFiles struct{ vfs.FS }

func (databaseFiles) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{}, vfs.ErrUnsupported
}

// Create creates a file. Like the methods below it is part of vfs.FS.
func (d databaseFiles) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	if err == nil && isWAL(name) {
		return &walFile{File: f}, nil
	}
	return f, err
}

// ReuseForWrite makes a new file from one that is no longer needed.
func (d databaseFiles) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(old, name, category)
	if err == nil && isWAL(name) {
		return &walFile{File: f}, nil
	}
	return f, err
}

// Open opens a file for reading. It checks a log first.
func (d databaseFiles) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if isWAL(name) {
		if err := checkWALFile(d.FS, name); err != nil {
			return nil, err
		}
	}
	return d.FS.Open(name, options...)
}

// Unwrap returns the file system below.
func (d databaseFiles) Unwrap() vfs.FS { return d.FS }

// makeDirs makes a directory and its missing parents, and syncs them.
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

// Explain returns err as one sentence that says what is wrong with a data directory and what to do.
func Explain(dir string, err error) error {
	detail, _, _ := strings.Cut(err.Error(), "\n") // the database adds lines for its developers
	var damaged *record.DamagedError
	if errors.As(err, &damaged) || pebble.IsCorruptionError(err) {
		return &sentence{fmt.Sprintf("the data in %s is damaged; restore the data directory from a copy, "+
			"or move it away and start with an empty one, which loses every lease and key: %s", dir, detail), err}
	}
	return &sentence{fmt.Sprintf("data directory %s: %s", dir, detail), err}
}

// sentence is an error with a text for people.
type sentence struct {
	text string
	err  error
}

func (s *sentence) Error() string { return s.text }
func (s *sentence) Unwrap() error { return s.err }

// databaseLogger discards the database's log, and calls halt when the database cannot go on.
type databaseLogger struct{ halt func(error) }

func (databaseLogger) Infof(string, ...any)  {}
func (databaseLogger) Errorf(string, ...any) {}

// Fatalf must not return, because the database relies on that. If it is the database of a member, the process is about to end
// (see Err of package node). If it is that of a copy, the process goes on, and the database stays open (see [ErrHalted]).
func (l databaseLogger) Fatalf(format string, args ...any) {
	l.halt(fmt.Errorf("the disk failed: "+format, args...))
	select {}
}
