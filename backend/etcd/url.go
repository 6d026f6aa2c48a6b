package etcd

import (
	"context"
	"net/url"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

func init() {
	for _, scheme := range []string{Scheme, SchemeTLS} {
		backend.Register(scheme, func(_ context.Context, u *url.URL) (backend.Backend, error) {
			cfg, err := ParseURL(u)
			if err != nil {
				return nil, err
			}
			b, err := New(cfg)
			if err != nil {
				return nil, err
			}
			return b, nil
		})
	}
}

var store = endpoints.Store{
	Name: "etcd", Indefinite: "etcd", Scheme: Scheme, SchemeTLS: SchemeTLS, Path: "prefix", Users: true,
	Answered: answered, Elsewhere: isElsewhere,
}

// ParseURL returns the configuration that a URL stands for. It reads the files that the URL names: ca holds
// the certificates that a member's may descend from, cert and key are the client's own, all in PEM form. Each
// of them means TLS.
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
