package etcd

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// The schemes of URLs. SchemeTLS always encrypts connections.
const (
	Scheme    = "etcd"
	SchemeTLS = "etcds"
)

// DefaultRequestTimeout is how long one endpoint may take for one request while there is time to ask another.
const DefaultRequestTimeout = endpoints.DefaultRequestTimeout

// The TTLs that etcd accepts. It raises a TTL below its own minimum, and answers with the raised one. That minimum depends on
// its election timeout; by default it is two seconds.
const (
	minTTL = time.Second
	maxTTL = 9_000_000_000 * time.Second
)

// Config says how to reach etcd. Endpoints is required.
type Config struct {
	// Endpoints are members of one cluster, as host, host:port, or any target that gRPC's resolvers understand.
	Endpoints []string
	// Prefix is prepended to every name in etcd, with a slash between. Programs exclude each other only if they use the same
	// prefix. Empty means that names are keys.
	Prefix string
	// TLS encrypts connections; nil means plain text.
	TLS *tls.Config
	// Username and Password are a user of etcd; empty means none.
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
	if !utf8.ValidString(c.Prefix) || strings.ContainsFunc(c.Prefix, unicode.IsControl) {
		return fmt.Errorf("%w: the prefix %q cannot be part of a name", backend.ErrInvalid, c.Prefix)
	}
	if strings.HasSuffix(c.Prefix, "/") {
		return fmt.Errorf("%w: the prefix %q ends with a slash: omit the slash", backend.ErrInvalid, c.Prefix)
	}
	if c.Username == "" && c.Password != "" {
		return fmt.Errorf("%w: a password for etcd is given without a user: add the user, or omit the password", backend.ErrInvalid)
	}
	return nil
}

// Backend keeps leases in etcd.
type Backend struct {
	root      string // the prefix of every key: Config.Prefix and a slash, or empty
	endpoints *endpoints.Set[*endpoint]
	user      user
}

var (
	_ backend.Backend    = (*Backend)(nil)
	_ backend.Watcher    = (*Backend)(nil)
	_ backend.Announcer  = (*Backend)(nil)
	_ backend.Resumer    = (*Backend)(nil)
	_ backend.Revoker    = (*Backend)(nil)
	_ backend.Marker     = (*Backend)(nil)
	_ backend.MarkLister = (*Backend)(nil)
	_ backend.Finisher   = (*Backend)(nil)
)

// New returns a backend. It connects at the first request.
func New(cfg Config) (*Backend, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := new(Backend)
	if cfg.Prefix != "" {
		b.root = cfg.Prefix + "/"
	}
	var err error
	if b.endpoints, err = endpoints.Open(store, cfg.connections(), newEndpoint); err != nil {
		return nil, err
	}
	b.user.name, b.user.password = cfg.Username, cfg.Password
	return b, nil
}

// Scheme implements [backend.Backend].
func (b *Backend) Scheme() string { return Scheme }

// Limits implements [backend.Backend].
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{MinTTL: minTTL, MaxTTL: maxTTL, Granularity: time.Second}
}

// Close implements [backend.Backend]. Calls under way end with [backend.ErrClosed], or with [backend.ErrUnknownOutcome] if
// they may have had an effect. Close waits for them until ctx ends.
func (b *Backend) Close(ctx context.Context) error { return b.endpoints.Close(ctx) }

// lease refers to the key that a claim has put into etcd.
type lease struct {
	b       *Backend
	name    string
	key     string
	id      int64
	created int64 // the create revision of the key, which is the token; 0 if unknown
	ttl     time.Duration
	// mayBeHeldOn says that a [Backend.Finish] may have left the name held.
	mayBeHeldOn atomic.Bool
}

// Name implements [backend.Lease].
func (l *lease) Name() string { return l.name }

func (l *lease) token() backend.Token { return backend.Token(l.created) }

// Backend implements [endpoints.Lease].
func (l *lease) Backend() *Backend { return l.b }

// Known implements [endpoints.Lease].
func (l *lease) Known() bool { return l.created != 0 }

// ttlUnit is the unit in which etcd counts TTLs.
const ttlUnit = endpoints.Unit(time.Second)
