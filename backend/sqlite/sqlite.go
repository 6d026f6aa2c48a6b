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

// DefaultPoll is how often who waits looks whether anybody has written.
const DefaultPoll = 15 * time.Millisecond

// Config is how a store is set up. The zero Config is good.
type Config struct {
	// Namespace separates leases that have nothing to do with each other. Empty means
	// [sqlstore.DefaultNamespace].
	Namespace string
	// Prefix is what the names of the tables begin with. Empty means [sqlstore.DefaultPrefix].
	Prefix string
	// Patience is for how long at most a locked file is waited for. Zero means [sqlstore.DefaultPatience].
	Patience time.Duration
	// Poll is how often who waits looks whether anybody has written. Zero means [DefaultPoll].
	Poll time.Duration
	// AcceptLoss accepts a database that was passed to [New] and is set up so that a power cut may undo writes
	// which were acknowledged: two may then hold one name.
	AcceptLoss bool

	// What tests put in the place of this machine.
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
		return fmt.Errorf("sqlite: %w: a poll of %v: one millisecond is the least", backend.ErrInvalid, c.Poll)
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

// place is what is known of where a file is. The zero place says that nobody knows who else reaches it.
type location struct {
	plain bool // on a file system of a disk or of memory, which only this kernel can have mounted
	own   bool // the one that this machine runs from
}

var (
	_ claim.Store    = (*Store)(nil)
	_ claim.Batcher  = (*Store)(nil)
	_ claim.Notifier = (*Store)(nil)
	_ claim.Queuer   = (*Store)(nil)
	_ claim.Local    = (*Store)(nil)
	_ claim.Clocks   = (*Store)(nil)
)

// Open opens a file, and makes it if it is not there.
func Open(ctx context.Context, path string, c Config) (*Store, error) {
	if path == "" || strings.HasPrefix(path, ":") || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("sqlite: %w: the path of a file is needed, and not %q: what is in memory is shared with nobody", backend.ErrInvalid, path)
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
	if err := onePath(absolute); err != nil { // before SQLite makes a log beside it
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
	s, err := newStore(ctx, db, c)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

// reachable says whether a file could be there: what SQLite says about it helps little.
func reachable(path string) error {
	if info, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sqlite: %w: the folder of %s cannot be read: make it first: %w", backend.ErrUnavailable, path, err)
	} else if !info.IsDir() {
		return fmt.Errorf("sqlite: %w: %s is no folder", backend.ErrInvalid, filepath.Dir(path))
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("sqlite: %w: %s is a folder: name a file in it", backend.ErrInvalid, path)
	}
	return nil
}

// source is the file in the words of the backend. The busy timeout is short, since who is not let in asks again. On
// macOS a sync does not reach the disk unless it is a full one; elsewhere that is the same.
func source(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // C:/...
		path = "/" + path
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(100)&_pragma=synchronous(EXTRA)&_pragma=fullfsync(1)"}
	return u.String()
}

// useWAL has the file use a log of what is to be written, so that readers and writers do not wait for each
// other. Where that cannot be, it is left as it is.
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

// New returns a store in a database of the caller's, whose driver is modernc.org/sqlite and which stays open
// when the store is closed. It is refused if its settings let a power cut undo what was acknowledged.
func New(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("sqlite: %w: no database", backend.ErrInvalid)
	}
	return newStore(ctx, db, c)
}

func newStore(ctx context.Context, db *sql.DB, c Config) (_ *Store, err error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	f := newFile(db)
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

// pathOf returns the path of a database, or none if it is in memory. SQLite has followed its symbolic links, except on
// Windows. It reads nothing of the file to say so.
func pathOf(ctx context.Context, db *sql.DB) (path string, err error) {
	var number int
	var name string
	if err := db.QueryRowContext(ctx, "PRAGMA database_list").Scan(&number, &name, &path); err != nil { // the main one is the first
		f := failureOf(err, false)
		return "", fmt.Errorf("sqlite: open: %w: %w", f.Kind, f)
	}
	return path, nil
}

// examine returns an error if what is written to the database would not be durable.
func (s *Store) examine(ctx context.Context, path string) error {
	const full = 2
	rows, failed := sqlstore.Ask(ctx, s.file, sqlstore.DefaultPatience, "SELECT (SELECT * FROM pragma_synchronous), (SELECT * FROM pragma_journal_mode)")
	if failed != nil {
		return fmt.Errorf("sqlite: open: %w: %w", failed.Kind, failed)
	}
	synchronous, _ := rows[0][0].(int64)
	journal, _ := rows[0][1].(string)
	s.file.wal = journal == "wal"
	if s.config.AcceptLoss || path == "" { // what is in memory does not survive anyway
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

// Domain implements [claim.Local]. That of a file which may be reached from under another kernel names no boot.
func (s *Store) Domain(d clock.Domain) clock.Domain {
	if rest, linux := strings.CutPrefix(string(d), "linux/"); linux && !s.place.plain {
		return clock.Domain("shared/" + rest)
	}
	return d
}

// Serial implements [claim.Serial]. SQLite has one writer at a time.
func (s *Store) Serial() bool { return true }

// Gone implements [claim.Local]. A domain is of another boot only if it names one: that of a machine that cannot
// tell, or that shares the file, is that of no boot. And it is of another boot of this machine only if the file is
// on the disk that this machine runs from: any other may have been attached to another machine a moment ago.
func (s *Store) Gone(d clock.Domain) bool {
	if !s.place.plain || !s.place.own {
		return false
	}
	theirs, ok := boot(d)
	ours, known := boot(s.config.here)
	return ok && known && theirs != ours
}

// boot returns the id of a boot from a domain of Linux. Its time namespace, which stands behind it, ends before
// the boot does, and nothing tells when.
func boot(d clock.Domain) (id string, ok bool) {
	rest, linux := strings.CutPrefix(string(d), "linux/")
	id, _, slash := strings.Cut(rest, "/")
	return id, linux && slash && id != ""
}
