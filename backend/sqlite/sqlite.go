package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
	"github.com/leasekeeper/leasekeeper/clock"
)

// DefaultPoll is how often a waiting process checks whether any process has written.
const DefaultPoll = 15 * time.Millisecond

// Config says how a store is set up. The zero Config is good.
type Config struct {
	// Namespace separates leases that are independent of each other. Empty means [sqlstore.DefaultNamespace].
	Namespace string
	// Prefix is the prefix of the names of the tables. Empty means [sqlstore.DefaultPrefix].
	Prefix string
	// Patience is how long a call waits at most for a locked file. Zero means [sqlstore.DefaultPatience].
	Patience time.Duration
	// Poll is how often a waiting process checks whether any process has written. Zero means [DefaultPoll].
	Poll time.Duration
	// AcceptLoss accepts a database that was passed to [New] whose settings let a power cut undo acknowledged
	// writes: two clients may then hold one name.
	AcceptLoss bool

	// look and here stand for this machine; tests replace them.
	look func(path string) (location, error)
	here clock.Domain
}

func (c *Config) complete() error {
	if c.look == nil {
		c.look, c.here = locate, clock.SystemDomain()
	}
	if c.Poll == 0 {
		c.Poll = DefaultPoll
	}
	if c.Poll < time.Millisecond {
		return fmt.Errorf("sqlite: %w: the poll interval is %v: it must be at least one millisecond", backend.ErrInvalid, c.Poll)
	}
	return nil
}

// Store keeps leases in a SQLite file. It is safe for concurrent use.
type Store struct {
	*sqlstore.Store
	file   *file
	config Config
	owned  bool // the database was opened here
	place  location

	tickets ticketsOf
}

// location is what is known of where a file is. The zero location says that it is unknown which other kernels
// reach the file.
type location struct {
	plain bool // on a file system of a disk or of memory, which only this kernel can have mounted
	own   bool // the one from which this machine runs
}

var (
	_ claim.Store     = (*Store)(nil)
	_ claim.Batcher   = (*Store)(nil)
	_ claim.Notifier  = (*Store)(nil)
	_ claim.Preferrer = (*Store)(nil)
	_ claim.Local     = (*Store)(nil)
	_ claim.Clocks    = (*Store)(nil)
)

// Open opens a file, and creates it if it does not exist.
func Open(ctx context.Context, path string, c Config) (*Store, error) {
	if path == "" || strings.HasPrefix(path, ":") || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("sqlite: %w: the path of a file is needed, and not %q: a database in memory is not shared with other processes", backend.ErrInvalid, path)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w: %q: %w", backend.ErrInvalid, path, err)
	}
	if err := reachable(absolute); err != nil {
		return nil, err
	}
	if absolute, err = follow(absolute); err != nil {
		return nil, err
	}
	if err := onePath(absolute); err != nil { // before SQLite creates a log next to it
		return nil, err
	}
	db, err := sql.Open("sqlite", source(absolute))
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w: %s: %w", backend.ErrInvalid, path, err)
	}
	db.SetMaxIdleConns(readers + 1)
	if err := useWAL(ctx, db); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("sqlite: open %s: %w: %w", path, err.Kind, err)
	}
	s, err := newStore(ctx, db, c, true)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

// reachable returns an error if no file can be at a path: SQLite's own error helps little.
func reachable(path string) error {
	if info, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sqlite: %w: the directory of %s cannot be read: make it first: %w", backend.ErrUnavailable, path, err)
	} else if !info.IsDir() {
		return fmt.Errorf("sqlite: %w: %s is not a directory: name a file in a directory", backend.ErrInvalid, filepath.Dir(path))
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("sqlite: %w: %s is a directory: name a file in it", backend.ErrInvalid, path)
	}
	return nil
}

// source returns the data source name of the file. The busy timeout is short, since a statement that is locked
// out is repeated. On macOS a sync reaches the disk only if it is a full one; elsewhere that makes no
// difference.
func source(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // C:/...
		path = "/" + path
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(100)&_pragma=synchronous(EXTRA)&_pragma=fullfsync(1)"}
	return u.String()
}

// useWAL sets WAL mode, in which readers and writers do not wait for each other. If that is impossible, the
// mode stays as it is.
func useWAL(ctx context.Context, db *sql.DB) *sqlstore.Failure {
	var mode string
	err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
	if err == nil && mode != "wal" {
		_ = db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
	}
	if f := failureOf(err, false); f != nil && !f.Again {
		return f
	}
	return nil
}

// New returns a store in a database of the caller's, whose driver must be modernc.org/sqlite. The database
// stays open when the store is closed. New refuses it if its settings let a power cut undo acknowledged writes.
func New(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("sqlite: %w: no database", backend.ErrInvalid)
	}
	return newStore(ctx, db, c, false)
}

func newStore(ctx context.Context, db *sql.DB, c Config, own bool) (_ *Store, err error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	f := newFile(db, own)
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	s := &Store{file: f, config: c}
	path, err := pathOf(ctx, db)
	if err != nil {
		return nil, err
	}
	if path != "" {
		if err := onePath(path); err != nil {
			return nil, err
		}
		if s.place, err = c.look(path); err != nil {
			return nil, err
		}
	}
	if err := s.examine(ctx, path); err != nil {
		return nil, err
	}
	s.Store, err = sqlstore.New(ctx, f, sqlstore.SQLite, sqlstore.Config{
		Namespace: c.Namespace, Prefix: c.Prefix, Patience: c.Patience, AcceptLoss: c.AcceptLoss,
	})
	if err != nil {
		return nil, err
	}
	return s, f.identify(path)
}

// pathOf returns the path of a database, or "" if it is in memory. SQLite has followed its symbolic links,
// except on Windows. The query reads nothing of the file.
func pathOf(ctx context.Context, db *sql.DB) (path string, err error) {
	var number int
	var name string
	if err := db.QueryRowContext(ctx, "PRAGMA database_list").Scan(&number, &name, &path); err != nil { // the main database is the first
		f := failureOf(err, false)
		return "", fmt.Errorf("sqlite: open: %w: %w", f.Kind, f)
	}
	return path, nil
}

// examine returns an error if writes to the database would not be durable.
func (s *Store) examine(ctx context.Context, path string) error {
	const full = 2
	rows, failed := sqlstore.Ask(ctx, s.file, sqlstore.DefaultPatience, "SELECT (SELECT * FROM pragma_synchronous), (SELECT * FROM pragma_journal_mode)")
	if failed != nil {
		return fmt.Errorf("sqlite: open: %w: %w", failed.Kind, failed)
	}
	synchronous, _ := rows[0][0].(int64)
	journal, _ := rows[0][1].(string)
	s.file.wal = journal == "wal"
	if s.config.AcceptLoss || path == "" { // a database in memory does not survive anyway
		return nil
	}
	if synchronous < full {
		return fmt.Errorf("sqlite: %w: the database is opened with synchronous = %d, so that a power cut may undo what was acknowledged: open it with _pragma=synchronous(FULL), or accept the loss", backend.ErrInvalid, synchronous)
	}
	if journal == "off" || journal == "memory" {
		return fmt.Errorf("sqlite: %w: the database is opened with journal_mode = %s, so that a crash may destroy it: open it with _pragma=journal_mode(WAL), or accept the loss", backend.ErrInvalid, journal)
	}
	return nil
}

// Close implements [claim.Store].
func (s *Store) Close(ctx context.Context) error {
	err := s.Store.Close(ctx)
	s.tickets.close()
	s.file.close()
	if !s.owned {
		return err
	}
	if err := s.file.db.Close(); err != nil {
		return fmt.Errorf("sqlite: close: %w: %w", backend.ErrUnavailable, err)
	}
	return err
}

// Domain implements [claim.Local]. The domain names no boot if another kernel may reach the file.
func (s *Store) Domain(d clock.Domain) clock.Domain {
	if rest, linux := strings.CutPrefix(string(d), "linux/"); linux && !s.place.plain {
		return clock.Domain("shared/" + rest)
	}
	return d
}

// Serial implements [claim.Serial]. SQLite has one writer at a time.
func (s *Store) Serial() bool { return true }

// Gone implements [claim.Local]. A domain belongs to another boot only if it names one. The domain of a machine
// that cannot tell, or that shares the file, names none. And it is another boot of this machine only if the
// file is on the disk from which this machine runs: any other disk may have been attached to another machine a
// moment ago.
func (s *Store) Gone(d clock.Domain) bool {
	if !s.place.plain || !s.place.own {
		return false
	}
	theirs, ok := boot(d)
	ours, known := boot(s.config.here)
	return ok && known && theirs != ours
}

// boot returns the id of a boot from a domain of Linux. The time namespace, which follows the id in the domain,
// ends before the boot does, and nothing shows when.
func boot(d clock.Domain) (id string, ok bool) {
	rest, linux := strings.CutPrefix(string(d), "linux/")
	id, _, slash := strings.Cut(rest, "/")
	return id, linux && slash && id != ""
}
