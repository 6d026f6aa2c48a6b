package mongodb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// The schemes of URLs. The second looks up the members of the replica set in DNS.
const (
	Scheme    = "mongodb"
	SchemeSRV = "mongodb+srv"
)

// The defaults.
const (
	DefaultDatabase  = "leasekeeper" // of a URL
	DefaultPrefix    = "leasekeeper_"
	DefaultNamespace = "default"
)

// patience is how long one statement may take at most. The server gets that limit, too.
const patience = 10 * time.Second

// Config says how a store is set up. The zero Config is good.
type Config struct {
	// Namespace separates leases that are independent of each other. Empty means [DefaultNamespace].
	Namespace string
	// Prefix is the prefix of the names of the collections. Empty means [DefaultPrefix].
	Prefix string
	// StoreClock makes the clock of the primary decide when leases end. It is a property of the namespace and
	// never changes.
	StoreClock bool
	// Log receives a warning if the server may lose what it acknowledges. The default discards it.
	Log *slog.Logger
}

func (c *Config) complete() error {
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	const most = 128
	if text := c.Namespace; len(text) > most || !utf8.ValidString(text) || strings.ContainsAny(text, "/\n\x00") {
		return fmt.Errorf("mongodb: %w: the namespace %.140q: it has at most %d bytes of UTF-8, and no slash or line break", backend.ErrInvalid, text, most)
	}
	if text := c.Prefix; len(text) > most || !utf8.ValidString(text) || strings.ContainsAny(text, "$\x00") || strings.HasPrefix(text, "system.") {
		return fmt.Errorf("mongodb: %w: the prefix %.140q cannot begin names of collections: use letters, digits and _", backend.ErrInvalid, text)
	}
	return nil
}

// Store keeps leases in a MongoDB database. It is safe for concurrent use.
type Store struct {
	config Config
	server server
	db     *mongo.Database
	// Each kind of document has a collection.
	records, observations, clocks, namespaces *mongo.Collection
	tickets                                   *mongo.Collection // no decision depends on them
	noTickets                                 atomic.Bool       // the user may not use them

	cautions []string // about the server, found when it was opened

	owned  *mongo.Client // opened here; nil if it is the caller's
	once   sync.Once
	closed context.Context // ends with Close
	end    context.CancelFunc
}

var (
	_ claim.Store    = (*Store)(nil)
	_ claim.Batcher  = (*Store)(nil)
	_ claim.Gatherer = (*Store)(nil)
	_ claim.Notifier = (*Store)(nil)
	_ claim.Judge    = (*Store)(nil)
	_ claim.Clocks   = (*Store)(nil)

	_ claim.Preferrer = (*Store)(nil)

	_ backend.Cautious = (*Store)(nil)
)

// New returns a store in the caller's database. Its client stays connected when the store is closed. The store
// does not use the concerns and preferences of db, but its own.
func New(ctx context.Context, db *mongo.Database, c Config) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("mongodb: %w: the database is nil: give one", backend.ErrInvalid)
	}
	if err := c.complete(); err != nil {
		return nil, err
	}
	s := &Store{config: c}
	s.closed, s.end = context.WithCancel(context.Background())
	// A registry or preference that the caller's own documents need must not change the store's.
	s.db = db.Client().Database(db.Name(), options.Database().SetReadPreference(readpref.Primary()).SetRegistry(bson.NewRegistry()))
	if err := s.setUp(ctx); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (s *Store) setUp(ctx context.Context) error {
	var err error
	if s.server, err = s.inspectServer(ctx); err != nil {
		return err
	}
	s.useCollections()
	if err := s.admit(ctx); err != nil {
		return err
	}
	return s.ensureNamespace(ctx)
}

// useCollections sets the collections. The server is known.
func (s *Store) useCollections() {
	collection := func(suffix string) *mongo.Collection {
		return s.db.Collection(s.config.Prefix+suffix, options.Collection().SetReadConcern(s.server.readConcern()))
	}
	s.records, s.observations, s.clocks, s.namespaces = collection("leases"), collection("sightings"), collection("clocks"), collection("namespaces")
	s.tickets = s.db.Collection(s.config.Prefix+"tickets", options.Collection().SetReadConcern(readconcern.Local()))
}

// Scheme implements [claim.Store].
func (s *Store) Scheme() string { return Scheme }

// Judges implements [claim.Judge].
func (s *Store) Judges() bool { return s.config.StoreClock }

// Cautions implements [backend.Cautious]: it returns the warnings that went to [Config.Log].
func (s *Store) Cautions() []string { return slices.Clone(s.cautions) }

// Close implements [claim.Store]. Calls under way end.
func (s *Store) Close(ctx context.Context) error {
	var err error
	s.once.Do(func() {
		s.end()
		if s.owned != nil {
			err = s.owned.Disconnect(ctx)
		}
	})
	if err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
		return fmt.Errorf("mongodb: close: %w", err)
	}
	return nil
}

// begin prepares one call. The returned context ends with the caller's, with Close, and after patience. It has
// no session: the store's reads and writes are no part of a transaction of the caller's.
func (s *Store) begin(ctx context.Context, what string) (context.Context, func(), error) {
	if s.closed.Err() != nil {
		return nil, nil, fmt.Errorf("mongodb: %w: %s", backend.ErrClosed, what)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("mongodb: %w: %s: %w", backend.ErrUnavailable, what, err)
	}
	ctx, cancel := context.WithTimeout(mongo.NewSessionContext(ctx, nil), patience)
	stop := context.AfterFunc(s.closed, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// key returns the _id of data about a name, or a domain, in this namespace. A namespace has no slash.
func (s *Store) key(name string) string { return s.config.Namespace + "/" + name }

// kind returns the kind of error of a failed call: ErrClosed if the store was closed meanwhile, else the given
// one.
func (s *Store) kind(otherwise error) error {
	if s.closed.Err() != nil {
		return backend.ErrClosed
	}
	return otherwise
}
