package remote

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Schemes of URLs: with the second, connections are encrypted in any case.
const (
	Scheme    = "leasekeeper"
	SchemeTLS = "leasekeepers"
)

// DefaultRequestTimeout is how long one endpoint may take for one request if there is time for more.
const DefaultRequestTimeout = endpoints.DefaultRequestTimeout

// What the server accepts as a TTL.
const (
	minTTL = 100 * time.Millisecond
	maxTTL = 9_000_000_000_000 * time.Millisecond
)

// Config says where leases live. Only Endpoints must be given.
type Config struct {
	// Endpoints are members of one cluster, as host, host:port, or whatever a resolver of gRPC understands.
	Endpoints []string
	// Namespace stands before all names, with a slash between; empty means none. Programs that are to
	// exclude each other have the same.
	Namespace string
	// TLS is how connections are encrypted; nil means not at all.
	TLS *tls.Config
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
	if c.Namespace != "" {
		if err := backend.CheckName(c.Namespace); err != nil {
			return fmt.Errorf("the namespace: %w", err)
		}
	}
	return nil
}

// Backend keeps leases in a server.
type Backend struct {
	root      string // what every name on the wire begins with: the namespace and a slash, or nothing
	endpoints *endpoints.Set[*endpoint]
}

var (
	_ backend.Backend     = (*Backend)(nil)
	_ backend.Watcher     = (*Backend)(nil)
	_ backend.Historian   = (*Backend)(nil)
	_ backend.Announcer   = (*Backend)(nil)
	_ backend.Resumer     = (*Backend)(nil)
	_ backend.Revoker     = (*Backend)(nil)
	_ backend.Pinner      = (*Backend)(nil)
	_ backend.Transferrer = (*Backend)(nil)
)

// New returns a backend. It does not connect before it is used.
func New(cfg Config) (*Backend, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := new(Backend)
	if cfg.Namespace != "" {
		b.root = cfg.Namespace + "/"
	}
	var err error
	if b.endpoints, err = endpoints.Open(store, cfg.connections(), newEndpoint); err != nil {
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
	return backend.Limits{MinTTL: minTTL, MaxTTL: maxTTL, Granularity: time.Millisecond}
}

// Close implements [backend.Backend]. Calls that are under way end with [backend.ErrClosed], or with
// [backend.ErrUnknownOutcome] if they may have had an effect. It waits for them until ctx ends.
func (b *Backend) Close(ctx context.Context) error { return b.endpoints.Close(ctx) }

// lease is a reference to what the server keeps for a claim.
type lease struct {
	b      *Backend
	wire   string // its name there
	id     int64
	token  backend.Token // which it holds the name under, or will; 0 if it is not known whether it exists
	ttl    time.Duration
	holder string
	turn   atomic.Pointer[turn] // where "yours" is to come; nil if there is none
}

// Name implements [backend.Lease].
func (l *lease) Name() string { return l.wire[len(l.b.root):] }

// mine returns what a reference refers to, if this backend has made it.
func (b *Backend) mine(l backend.Lease) (*lease, error) {
	own, ok := l.(*lease)
	if !ok || own == nil || own.b != b {
		return nil, errForeign
	}
	return own, nil
}

var errForeign = fmt.Errorf("%w: that lease is not of this backend", backend.ErrInvalid)

// known is mine for what only a lease of known token can do.
func (b *Backend) known(l backend.Lease) (*lease, error) {
	own, err := b.mine(l)
	if err == nil && own.token == 0 {
		err = fmt.Errorf("%w: it is not known whether the claim of %s took effect: claim it again with the same ID, or release it",
			backend.ErrInvalid, own.Name())
	}
	return own, err
}

// millis is a TTL as the server counts it: rounded up.
func millis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// length is what the server's milliseconds are.
func length(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
