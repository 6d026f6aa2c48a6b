package remote

import (
	"net/url"

	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

func init() { endpoints.Register(store, ParseURL, New) }

// store describes our server to package endpoints. A server that answers a repeated request shows in that answer whether an
// earlier attempt had an effect.
var store = &endpoints.Store{
	Name: "the server", Indefinite: "a server", Scheme: Scheme, SchemeTLS: SchemeTLS, Path: "namespace",
	Foreign:     "that is not a Leasekeeper server, or an older one: for plain etcd write etcd://",
	FinalForAll: true,
	Answered:    answered, Elsewhere: isElsewhere, Kind: kindOf,
}

// ParseURL returns the configuration that a URL stands for. It reads the files that the URL names, all in PEM form: ca holds
// the authorities of the server's certificate, cert and key are the client's own. Each of them turns TLS on. The URL may name
// a user with a password.
func ParseURL(u *url.URL) (Config, error) {
	connections, path, err := store.ParseURL(u)
	cfg := Config{Endpoints: connections.Endpoints, TLS: connections.TLS, Namespace: path}
	if err != nil {
		return cfg, err
	}
	if u.User != nil {
		cfg.Username = u.User.Username()
		cfg.Password, _ = u.User.Password()
	}
	return cfg, cfg.validate()
}
