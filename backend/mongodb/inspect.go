package mongodb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/leasekeeper/leasekeeper/backend"
)

func init() {
	for _, scheme := range []string{Scheme, SchemeSRV} {
		backend.RegisterInspector(scheme, inspect)
	}
}

// inspectTrips is the number of small reads of which the fastest counts.
const inspectTrips = 5

// inspect implements [backend.Inspector].
func inspect(ctx context.Context, u *url.URL) (found backend.Inspection, err error) {
	rest, _, err := polled(u.String())
	if err != nil {
		return found, err
	}
	rest, database, c, err := strip(rest, Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return found, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(rest).SetAppName("leasekeeper"))
	if err != nil {
		return found, fmt.Errorf("mongodb: %w: %w", backend.ErrInvalid, err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) // its error does not matter: nothing was changed
	return inspectDatabase(ctx, client.Database(database, options.Database().SetReadPreference(readpref.Primary())), c)
}

// inspectDatabase inspects a database of a connected client.
func inspectDatabase(ctx context.Context, db *mongo.Database, c Config) (found backend.Inspection, err error) {
	if err := c.complete(); err != nil {
		return found, err
	}
	s := &Store{config: c, db: db}
	s.closed, s.end = context.WithCancel(context.Background())
	defer s.end()
	if s.server, err = s.inspectServer(ctx); err != nil {
		return found, err
	}
	s.useCollections()
	if err := s.admit(ctx); err != nil {
		return found, err
	}
	found.Cautions, found.Newest = s.cautions, version
	found.Server = "MongoDB"
	if s.server.ferret {
		found.Server = "FerretDB"
	}
	var build struct{ Version string }
	if err := db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err == nil { // a user may lack the right
		found.Server += " " + build.Version
	}
	if err := s.readClock(ctx, &found); err != nil {
		return found, err
	}
	found.Settings = []backend.Setting{{Name: "topology", Value: s.server.topology()}}
	if _, err = s.floor(ctx); errors.Is(err, errNoNamespace) {
		return found, nil
	}
	found.Schema = version // floor refuses another one
	return found, err
}

// topology names the kind of deployment.
func (v server) topology() string {
	switch {
	case v.isRouter:
		return "sharded cluster"
	case v.set != "":
		return "replica set " + v.set
	}
	return "a single server"
}

// readClock measures the time of a small read, and reads the server's wall clock if it tells it.
func (s *Store) readClock(ctx context.Context, found *backend.Inspection) error {
	for range inspectTrips {
		var hello struct {
			LocalTime time.Time `bson:"localTime"`
		}
		before := time.Now()
		if err := s.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
			return s.unread("ask for the time", err)
		}
		if took := time.Since(before); found.RoundTrip == 0 || took < found.RoundTrip {
			found.RoundTrip, found.HasClock = took, !hello.LocalTime.IsZero()
			found.Clock = hello.LocalTime.Sub(before.Round(0)) - took/2
		}
	}
	return nil
}
