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

// schemes are the URL schemes that PostgreSQL's own programs accept.
var schemes = []string{"postgres", "postgresql"}

func init() {
	for _, scheme := range schemes {
		backend.Register(scheme, func(ctx context.Context, u *url.URL) (backend.Backend, error) {
			rest, c, options, err := parse(u, Config{})
			if err != nil {
				return nil, err
			}
			s, err := connect(ctx, rest, c)
			return claimed.Opened(ctx, s, err, options...)
		})
	}
}

// known are the URL parameters of PostgreSQL's own library and of the pool. pgx would send any other parameter to the server
// as a setting, so parse refuses it: it is probably misspelt.
var known = []string{"host", "hostaddr", "port", "user", "password", "dbname", "database", "passfile", "servicefile", "service", "sslmode", "sslkey",
	"sslcert", "sslrootcert", "sslpassword", "sslsni", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version", "connect_timeout",
	"target_session_attrs", "application_name", "client_encoding", "options", "search_path", "krbspn", "krbsrvname", "channel_binding",
	"min_protocol_version", "max_protocol_version", "require_auth", "statement_timeout", "lock_timeout", "tcp_user_timeout"}

// parse separates the settings of the store and the options of the backend from the URL for PostgreSQL.
func parse(u *url.URL, c Config) (rest string, _ Config, options []claimed.Option, err error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", c, nil, fmt.Errorf("postgres: %w: the query of the URL is not escaped correctly: write %%26 for &, %%25 for %%", backend.ErrInvalid)
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
			return "", c, nil, fmt.Errorf("postgres: %w: the URL has the unknown parameter %q: use those of PostgreSQL, or ns, prefix, schema, clock, accept and poll", backend.ErrInvalid, key)
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

// Open connects to the database of a URL, or of settings in the text form of psql. Settings of the store in the URL, which
// the package documentation shows, override c. Missing settings come from the environment variables that PostgreSQL's
// programs use, such as PGPASSWORD.
func Open(ctx context.Context, rawURL string, c Config) (*Store, error) {
	scheme, _, isURL := strings.Cut(rawURL, "://")
	if !isURL || !slices.Contains(schemes, scheme) {
		return connect(ctx, rawURL, c)
	}
	u, err := url.Parse(rawURL)
	if err != nil { // err may contain the password
		return nil, fmt.Errorf("postgres: %w: the URL cannot be read: in a user name or password write %%2F for /, %%3A for :, %%40 for @", backend.ErrInvalid)
	}
	rest, c, options, err := parse(u, c)
	if err == nil && len(options) > 0 {
		err = fmt.Errorf("postgres: %w: poll is an option of the backend, not of the store: use claimed.WithPoll", backend.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	return connect(ctx, rest, c)
}
