package remote

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/driver"
)

// Schemes of URLs: with the second, connections are encrypted in any case.
const (
	Scheme    = "leasekeeper"
	SchemeTLS = "leasekeepers"
)

// DefaultRequestTimeout is how long one endpoint may take for one request if there is time for more.
const DefaultRequestTimeout = 3 * time.Second

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

func (c Config) validate() error {
	if len(c.Endpoints) == 0 {
		return fmt.Errorf("%w: no endpoint of a server is given: name at least one, as in leasekeeper://host:2379", driver.ErrInvalid)
	}
	for _, e := range c.Endpoints {
		if strings.TrimSpace(e) == "" {
			return fmt.Errorf("%w: one of the endpoints of the server is empty", driver.ErrInvalid)
		}
	}
	if c.Namespace != "" {
		if err := driver.CheckName(c.Namespace); err != nil {
			return fmt.Errorf("the namespace: %w", err)
		}
	}
	if c.RequestTimeout < 0 {
		return fmt.Errorf("%w: the request timeout is negative", driver.ErrInvalid)
	}
	return nil
}

// Backend keeps leases in a server.
type Backend struct {
	cfg       Config
	root      string // what every name on the wire begins with: the namespace and a slash, or nothing
	ways      []*way
	preferred atomic.Int64    // counts on when a way is left; modulo the number of ways
	base      context.Context // ends when the backend is closed
	endBase   context.CancelCauseFunc
	loops     sync.WaitGroup // goroutines that outlive the call they were started by

	mu     sync.Mutex
	calls  int
	closed bool
	idle   chan struct{} // closed when it is closed and no call is left
	hung   sync.Once     // ends the connections
}

var (
	_ driver.Backend     = (*Backend)(nil)
	_ driver.Watcher     = (*Backend)(nil)
	_ driver.Historian   = (*Backend)(nil)
	_ driver.Announcer   = (*Backend)(nil)
	_ driver.Adopter     = (*Backend)(nil)
	_ driver.Revoker     = (*Backend)(nil)
	_ driver.Pinner      = (*Backend)(nil)
	_ driver.Transferrer = (*Backend)(nil)
)

// New returns a backend. It does not connect before it is used.
func New(cfg Config) (*Backend, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	b := &Backend{cfg: cfg, idle: make(chan struct{})}
	if cfg.Namespace != "" {
		b.root = cfg.Namespace + "/"
	}
	b.base, b.endBase = context.WithCancelCause(context.Background())
	endpoints := cfg.Endpoints
	if len(endpoints) == 1 {
		// Two connections: another way when the first is dead. None is made before it is needed.
		endpoints = []string{endpoints[0], endpoints[0]}
	}
	for _, endpoint := range endpoints {
		w, err := b.newWay(withPort(endpoint))
		if err != nil {
			b.endBase(errClosed)
			b.hangUp()
			return nil, fmt.Errorf("%w: the endpoint %q of the server: %w", driver.ErrInvalid, endpoint, err)
		}
		b.ways = append(b.ways, w)
	}
	return b, nil
}

// withPort adds the server's port to a host that has none.
func withPort(endpoint string) string {
	if strings.Contains(endpoint, "://") || strings.HasPrefix(endpoint, "unix:") {
		return endpoint
	}
	if _, _, err := net.SplitHostPort(endpoint); err == nil {
		return endpoint
	}
	return net.JoinHostPort(strings.Trim(endpoint, "[]"), "2379")
}

// Scheme implements [driver.Backend].
func (b *Backend) Scheme() string { return Scheme }

// Limits implements [driver.Backend].
func (b *Backend) Limits() driver.Limits {
	return driver.Limits{MinTTL: minTTL, MaxTTL: maxTTL, Granularity: time.Millisecond}
}

// begin is at the start of every call from outside, and end at its end. The context it returns ends with the
// backend too.
func (b *Backend) begin(ctx context.Context) (inner context.Context, end func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, errClosed
	}
	b.calls++
	inner, cancel := context.WithCancelCause(ctx)
	leave := context.AfterFunc(b.base, func() { cancel(errClosed) })
	return inner, func() {
		leave()
		cancel(nil)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.calls--; b.calls == 0 && b.closed {
			close(b.idle)
		}
	}, nil
}

// spawn starts a goroutine that Close waits for. It returns false if the backend is closed.
func (b *Backend) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.loops.Go(f)
	return true
}

var errClosed = fmt.Errorf("%w: the connections to the server were given up", driver.ErrClosed)

// Close implements [driver.Backend]. Calls that are under way end with [driver.ErrClosed], or with
// [driver.ErrUnknownOutcome] if they may have had an effect. It waits for them until ctx ends.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		if b.calls == 0 {
			close(b.idle)
		}
	}
	b.mu.Unlock()
	b.endBase(errClosed)
	var err error
	select {
	case <-b.idle:
	case <-ctx.Done():
		err = fmt.Errorf("closing the connections to the server, calls are still under way: %w", context.Cause(ctx))
	}
	b.hangUp()
	b.loops.Wait() // soon: their streams have ended
	return err
}

func (b *Backend) hangUp() {
	b.hung.Do(func() {
		for _, w := range b.ways {
			w.conn.Close()
		}
	})
}

// lease is a reference to what the server keeps for a claim.
type lease struct {
	b      *Backend
	name   string
	id     int64
	token  driver.Token // which it holds the name under, or will; 0 if it is not known whether it exists
	ttl    time.Duration
	holder string
	turn   atomic.Pointer[turn] // the stream on which "yours" is to come; nil if there is none
}

// Name implements [driver.Lease].
func (l *lease) Name() string { return l.name }

// mine returns what a reference refers to, if this backend has made it.
func (b *Backend) mine(l driver.Lease) (*lease, error) {
	own, ok := l.(*lease)
	if !ok || own == nil || own.b != b {
		return nil, errForeign
	}
	return own, nil
}

var errForeign = fmt.Errorf("%w: that lease is not of this backend", driver.ErrInvalid)

// known is mine for what only a lease of known token can do.
func (b *Backend) known(l driver.Lease) (*lease, error) {
	own, err := b.mine(l)
	if err == nil && own.token == 0 {
		err = fmt.Errorf("%w: it is not known whether the claim of %s took effect: claim it again with the same ID, or release it",
			driver.ErrInvalid, own.name)
	}
	return own, err
}

// leaseID makes the id of a lease from that of a claim: positive, the same each time, and no more likely to
// be in use than random ones.
func leaseID(id driver.ID) int64 {
	folded := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:])
	return max(1, int64(folded&math.MaxInt64))
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

// isContextError says whether err is that of a context, and nothing else.
func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
