package postgres

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// schemes are those that PostgreSQL knows.
var schemes = []string{"postgres", "postgresql"}

func init() {
	for _, scheme := range schemes {
		backend.Register(scheme, func(ctx context.Context, u *url.URL) (backend.Backend, error) {
			rest, c, options, err := parse(u, Config{})
			if err != nil {
				return nil, err
			}
			s, err := open(ctx, rest, c)
			return claimed.Opened(ctx, s, err, options...)
		})
	}
}

// known are the parameters that PostgreSQL's own library and the pool know. Whatever else stands in a URL the
// server would take for one of its settings, which a misspelt one is not.
var known = []string{"host", "hostaddr", "port", "user", "password", "dbname", "database", "passfile", "servicefile", "service", "sslmode", "sslkey",
	"sslcert", "sslrootcert", "sslpassword", "sslsni", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version", "connect_timeout",
	"target_session_attrs", "application_name", "client_encoding", "options", "search_path", "krbspn", "krbsrvname", "channel_binding",
	"min_protocol_version", "max_protocol_version", "require_auth", "statement_timeout", "lock_timeout", "tcp_user_timeout"}

// parse takes from a URL what is not meant for PostgreSQL.
func parse(u *url.URL, c Config) (rest string, _ Config, options []claimed.Option, err error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", c, nil, fmt.Errorf("postgres: %w: what follows ? in the URL is not escaped as it has to be", backend.ErrInvalid)
	}
	shared, err := sqlstore.Settings(query, c.shared())
	if err == nil {
		options, err = claimed.Settings(query)
	}
	if err != nil {
		return "", c, nil, fmt.Errorf("postgres: %w", err)
	}
	for key := range query {
		if !slices.Contains(known, key) && !strings.HasPrefix(key, "pool_") {
			return "", c, nil, fmt.Errorf("postgres: %w: %q in the URL is not known: besides those of PostgreSQL there are ns, prefix, schema, clock, accept and poll", backend.ErrInvalid, key)
		}
	}
	c = Config{Namespace: shared.Namespace, Prefix: shared.Prefix, Schema: shared.Schema, StoreClock: shared.StoreClock, Patience: shared.Patience, AcceptLoss: shared.AcceptLoss}
	clean := *u
	clean.RawQuery = query.Encode()
	return clean.String(), c, options, nil
}

func (c Config) shared() sqlstore.Config {
	return sqlstore.Config{Namespace: c.Namespace, Prefix: c.Prefix, Schema: c.Schema, StoreClock: c.StoreClock, Patience: c.Patience, AcceptLoss: c.AcceptLoss}
}

// Open connects to the database of a URL, or of a string of settings such as psql takes them. What the URL says
// about the store, as in the documentation of the package, wins over c. Whatever is not said comes from the
// environment variables that all programs with PostgreSQL know, such as PGPASSWORD.
func Open(ctx context.Context, rawURL string, c Config) (*Store, error) {
	scheme, _, isURL := strings.Cut(rawURL, "://")
	if !isURL || !slices.Contains(schemes, scheme) {
		return open(ctx, rawURL, c)
	}
	u, err := url.Parse(rawURL)
	if err != nil { // whose text may show a password
		return nil, fmt.Errorf("postgres: %w: the URL cannot be read: in a user name or password write %%2F for /, %%3A for :, %%40 for @", backend.ErrInvalid)
	}
	rest, c, options, err := parse(u, c)
	if err == nil && len(options) > 0 {
		err = fmt.Errorf("postgres: %w: poll is not of the store but of the backend on it: see claimed.WithPoll", backend.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	return open(ctx, rest, c)
}
