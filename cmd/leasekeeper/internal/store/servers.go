package store

import (
	"crypto/tls"
	"net/url"

	"github.com/leasekeeper/leasekeeper/backend/etcd"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Servers are the servers in the URL of a store: members of a Leasekeeper or etcd cluster.
type Servers struct {
	Endpoints          []string    // host:port, at least one
	TLS                *tls.Config // nil for plain text
	Username, Password string      // empty for none
}

// IsServer reports whether a URL names servers and not a database. A malformed URL names neither.
func IsServer(rawURL string) bool {
	u, err := url.Parse(rawURL)
	return err == nil && (isLeasekeeper(u) || isEtcd(u))
}

func isLeasekeeper(u *url.URL) bool { return u.Scheme == remote.Scheme || u.Scheme == remote.SchemeTLS }

func isEtcd(u *url.URL) bool { return u.Scheme == etcd.Scheme || u.Scheme == etcd.SchemeTLS }

// ParseServers returns the servers in a URL that [IsServer] accepts. It reads the files that the URL names.
func ParseServers(rawURL string) (s Servers, err error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return s, err
	}
	if isEtcd(u) {
		var c etcd.Config
		c, err = etcd.ParseURL(u)
		s = Servers{c.Endpoints, c.TLS, c.Username, c.Password}
	} else {
		var c remote.Config
		c, err = remote.ParseURL(u)
		s = Servers{c.Endpoints, c.TLS, c.Username, c.Password}
	}
	for i, endpoint := range s.Endpoints {
		s.Endpoints[i] = endpoints.WithPort(endpoint)
	}
	return s, err
}
