package mongodb

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
)

func init() {
	for _, scheme := range []string{Scheme, SchemeSRV} {
		backend.Register(scheme, func(ctx context.Context, u *url.URL) (backend.Backend, error) {
			rest, options, err := polled(u.String())
			if err != nil {
				return nil, err
			}
			s, err := Open(ctx, rest, Config{})
			return claimed.Opened(ctx, s, err, options...)
		})
	}
}

// polled takes the parameter for the backend from a URL: how often a waiting process asks for a name.
func polled(rawURL string) (rest string, o []claimed.Option, err error) {
	address, query, _ := strings.Cut(rawURL, "?")
	var others []string
	for part := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(part, "=")
		if strings.ToLower(key) != "poll" {
			others = append(others, part)
			continue
		}
		every, err := time.ParseDuration(value)
		if err != nil {
			return "", nil, fmt.Errorf("mongodb: %w: in the URL poll is %q: write how often to ask, such as 250ms", backend.ErrInvalid, value)
		}
		o = append(o, claimed.WithPoll(every))
	}
	if len(o) == 0 {
		return rawURL, nil, nil
	}
	return address + "?" + strings.Join(others, "&"), o, nil
}

// Open connects to the database of a URL, in the form of MongoDB's drivers: see the documentation of the
// package. Settings in the URL override c.
func Open(ctx context.Context, rawURL string, c Config) (*Store, error) {
	rest, database, c, err := strip(rawURL, c)
	if err != nil {
		return nil, err
	}
	settings := options.Client().ApplyURI(rest)
	if settings.AppName == nil {
		settings.SetAppName("leasekeeper")
	}
	client, err := mongo.Connect(settings)
	if err != nil {
		return nil, fmt.Errorf("mongodb: %w: %w", backend.ErrInvalid, err)
	}
	s, err := New(ctx, client.Database(database), c)
	if err != nil {
		_ = client.Disconnect(ctx)
		return nil, err
	}
	s.owned = client
	return s, nil
}

// strip removes from a URL what the driver would not understand, and reads the database in it.
func strip(rawURL string, c Config) (rest, database string, _ Config, err error) {
	invalid := func(format string, args ...any) (string, string, Config, error) {
		return "", "", c, fmt.Errorf("mongodb: %w: in the URL %s", backend.ErrInvalid, fmt.Sprintf(format, args...))
	}
	address, query, _ := strings.Cut(rawURL, "?")
	scheme, authority, ok := strings.Cut(address, "://")
	if !ok || scheme != Scheme && scheme != SchemeSRV {
		return invalid("the scheme is neither %s nor %s", Scheme, SchemeSRV)
	}
	authority, path, _ := strings.Cut(authority, "/")
	if database, err = url.PathUnescape(path); err != nil {
		return invalid("the database is not escaped as it has to be")
	}
	if database == "" {
		database = DefaultDatabase
	}
	var others []string
	for part := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(part, "=")
		key = strings.ToLower(key)
		if key == "poll" {
			return invalid("poll is not of the store but of the backend on it: see claimed.WithPoll")
		}
		if key != "ns" && key != "prefix" && key != "clock" {
			if part != "" {
				others = append(others, part)
			}
			continue
		}
		value, err := url.QueryUnescape(value)
		if err != nil || value == "" {
			return invalid("%s has no value, or one that is not escaped as it has to be", key)
		}
		switch key {
		case "ns":
			c.Namespace = value
		case "prefix":
			c.Prefix = value
		case "clock":
			if value != byStore && value != byWriter {
				return invalid("clock is %q: it is %s, or else %s", value, byWriter, byStore)
			}
			c.StoreClock = value == byStore
		}
	}
	rest = scheme + "://" + authority + "/" + path
	if len(others) > 0 {
		rest += "?" + strings.Join(others, "&")
	}
	return rest, database, c, nil
}
