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

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/login"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
)

// EtcdVersion is the version of etcd's API that this server implements. Maintenance.Status and /version report it,
// because clients enable features by it. The version of this program is [Config.Version].
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
	DefaultMaxTxnOps        = keyspace.UsualTxnOps
	DefaultMaxStreams       = 1 << 14
	DefaultMaxRenewals      = 1 << 12
	DefaultMaxWatchers      = 1 << 16
	DefaultMaxConnections   = 1 << 14
	DefaultMaxRequests      = 1 << 15
	DefaultMaxTTL           = 24 * time.Hour
)

// TxnOpsLimit is the largest allowed [Config.MaxTxnOps]: no member applies a larger transaction.
const TxnOpsLimit = keyspace.MaxTxnOps

// MinTTL is the shortest TTL of a lease of etcd's API. The server raises a shorter TTL to it.
const MinTTL = etcdapi.MinTTL

// MinClaimTTL is the shortest TTL of a lease on a name. The server raises a shorter TTL to it.
const MinClaimTTL = namesapi.MinClaimTTL

// HTTPOff as [Config.ListenHTTP] turns HTTP off.
const HTTPOff = "off"

// Config says where and how a [Server] serves. The zero value serves on this machine only, on etcd's ports.
type Config struct {
	// Name is the member's name in lists of members.
	Name string

	// ListenClient is the address for gRPC, "host:port". Port 0 chooses a free port; see [Server.Addr].
	ListenClient string

	// Advertise are the URLs or "host:port" at which clients reach this member. The list of members contains them.
	// Empty means ListenClient. If that is a wildcard, Advertise is required, because a client would connect to its own
	// machine.
	Advertise []string

	// ListenHTTP is the address for health, version, metrics and the JSON API, "host:port", or [HTTPOff].
	ListenHTTP string

	// ConsoleOff turns off the web console below /console/ on ListenHTTP.
	ConsoleOff bool

	// CertFile and KeyFile are the server's certificate and key, in PEM form. If they are set, both listeners speak TLS
	// only. The server reads the files again when they change. Empty means no encryption.
	CertFile, KeyFile string

	// ClientCAFile contains certificates, in PEM form. The server then serves only clients whose certificate descends
	// from one of them. Empty means that clients need no certificate.
	ClientCAFile string

	// ClientCRLFile contains lists of certificates that authorities in ClientCAFile have revoked, in PEM form. The server
	// refuses clients with such a certificate, and closes their open connections within seconds of a change of the file. Empty
	// means that no certificate is revoked.
	ClientCRLFile string

	// AuthToken says which tokens users get, as etcd's --auth-token does: "simple", or "jwt" with options. Empty means
	// simple.
	AuthToken string

	// Logins are the simple tokens that the member learns. The node must pass logins to it (node.Config.LoggedIn). Without
	// it nobody can log in with simple tokens, and access cannot be enabled.
	Logins *Logins

	// BcryptCost is the cost of hashing passwords; 0 means [DefaultBcryptCost].
	BcryptCost int

	// Cluster describes the cluster of the member; nil means that the member is alone.
	Cluster *Cluster

	// Backup says where backups of the member are made; nil means that none are.
	Backup *Backup

	// Version is the version of this program, for /version and /metrics.
	Version string

	// Logger receives state transitions; nil logs nothing.
	Logger *slog.Logger

	// ProgressInterval is the time after which an idle watcher that asked for progress notifications receives one.
	ProgressInterval time.Duration

	// RequestTimeout bounds how long a request may wait for the member. Then the client receives a timeout. For a write
	// that means that its outcome is unknown.
	RequestTimeout time.Duration

	// MemoryLimit is how many bytes this process may use. It bounds connections, streams, watchers, requests and unsent
	// answers. 0 means [DefaultMemoryLimit].
	MemoryLimit int64

	// MaxRequestBytes bounds the encoded size of a write. It should equal the node's own bound, since the node refuses
	// more.
	MaxRequestBytes int

	// MaxTxnOps bounds the compares, and the operations of either branch, of a transaction of etcd's API. Nested
	// transactions have the bound that remains after the largest of the three. The leader's bound counts as well.
	MaxTxnOps int

	// MaxStreams bounds the open requests and streams of one connection. Further ones wait in the client.
	MaxStreams int

	// MaxRenewals bounds the unanswered renewals of one keep-alive stream, including those whose answer waits to be
	// sent. At the bound the server stops reading the stream.
	MaxRenewals int

	// MaxWatchers bounds the watchers on all watch streams of one connection. Further ones are refused.
	MaxWatchers int

	// MaxConnections bounds the connections, separately for gRPC and HTTP. Further ones are closed at once.
	MaxConnections int

	// MaxConnectionsHTTP bounds the HTTP connections if it is lower; 0 means MaxConnections.
	MaxConnectionsHTTP int

	// MaxTTL is the longest TTL of a lease on a name. A claim with a longer one is refused. Leases of etcd's API have
	// etcd's bound, [lessor.MaxTTL].
	MaxTTL time.Duration

	// MaxRequests bounds the open unary requests on all connections together. Requests that wait for a lock or an
	// election have a second bound of the same size. Further ones are refused at once. The member also bounds the
	// writes that wait in it.
	MaxRequests int
}

// maxMaxRequestBytes is the largest allowed MaxRequestBytes. One large request delays all others.
const maxMaxRequestBytes = 64 << 20

// requestOverhead is how many bytes a message may exceed MaxRequestBytes before gRPC refuses it with its own message.
// Up to that size the client receives etcd's message, as from etcd.
const requestOverhead = 512 << 10

// Validate reports all mistakes of the configuration at once, or nil. It reads the certificate files.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if err := checkListen("ListenClient", c.ListenClient); err != nil {
		errs = append(errs, err)
	} else if isWildcard(c.ListenClient) && len(c.Advertise) == 0 {
		errs = append(errs, fmt.Errorf("listening on every interface (%s) does not say where clients find "+
			"this member: set --advertise, for example --advertise http://this-host:2379", c.ListenClient))
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
	errs = append(errs, c.Cluster.validate(), c.checkPeers(), c.Backup.validate(), login.Check(c.AuthToken, c.BcryptCost))
	positive := func(name string, value int64, most int64) {
		if value < 1 || value > most {
			errs = append(errs, fmt.Errorf("%s is %d, not between 1 and %d", name, value, most))
		}
	}
	positive("ProgressInterval in nanoseconds", int64(c.ProgressInterval), 1<<62)
	positive("RequestTimeout in nanoseconds", int64(c.RequestTimeout), 1<<62)
	positive("MaxTTL in nanoseconds", int64(c.MaxTTL), int64(lessor.MaxTTL))
	positive("MaxRequestBytes", int64(c.MaxRequestBytes), maxMaxRequestBytes)
	positive("MaxTxnOps", int64(c.MaxTxnOps), TxnOpsLimit)
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
	setDefault(&c.MaxTxnOps, DefaultMaxTxnOps)
	setDefault(&c.MaxStreams, DefaultMaxStreams)
	setDefault(&c.MaxRenewals, DefaultMaxRenewals)
	setDefault(&c.MaxWatchers, DefaultMaxWatchers)
	setDefault(&c.MaxConnections, DefaultMaxConnections)
	setDefault(&c.MaxConnectionsHTTP, c.MaxConnections)
	setDefault(&c.MaxRequests, DefaultMaxRequests)
	setDefault(&c.MemoryLimit, DefaultMemoryLimit)
	setDefault(&c.AuthToken, login.DefaultOption)
	setDefault(&c.BcryptCost, DefaultBcryptCost)
	c.clampToMemory()
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

// checkListen returns what is wrong with an address to listen on. It makes no DNS lookups.
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

// isWildcard reports whether listening on addr means listening on every interface.
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

// clientURLs returns the URLs at which clients reach a server that listens for them on addr. They are nil if it neither
// advertises any nor listens yet.
func (c *Config) clientURLs(addr string) []string {
	if len(c.Advertise) == 0 {
		if addr == "" {
			return nil
		}
		return []string{c.scheme() + "://" + addr}
	}
	urls := make([]string, len(c.Advertise))
	for i, entry := range c.Advertise {
		// Validate has checked each entry.
		urls[i], _ = clientURL(entry, c.scheme())
	}
	return urls
}

// clientURL turns an entry of Advertise into the form that etcd's clients expect: a URL of scheme, host and port only.
// An entry without a scheme gets the given one.
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
	// The reverse is allowed: a proxy in front of the server may terminate TLS.
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
