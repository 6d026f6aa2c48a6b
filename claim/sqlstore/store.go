package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Version is the version of the schema that this package creates and understands.
const Version = 2

// DefaultNamespace is the namespace of leases if none is given.
const DefaultNamespace = "default"

// DefaultPatience is how long a busy database is asked again.
const DefaultPatience = 10 * time.Second

// Config says how a store is set up. The zero Config is good.
type Config struct {
	// Namespace separates leases that are independent of each other. Empty means [DefaultNamespace].
	Namespace string
	// Prefix is the prefix of the names of the tables. Empty means [DefaultPrefix].
	Prefix string
	// Schema is the database schema of the tables, if the database has schemas. Empty omits it from the
	// statements.
	Schema string
	// StoreClock makes the database's own clock decide when leases end, if the database can. It is a property
	// of the namespace and never changes.
	StoreClock bool
	// Patience is how long a statement is repeated at most while the database is only busy. Zero means
	// [DefaultPatience].
	Patience time.Duration
	// AcceptLoss accepts that a crash may undo acknowledged writes.
	AcceptLoss bool
}

func (c *Config) complete() error {
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if err := backend.CheckName(c.Namespace); err != nil {
		return fmt.Errorf("the namespace: %w", err)
	}
	if c.Patience < 0 {
		return fmt.Errorf("%w: the patience is %v: it cannot be negative", backend.ErrInvalid, c.Patience)
	}
	return tables{schema: c.Schema, prefix: c.Prefix}.check()
}

// The modes of a namespace, as its row has them.
const (
	modeWriter = "writer" // the clocks of a record's writer judge, as others can observe them
	modeStore  = "store"  // the clock of the database judges
)

func (c Config) mode() string {
	if c.StoreClock {
		return modeStore
	}
	return modeWriter
}

// Store keeps records in a database. It is the common part of the stores of all SQL databases.
type Store struct {
	db         DB
	dialect    Dialect
	config     Config
	tables     tables
	statements statements
	notifier   OwnerNotifier // nil if the database cannot notify
	queue      *writeQueue
	unqueued   bool           // no write of this store waits, because it is closed; guarded by the lock of queue
	batches    sync.WaitGroup // that are under way on this store's database
	memory     pastCache
	queues     atomic.Bool // the table of tickets is used
	looks      atomic.Bool // the function for looks is used
	closed     chan struct{}
	close      sync.Once
}

var (
	_ claim.Store    = (*Store)(nil)
	_ claim.Batcher  = (*Store)(nil)
	_ claim.Gatherer = (*Store)(nil)
	_ claim.Bounded  = (*Store)(nil)
	_ claim.Clocks   = (*Store)(nil)
	_ claim.Marker   = (*Store)(nil)
)

// New returns a store. It creates the tables and the namespace if they do not exist.
func New(ctx context.Context, db DB, d Dialect, c Config) (*Store, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	t := tables{schema: c.Schema, prefix: c.Prefix}
	s := &Store{db: db, dialect: d, config: c, tables: t, statements: d.statements(t), closed: make(chan struct{})}
	s.notifier, _ = db.(OwnerNotifier)
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	s.queue = queueOf(db, c, s.tables.marks)
	return s, nil
}

// Config returns how the store is set up, with the defaults filled in.
func (s *Store) Config() Config { return s.config }

// prepare creates what is missing.
func (s *Store) prepare(ctx context.Context) error {
	version, marks, err := s.schemaVersion(ctx)
	if err != nil {
		return err
	}
	if version > Version {
		return fmt.Errorf("%s: %w: the tables are of version %d, and this program knows those of version %d: use a newer leasekeeper", s.Scheme(), backend.ErrInvalid, version, Version)
	}
	if version > 0 && version < Version {
		return fmt.Errorf("%s: %w: the tables %s* are of version %d, and this program knows those of version %d: use the leasekeeper that made them, or other tables (another prefix); or, if no lease in them is held, drop them and raise the floor of the new ones above all their tokens",
			s.Scheme(), backend.ErrInvalid, s.config.Prefix, version, Version)
	}
	space, err := s.namespace(ctx)
	if errors.Is(err, errNoNamespace) {
		if _, f := s.query(ctx, s.statements.enter, s.config.Namespace, s.config.mode(), int64(Version)); f != nil {
			return fmt.Errorf("%s: make the namespace: %w: %w", s.Scheme(), f.HarmlessKind(), f.detail())
		}
		space, err = s.namespace(ctx)
	}
	if err == nil {
		err = s.checkMode(space.mode)
	}
	if err == nil {
		s.prepareMarks(ctx, marks)
	}
	return err
}

// schemaVersion returns the version of the tables, and whether there is a column of marks. If there are no tables, it
// creates them.
func (s *Store) schemaVersion(ctx context.Context) (version int64, marks bool, err error) {
	const attempts = 3 // others may be creating the same tables
	for attempt := 1; ; attempt++ {
		rows, f := s.query(ctx, s.statements.version)
		if f == nil {
			r := reader{values: rows[0]}
			version, marks = r.number("version"), r.flag("mark")
			if r.wrong != nil {
				return 0, false, fmt.Errorf("%s: %w: the version of the tables: %v", s.Scheme(), backend.ErrCorrupt, r.wrong)
			}
			return version, marks, nil
		}
		if !f.Missing || attempt == attempts {
			return 0, false, fmt.Errorf("%s: read the version of the tables: %w: %w", s.Scheme(), f.HarmlessKind(), f.detail())
		}
		err := s.db.Script(ctx, s.dialect.createTables(s.tables))
		if f := failureOf(err); err != nil && f.Denied {
			return 0, false, fmt.Errorf("%s: %w: the tables %s* are not there, and this user may not make them: have the owner of the database run what %s prints: %w",
				s.Scheme(), backend.ErrInvalid, s.config.Prefix, s.config.SchemaCommand(s.dialect), f.Err)
		} else if err != nil && attempt == attempts-1 {
			return 0, false, fmt.Errorf("%s: make the tables: %w: %w", s.Scheme(), f.HarmlessKind(), f.detail())
		}
	}
}

// SchemaCommand returns the command that prints exactly these tables, for use in advice.
func (c Config) SchemaCommand(d Dialect) string {
	flag := ""
	if c.Prefix != "" && c.Prefix != DefaultPrefix {
		flag = " --prefix " + c.Prefix
	}
	return "`leasekeeper schema " + d.Scheme() + flag + "`"
}

// errNoNamespace says that a namespace has no row.
var errNoNamespace = fmt.Errorf("%w: the namespace is not there", backend.ErrInvalid)

// space is the row of the namespace.
type space struct {
	mode   string
	commit string // "off" if a crash may undo commits of this connection
}

func (s *Store) namespace(ctx context.Context) (space, error) {
	rows, err := s.read(ctx, "read the namespace", s.statements.space, s.config.Namespace)
	if err != nil {
		return space{}, err
	}
	if len(rows) == 0 {
		return space{}, errNoNamespace
	}
	r := reader{values: rows[0]}
	mode, floor, commit := r.text("mode"), r.number("floor"), r.text("synchronous_commit")
	if r.wrong != nil || floor < 0 {
		return space{}, fmt.Errorf("%s: %w: the row of namespace %s: %v", s.Scheme(), backend.ErrCorrupt, s.config.Namespace, r.wrong)
	}
	return space{mode, commit}, nil
}

// checkMode returns an error if the namespace has another mode than this store was set up for.
func (s *Store) checkMode(mode string) error {
	if mode == s.config.mode() {
		return nil
	}
	return fmt.Errorf("%s: %w: namespace %s was made with clock=%s, and cannot be used with clock=%s: open it as it was made, or use another namespace",
		s.Scheme(), backend.ErrInvalid, s.config.Namespace, mode, s.config.mode())
}

// errNamespaceGone returns the error for a namespace whose row was deleted.
func (s *Store) errNamespaceGone() error {
	return fmt.Errorf("%s: %w: the row of namespace %s was deleted: its tokens can no longer be trusted: open it again to create another, and raise its floor above all tokens that were seen",
		s.Scheme(), backend.ErrInvalid, s.config.Namespace)
}

// Scheme implements [claim.Store].
func (s *Store) Scheme() string { return s.dialect.Scheme() }

// Get implements [claim.Store].
func (s *Store) Get(ctx context.Context, name string) (claim.Found, error) {
	if textFits(name) != nil {
		return claim.Found{}, fmt.Errorf("%s: %w", s.Scheme(), textFits(name))
	}
	statement := s.statements.get
	if s.queues.Load() {
		statement = s.statements.queue.get
	}
	rows, err := s.read(ctx, "read "+name, statement, s.config.Namespace, name)
	if err != nil {
		return claim.Found{}, err
	}
	if len(rows) == 0 {
		return claim.Found{}, s.errNamespaceGone()
	}
	f, err := s.found(rows[0], &s.memory)
	f.Waiting, _ = rows[0][len(rows[0])-1].(bool)
	if err == nil && f.Err != nil {
		err, f.Err = f.Err, nil
	}
	f.Record.Name = name // also if the name has no record
	return f, err
}

// GetAll implements [claim.Gatherer]. It is one statement for every [maxList] names.
func (s *Store) GetAll(ctx context.Context, names []string) ([]claim.Found, error) {
	all, places := make([]claim.Found, len(names)), make(map[string]int, len(names))
	for i, name := range names {
		if err := textFits(name); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Scheme(), err)
		}
		places[name] = i
	}
	for first := 0; first < len(names); first += maxList {
		some := names[first:min(first+maxList, len(names))]
		rows, err := s.read(ctx, fmt.Sprintf("read %d records", len(some)), s.statements.gather, s.config.Namespace, s.dialect.names(some))
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			return nil, s.errNamespaceGone()
		}
		var floor backend.Token
		for _, values := range rows {
			f, err := s.found(values, nil)
			if err != nil {
				return nil, err
			}
			floor = f.Floor
			if i, asked := places[f.Record.Name]; asked {
				all[i] = f
			}
		}
		for i := range some { // also if the name has no record
			all[first+i].Record.Name, all[first+i].Floor = some[i], floor
		}
	}
	return all, nil
}

// found reads one row.
func (s *Store) found(values []any, m *pastCache) (claim.Found, error) {
	f, mode, err := found(values, m)
	if err != nil {
		return f, fmt.Errorf("%s: %w", s.Scheme(), err)
	}
	if f.Err != nil {
		f.Err = fmt.Errorf("%s: %w", s.Scheme(), f.Err)
	}
	if !s.config.StoreClock {
		f.Left = 0
	}
	return f, s.checkMode(mode)
}

// maxList bounds how many records are read at once.
const maxList = 10_000

// List implements [claim.Store].
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]claim.Found, error) {
	if !utf8.ValidString(prefix) || !utf8.ValidString(after) {
		return nil, fmt.Errorf("%s: %w: names are listed by a beginning that is UTF-8, and not %.100q after %.100q", s.Scheme(), backend.ErrInvalid, prefix, after)
	}
	if limit <= 0 || strings.ContainsRune(prefix, 0) { // no name has a zero byte
		return nil, nil
	}
	after, _, _ = strings.Cut(after, "\x00") // what sorts after the part before a zero byte also sorts after the whole
	statement, args := s.statements.list, []any{s.config.Namespace, prefix, after, int64(min(limit, maxList))}
	if end := following(prefix); end != "" {
		statement, args = s.statements.within, append(args, end)
	}
	rows, err := s.read(ctx, "list "+prefix, statement, args...)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, s.errNamespaceGone()
	}
	var all []claim.Found
	for _, values := range rows {
		f, err := s.found(values, nil)
		if err != nil {
			return nil, err
		}
		if f.Record.Name != "" {
			all = append(all, f)
		}
	}
	return all, nil
}

// following returns the least UTF-8 text that sorts after all texts which begin with prefix, by their bytes; or
// "" if there is none.
func following(prefix string) string {
	for prefix != "" {
		r, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case r == utf8.MaxRune:
			continue
		case r+1 == 0xd800: // 0xd800 to 0xdfff cannot be written in UTF-8
			r = 0xe000
		default:
			r++
		}
		return prefix + string(r)
	}
	return ""
}

// Close implements [claim.Store]. The owner of the database closes that.
func (s *Store) Close(context.Context) error {
	s.close.Do(func() { close(s.closed) })
	return nil
}

// Closed returns a channel that is closed with the store.
func (s *Store) Closed() <-chan struct{} { return s.closed }

// ErrClosed returns the error of calls to a closed store.
func (s *Store) ErrClosed() error {
	return fmt.Errorf("%s: %w: the store was closed by this program", s.Scheme(), backend.ErrClosed)
}
