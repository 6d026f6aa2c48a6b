package etcd

import (
	"net/url"

	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

func init() { endpoints.Register(store, ParseURL, New) }

// store describes etcd to package endpoints.
var store = &endpoints.Store{
	Name: "etcd", Indefinite: "etcd", Scheme: Scheme, SchemeTLS: SchemeTLS, Path: "prefix",
	Answered: answered, Elsewhere: isElsewhere, Kind: kindOf,
}

// ParseURL returns the configuration that a URL stands for. It reads the files that the URL names, all in PEM form: ca holds
// the authorities of the members' certificates, cert and key are the client's own. Each of them turns TLS on.
func ParseURL(u *url.URL) (Config, error) {
	connections, path, err := store.ParseURL(u)
	cfg := Config{Endpoints: connections.Endpoints, TLS: connections.TLS, Prefix: path}
	if err != nil {
		return cfg, err
	}
	if u.User != nil {
		cfg.Username = u.User.Username()
		cfg.Password, _ = u.User.Password()
	}
	return cfg, cfg.validate()
}
