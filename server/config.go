package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
)

// EtcdVersion is the level of etcd's API that this server speaks. It is what Maintenance.Status and /version
// report as etcd's version, because clients switch features on by it; the version of this program is
// [Config.Version].
const EtcdVersion = etcdapi.Version

// Defaults of [Config].
const (
	DefaultName             = "default"
	DefaultListenClient     = "127.0.0.1:2379"
	DefaultListenHTTP       = "127.0.0.1:2381"
	DefaultVersion          = "development"
	DefaultProgressInterval = 10 * time.Minute
	DefaultRequestTimeout   = 7 * time.Second
	DefaultMaxRequestBytes  = 3 << 19
	DefaultMaxStreams       = 1 << 14
	DefaultMaxRenewals      = 1 << 12
	DefaultMaxWatchers      = 1 << 16
	DefaultMaxConnections   = 1 << 14
	DefaultMaxRequests      = 1 << 15
	DefaultMaxTTL           = 24 * time.Hour
)

// MinTTL is the shortest TTL of a lease of etcd's API: a request for less is given this.
const MinTTL = etcdapi.MinTTL

// MinClaimTTL is the shortest TTL of a lease on a name: a request for less is given this.
const MinClaimTTL = namesapi.MinClaimTTL

// HTTPOff as [Config.ListenHTTP] means that nothing is served over HTTP.
const HTTPOff = "off"

// Config says where and how a [Server] serves. The zero value serves on this machine only, on etcd's ports.
type Config struct {
	// Name is the member's name, which people see in lists of members.
	Name string

	// ListenClient is the address for gRPC, "host:port". Port 0 takes a free one; see [Server.Addr].
	ListenClient string

	// Advertise are the URLs or "host:port" by which clients reach this member, for clients that ask for
	// the list of members. Empty means the address listened on; that is an error if it is a wildcard,
	// because clients would be sent to themselves.
	Advertise []string

	// ListenHTTP is the address for health, version and metrics, "host:port", or [HTTPOff].
	ListenHTTP string

	// CertFile and KeyFile are the certificate and key, in PEM form, that the server shows to clients; both
	// listeners then speak TLS only. The files are read again when they change. Empty means no encryption.
	CertFile, KeyFile string

	// ClientCAFile holds certificates, in PEM form. Only clients with a certificate that descends from one
	// of them are served. Empty means that any client is.
	ClientCAFile string

	// Cluster says who else is in the group of the member; nil means that it is alone.
	Cluster *Cluster

	// Version is the version of this program, for /version and /metrics.
	Version string

	// Logger receives state transitions; nil logs nothing.
	Logger *slog.Logger

	// ProgressInterval is how long a watcher that asked for progress notifications is left without a word.
	ProgressInterval time.Duration

	// RequestTimeout bounds how long a request may wait for the member. After it the client is told that
	// the request timed out, which for a write means that its outcome is unknown.
	RequestTimeout time.Duration

	// MemoryLimit is how many bytes this process may use. What clients can take of it follows from that: connections,
	// streams, watchers, requests and answers under way. 0 means [DefaultMemoryLimit].
	MemoryLimit int64

	// MaxRequestBytes bounds the encoded size of a write. It should be what the node was started with:
	// more is refused there.
	MaxRequestBytes int

	// MaxStreams bounds the requests and streams that are under way on one connection; further ones wait
	// in the client.
	MaxStreams int

	// MaxRenewals bounds the renewals that are under way on one keep-alive stream, including those whose
	// answer waits to be sent. At the bound the stream is not read from.
	MaxRenewals int

	// MaxWatchers bounds the watchers on all watch streams of one connection. Further ones are refused.
	MaxWatchers int

	// MaxConnections bounds the connections, of gRPC and of HTTP each. Further ones are closed at once.
	MaxConnections int

	// MaxConnectionsHTTP is the same for HTTP alone, where that is fewer; 0 means MaxConnections.
	MaxConnectionsHTTP int

	// MaxTTL is the longest TTL of a lease on a name; a claim with a longer one is refused. Leases of etcd's API have
	// etcd's own bound, [lessor.MaxTTL].
	MaxTTL time.Duration

	// MaxRequests bounds the requests with one answer that are under way on all connections together,
	// without those that wait to get a lock or to be elected; as many of these are allowed again. Further ones are
	// refused at once. The member has bounds of its own on what waits to be written.
	MaxRequests int
}

// maxMaxRequestBytes keeps the time short in which one request keeps all others waiting.
const maxMaxRequestBytes = 64 << 20

// requestOverhead is how much larger than MaxRequestBytes a message may be before gRPC itself refuses it
// with a text of its own. It leaves room for etcd's text, as in etcd.
const requestOverhead = 512 << 10

// Validate reports everything that is wrong with the configuration at once, or nil. It reads the files with
// certificates.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if err := checkListen("ListenClient", c.ListenClient); err != nil {
		errs = append(errs, err)
	} else if isWildcard(c.ListenClient) && len(c.Advertise) == 0 {
		errs = append(errs, fmt.Errorf("listening on every interface (%s) does not tell clients where to find "+
			"this member: say so with --advertise, for example --advertise http://this-host:2379", c.ListenClient))
	}
	if c.ListenHTTP != HTTPOff {
		if err := checkListen("ListenHTTP", c.ListenHTTP); err != nil {
			errs = append(errs, err)
		}
	}
	for _, a := range c.Advertise {
		if _, err := clientURL(a, c.scheme()); err != nil {
			errs = append(errs, err)
		}
	}
	if err := c.checkTLS(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, c.Cluster.validate(), c.checkPeers())
	positive := func(name string, value int64, most int64) {
		if value < 1 || value > most {
			errs = append(errs, fmt.Errorf("%s is %d, not between 1 and %d", name, value, most))
		}
	}
	positive("ProgressInterval in nanoseconds", int64(c.ProgressInterval), 1<<62)
	positive("RequestTimeout in nanoseconds", int64(c.RequestTimeout), 1<<62)
	positive("MaxTTL in nanoseconds", int64(c.MaxTTL), int64(lessor.MaxTTL))
	positive("MaxRequestBytes", int64(c.MaxRequestBytes), maxMaxRequestBytes)
	positive("MemoryLimit", c.MemoryLimit, 1<<62)
	positive("MaxStreams", int64(c.MaxStreams), 1<<31-1)
	positive("MaxRenewals", int64(c.MaxRenewals), 1<<20)
	positive("MaxWatchers", int64(c.MaxWatchers), 1<<30)
	positive("MaxConnections", int64(c.MaxConnections), 1<<30)
	positive("MaxConnectionsHTTP", int64(c.MaxConnectionsHTTP), 1<<30)
	positive("MaxRequests", int64(c.MaxRequests), 1<<30)
	return errors.Join(errs...)
}

// withDefaults returns a copy in which every zero field has its default.
func (c Config) withDefaults() Config {
	setDefault(&c.Name, DefaultName)
	setDefault(&c.ListenClient, DefaultListenClient)
	setDefault(&c.ListenHTTP, DefaultListenHTTP)
	setDefault(&c.Version, DefaultVersion)
	setDefault(&c.ProgressInterval, DefaultProgressInterval)
	setDefault(&c.RequestTimeout, DefaultRequestTimeout)
	setDefault(&c.MaxTTL, DefaultMaxTTL)
	setDefault(&c.MaxRequestBytes, DefaultMaxRequestBytes)
	setDefault(&c.MaxStreams, DefaultMaxStreams)
	setDefault(&c.MaxRenewals, DefaultMaxRenewals)
	setDefault(&c.MaxWatchers, DefaultMaxWatchers)
	setDefault(&c.MaxConnections, DefaultMaxConnections)
	setDefault(&c.MaxConnectionsHTTP, c.MaxConnections)
	setDefault(&c.MaxRequests, DefaultMaxRequests)
	setDefault(&c.MemoryLimit, DefaultMemoryLimit)
	c.follow()
	c.Cluster = c.Cluster.withDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// checkListen says what is wrong with an address to listen on, without asking a name server.
func checkListen(field, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s is %q, not an address as 127.0.0.1:2379", field, addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return fmt.Errorf("%s is %q, whose port is not a number between 0 and 65535", field, addr)
	}
	return nil
}

// isWildcard says whether listening on addr means listening on every interface.
func isWildcard(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// clientURL turns an entry of Advertise into what etcd's clients expect: a URL with a scheme, a host and a
// port, and nothing more. It has the scheme of the server if it names none.
func clientURL(entry, scheme string) (string, error) {
	bad := func(why string) error {
		return fmt.Errorf("advertised address %q %s: give it as %s://host:2379", entry, why, scheme)
	}
	if _, _, err := net.SplitHostPort(entry); err == nil {
		entry = scheme + "://" + entry
	}
	u, err := url.Parse(entry)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return "", bad("is not an http or https URL")
	}
	// The other way round something in front of the server may speak TLS for it.
	if u.Scheme == "http" && scheme == "https" {
		return "", bad("sends clients there without TLS")
	}
	if u.User != nil || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return "", bad("has more than scheme, host and port")
	}
	if u.Hostname() == "" || isWildcard(u.Host) {
		return "", bad("names no host that a client could reach")
	}
	if p, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || p == 0 {
		return "", bad("has no port")
	}
	return u.Scheme + "://" + u.Host, nil
}
