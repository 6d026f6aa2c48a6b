package sqlite

import (
	"context"
	"fmt"
	"net/url"
	"runtime"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

func init() {
	backend.Register(sqlstore.SQLite.Scheme(), func(ctx context.Context, u *url.URL) (backend.Backend, error) {
		path, c, options, err := parse(u)
		if err != nil {
			return nil, err
		}
		s, err := Open(ctx, path, c)
		return claimed.Opened(ctx, s, err, options...)
	})
}

// parse reads the path of a file and the settings from a URL.
func parse(u *url.URL) (path string, c Config, options []claimed.Option, err error) {
	invalid := func(format string, args ...any) (string, Config, []claimed.Option, error) {
		return "", c, nil, fmt.Errorf("sqlite: %w: %s", backend.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if u.Host != "" || u.User != nil || u.Fragment != "" {
		return invalid("the URL of a file is sqlite:/path or sqlite:path, with one slash or three, and %%23 for #")
	}
	if path = u.Path; u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return invalid("the path in the URL is not escaped as it has to be: write %%25 for %%")
		}
	}
	if runtime.GOOS == "windows" && len(path) > 2 && path[0] == '/' && path[2] == ':' { // /C:/...
		path = path[1:]
	}
	query := u.Query()
	shared, err := sqlstore.Settings(query, sqlstore.Config{})
	if err == nil {
		options, err = claimed.Settings(query)
	}
	if err != nil {
		return "", c, nil, fmt.Errorf("sqlite: %w", err)
	}
	if shared.StoreClock {
		return invalid("clock=store: a file has no clock; all processes that can open it share the machine's")
	}
	if shared.Schema != "" {
		return invalid("schema: a file has none; there is prefix")
	}
	for key := range query {
		return invalid("%q in the URL is not known: there are ns, prefix, accept and poll", strings.ToLower(key))
	}
	c.Namespace, c.Prefix, c.AcceptLoss = shared.Namespace, shared.Prefix, shared.AcceptLoss
	return path, c, options, nil
}
