package etcd

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Schemes of URLs: with the second, connections are encrypted in any case.
const (
	Scheme    = "etcd"
	SchemeTLS = "etcds"
)

// DefaultRequestTimeout is how long one endpoint may take for one request if there is time for more.
const DefaultRequestTimeout = endpoints.DefaultRequestTimeout

// What etcd accepts as a TTL. It raises what is below its own minimum, which depends on its election timeout
// and is two seconds by default, and says so in its answer.
const (
	minTTL = time.Second
	maxTTL = 9_000_000_000 * time.Second
)

// Config says where leases live. Only Endpoints must be given.
type Config struct {
	// Endpoints are members of one cluster, as host, host:port, or whatever a resolver of gRPC understands.
	Endpoints []string
	// Prefix stands before all names, with a slash between; empty means that names are keys. Programs that
	// are to exclude each other have the same.
	Prefix string
	// TLS is how connections are encrypted; nil means not at all.
	TLS *tls.Config
	// Username and Password are those of a user of etcd's; empty means none.
	Username, Password string
	// RequestTimeout is how long one endpoint may take for one request if there is time to ask another; 0
	// means [DefaultRequestTimeout].
	RequestTimeout time.Duration
	// DialOptions are applied after those of this package.
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
		return fmt.Errorf("%w: the prefix %q ends with a slash: leave it out", backend.ErrInvalid, c.Prefix)
	}
	if c.Username == "" && c.Password != "" {
		return fmt.Errorf("%w: a password for etcd is given without a user", backend.ErrInvalid)
	}
	return nil
}

// Backend keeps leases in etcd.
type Backend struct {
	root      string // what every key begins with: the prefix and a slash, or nothing
	endpoints *endpoints.Set[*endpoint]
	user      user
}

var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Watcher   = (*Backend)(nil)
	_ backend.Announcer = (*Backend)(nil)
	_ backend.Resumer   = (*Backend)(nil)
	_ backend.Revoker   = (*Backend)(nil)
)

// New returns a backend. It does not connect before it is used.
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

// Close implements [backend.Backend]. Calls that are under way end with [backend.ErrClosed], or with
// [backend.ErrUnknownOutcome] if they may have had an effect. It waits for them until ctx ends.
func (b *Backend) Close(ctx context.Context) error { return b.endpoints.Close(ctx) }

// lease is a reference to the key that stands for a claim.
type lease struct {
	b       *Backend
	name    string
	key     string
	id      int64
	created int64 // the create revision of the key: the token; 0 if that is not known
	ttl     time.Duration
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
