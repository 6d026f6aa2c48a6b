package remote

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
	Name: "the server", Indefinite: "a server", Scheme: Scheme, SchemeTLS: SchemeTLS, Path: "namespace",
	Answered: answered, Elsewhere: isElsewhere,
}

// ParseURL returns the configuration that a URL stands for. It reads the files that the URL names: ca holds
// the certificates that the server's may descend from, cert and key are the client's own, all in PEM form. Each
// of them means TLS.
func ParseURL(u *url.URL) (Config, error) {
	connections, path, err := store.ParseURL(u)
	cfg := Config{Endpoints: connections.Endpoints, TLS: connections.TLS, Namespace: path}
	if err != nil {
		return cfg, err
	}
	return cfg, cfg.validate()
}
