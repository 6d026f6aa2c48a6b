package remote

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/credential"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// The schemes of URLs. SchemeTLS always encrypts connections.
const (
	Scheme    = "leasekeeper"
	SchemeTLS = "leasekeepers"
)

// DefaultRequestTimeout is how long one endpoint may take for one request while there is time to ask another.
const DefaultRequestTimeout = endpoints.DefaultRequestTimeout

// The TTLs that the server accepts.
const (
	minTTL = 100 * time.Millisecond
	maxTTL = 9_000_000_000_000 * time.Millisecond
)

// Config says how to reach the server. Endpoints is required.
type Config struct {
	// Endpoints are members of one cluster, as host, host:port, or any target that gRPC's resolvers understand.
	Endpoints []string
	// Namespace is prepended to every name on the server, with a slash between. Programs exclude each other only if they use
	// the same namespace. Empty means none.
	Namespace string
	// TLS encrypts connections; nil means plain text.
	TLS *tls.Config
	// Username and Password are a user of the cluster; empty means none. A client with a certificate is the user that its
	// common name names, unless Username is set.
	Username, Password string
	// RequestTimeout is how long one endpoint may take for one request while there is time to ask another. 0 means
	// [DefaultRequestTimeout].
	RequestTimeout time.Duration
	// DialOptions follow the options of this package, and override them.
	DialOptions []grpc.DialOption
}

func (c Config) connections() endpoints.Config {
	return endpoints.Config{Endpoints: c.Endpoints, TLS: c.TLS, RequestTimeout: c.RequestTimeout, DialOptions: c.DialOptions}
}

func (c Config) validate() error {
	if err := store.Validate(c.connections()); err != nil {
		return err
	}
	if c.Namespace != "" {
		if err := backend.CheckName(c.Namespace); err != nil {
			return fmt.Errorf("the namespace: %w", err)
		}
	}
	if c.Username == "" && c.Password != "" {
		return fmt.Errorf("%w: a password for the server is given without a user: add the user, or omit the password", backend.ErrInvalid)
	}
	return nil
}

// Backend keeps leases in a server.
type Backend struct {
	root      string // the prefix of every name on the wire: the namespace and a slash, or empty
	endpoints *endpoints.Set[*endpoint]
	user      *credential.User // nil if no user is given
	// confirmedHold is a time, in nanoseconds, for which the server would hold a name after its release; 0 if none is known.
	confirmedHold atomic.Int64
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Watcher       = (*Backend)(nil)
	_ backend.Historian     = (*Backend)(nil)
	_ backend.Announcer     = (*Backend)(nil)
	_ backend.Resumer       = (*Backend)(nil)
	_ backend.Revoker       = (*Backend)(nil)
	_ backend.Pinner        = (*Backend)(nil)
	_ backend.Transferrer   = (*Backend)(nil)
	_ backend.Marker        = (*Backend)(nil)
	_ backend.MarkLister    = (*Backend)(nil)
	_ backend.Finisher      = (*Backend)(nil)
	_ backend.HoldConfirmer = (*Backend)(nil)
	_ backend.Preferrer     = (*Backend)(nil)
	_ backend.QueueLister   = (*Backend)(nil)
)

// New returns a backend. It connects at the first request.
func New(cfg Config) (*Backend, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := new(Backend)
	if cfg.Namespace != "" {
		b.root = cfg.Namespace + "/"
	}
	connections := cfg.connections()
	if cfg.Username != "" {
		b.user = credential.New(credential.Config{
			Name: cfg.Username, Password: cfg.Password, Refused: errTokenRefused(), NeedsToken: needsToken, Limit: DefaultRequestTimeout,
		})
		connections.DialOptions = append(b.user.Options(), connections.DialOptions...)
	}
	var err error
	b.endpoints, err = endpoints.Open(store, connections, func(conn *grpc.ClientConn) *endpoint { return newEndpoint(conn, b.user) })
	if err != nil {
		return nil, err
	}
	for _, w := range b.endpoints.All() {
		w.start(b.endpoints)
	}
	return b, nil
}

// Scheme implements [backend.Backend].
func (b *Backend) Scheme() string { return Scheme }

// Limits implements [backend.Backend].
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{MinTTL: minTTL, MaxTTL: maxTTL, Granularity: time.Millisecond, Priorities: true}
}

// Close implements [backend.Backend]. Calls under way end with [backend.ErrClosed], or with [backend.ErrUnknownOutcome] if they
// may have had an effect. Close waits for them until ctx ends.
func (b *Backend) Close(ctx context.Context) error { return b.endpoints.Close(ctx) }

// lease refers to a lease of the server.
type lease struct {
	b    *Backend
	wire string // its name on the wire
	id   int64
	// newest is the token of its tenure, also while it waits; 0 if it is unknown whether the lease exists. It rises when
	// other claims overtake this one.
	newest atomic.Uint64
	ttl    time.Duration
	holder string
	// markDoubted: a RaiseMark has ended with an unknown outcome, and none has succeeded since.
	markDoubted atomic.Bool
	turn        atomic.Pointer[turn] // receives the turn of a lease that waits; nil if it holds the name, or a stream broke
}

// Name implements [backend.Lease].
func (l *lease) Name() string { return l.wire[len(l.b.root):] }

// Backend implements [endpoints.Lease].
func (l *lease) Backend() *Backend { return l.b }

// Known implements [endpoints.Lease].
func (l *lease) Known() bool { return l.token() != 0 }

func (l *lease) token() backend.Token { return backend.Token(l.newest.Load()) }

// ttlUnit is the unit in which the server counts TTLs.
const ttlUnit = endpoints.Unit(time.Millisecond)
