package mongodb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/driver"
)

// Schemes of URLs. The second looks up the members of the replica set in DNS.
const (
	Scheme    = "mongodb"
	SchemeSRV = "mongodb+srv"
)

// What is used where nothing else is said.
const (
	DefaultDatabase   = "leasekeeper"
	DefaultCollection = "leases"
	DefaultNamespace  = "default"
)

// patience is how long one statement may take at the most. The server is told, too.
const patience = 10 * time.Second

// Option changes how a [Store] is opened.
type Option func(*settings)

type settings struct {
	collection, namespace string
	storeClock            bool
	log                   *slog.Logger
}

// Collection names the collection of the records. What else is kept stands in collections beside it, whose
// names begin with its name. The default is [DefaultCollection].
func Collection(name string) Option { return func(s *settings) { s.collection = name } }

// Namespace keeps leases of the same names apart. The default is [DefaultNamespace].
func Namespace(name string) Option { return func(s *settings) { s.namespace = name } }

// StoreClock lets the clock of the database's primary decide when leases are over, so that the lease of
// somebody who died long ago can be taken at once. It trusts that clock, and that of the next primary, never
// to jump ahead. A namespace is made for it or not, once and for all.
func StoreClock() Option { return func(s *settings) { s.storeClock = true } }

// Log is where a warning goes if the server can lose what it has acknowledged. The default is nowhere.
func Log(l *slog.Logger) Option { return func(s *settings) { s.log = l } }

func (s settings) validate() error {
	for _, field := range []struct{ what, text, not string }{
		{"namespace", s.namespace, "/"},
		{"collection", s.collection, "$"},
	} {
		switch {
		case field.text == "", len(field.text) > 128, !utf8.ValidString(field.text), strings.ContainsAny(field.text, field.not+"\x00\n"):
			return fmt.Errorf("%w: the %s %.140q: give it 1 to 128 bytes of UTF-8 without %q", driver.ErrInvalid, field.what, field.text, field.not)
		}
	}
	if strings.HasPrefix(s.collection, "system.") {
		return fmt.Errorf("%w: the collection %q would be one of MongoDB's own", driver.ErrInvalid, s.collection)
	}
	return nil
}

// Store keeps the records of one namespace in a MongoDB database.
type Store struct {
	settings
	server server
	db     *mongo.Database
	// What is kept, each a collection.
	records, sightings, clocks, namespaces *mongo.Collection

	own    *mongo.Client // to be disconnected by Close; nil if it is the caller's
	once   sync.Once
	closed context.Context // ends with Close
	end    context.CancelFunc
}

var (
	_ claim.Store    = (*Store)(nil)
	_ claim.Batcher  = (*Store)(nil)
	_ claim.Notifier = (*Store)(nil)
	_ claim.Judge    = (*Store)(nil)
	_ claim.Clocks   = (*Store)(nil)
)

// NewStore returns the store of a namespace in the caller's database, and makes the namespace if there is
// none. It never closes the caller's client. Read and write concerns of db are not used: the store has its own.
func NewStore(ctx context.Context, db *mongo.Database, opts ...Option) (*Store, error) {
	s := &Store{settings: settings{collection: DefaultCollection, namespace: DefaultNamespace, log: slog.New(slog.DiscardHandler)}}
	for _, o := range opts {
		o(&s.settings)
	}
	if err := s.validate(); err != nil {
		return nil, err
	}
	if db == nil {
		return nil, fmt.Errorf("%w: no database is given", driver.ErrInvalid)
	}
	s.closed, s.end = context.WithCancel(context.Background())
	// A registry or preference that the caller's own documents need must not change ours.
	s.db = db.Client().Database(db.Name(), options.Database().SetReadPreference(readpref.Primary()).SetRegistry(bson.NewRegistry()))
	if err := s.open(ctx); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	var err error
	if s.server, err = s.meet(ctx); err != nil {
		return err
	}
	collection := func(suffix string) *mongo.Collection {
		return s.db.Collection(s.collection+suffix, options.Collection().SetReadConcern(s.server.readConcern()))
	}
	s.records, s.sightings, s.clocks, s.namespaces = collection(""), collection("_sightings"), collection("_clocks"), collection("_namespaces")
	if err := s.admit(ctx); err != nil {
		return err
	}
	return s.ensureNamespace(ctx)
}

// Scheme implements [claim.Store].
func (s *Store) Scheme() string { return Scheme }

// Judges implements [claim.Judge].
func (s *Store) Judges() bool { return s.storeClock }

// Close implements [claim.Store]. Calls that are under way end.
func (s *Store) Close(ctx context.Context) error {
	var err error
	s.once.Do(func() {
		s.end()
		if s.own != nil {
			err = s.own.Disconnect(ctx)
		}
	})
	if err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
		return fmt.Errorf("mongodb: close: %w", err)
	}
	return nil
}

// begin prepares one call. The context it returns ends with the caller's, with Close, and when the call has
// taken too long; and it has no session: what the caller does in a transaction of his is not ours.
func (s *Store) begin(ctx context.Context, what string) (context.Context, func(), error) {
	if s.closed.Err() != nil {
		return nil, nil, fmt.Errorf("%w: mongodb: %s", driver.ErrClosed, what)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%w: mongodb: %s was not begun: %w", driver.ErrUnavailable, what, err)
	}
	ctx, cancel := context.WithTimeout(mongo.NewSessionContext(ctx, nil), patience)
	stop := context.AfterFunc(s.closed, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// key is the _id of what is kept of a name, or of a domain, in this namespace. A namespace has no slash.
func (s *Store) key(name string) string { return s.namespace + "/" + name }

// kind says with what a call failed: that the store was closed meanwhile, or else what it was.
func (s *Store) kind(otherwise error) error {
	if s.closed.Err() != nil {
		return driver.ErrClosed
	}
	return otherwise
}
