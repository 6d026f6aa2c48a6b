package mongodb

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
)

// A server or collection that would silently break leases is refused, with advice.
func TestUnfitServersAreRefused(t *testing.T) {
	listed := func(kind string, more ...bson.E) bson.D {
		return cursor(bson.D{{Key: "name", Value: "leasekeeper_leases"}, {Key: "type", Value: kind}, {Key: "options", Value: append(bson.D{}, more...)}})
	}
	id := bson.D{{Key: "name", Value: "_id_"}, {Key: "key", Value: bson.D{{Key: "_id", Value: 1}}}}
	sharded := func(key ...bson.E) bson.D {
		return cursor(bson.D{{Key: "_id", Value: "app.leasekeeper_leases"}, {Key: "key", Value: append(bson.D{}, key...)}})
	}
	type answers map[string]bson.D // by the name of the command
	for _, c := range []struct {
		what   string
		hello  bson.D
		config Config
		says   string // empty: the server is accepted
		answers
	}{
		{"a replica set", ofASet, Config{}, "", answers{"listCollections": listed("collection"), "listIndexes": cursor(id)}},
		{"an explicit simple collation", ofASet, Config{}, "", answers{"listIndexes": cursor(id),
			"listCollections": listed("collection", bson.E{Key: "collation", Value: bson.D{{Key: "locale", Value: "simple"}}})}},
		{"an old server", bson.D{{Key: "maxWireVersion", Value: int32(7)}}, Config{}, "", nil}, // the driver itself refuses it
		{"a view", ofASet, Config{}, "is a view", answers{"listCollections": listed("view")}},
		{"a series", ofASet, Config{}, "is a timeseries", answers{"listCollections": listed("timeseries")}},
		{"a capped collection", ofASet, Config{}, "capped", answers{"listCollections": listed("collection", bson.E{Key: "capped", Value: true})}},
		{"a collation", ofASet, Config{}, "collation de", answers{"listCollections": listed("collection", bson.E{Key: "collation", Value: bson.D{{Key: "locale", Value: "de"}}})}},
		{"no unique index", ofASet, Config{}, `db.getCollection("leasekeeper_leases").createIndex({_id: 1})`, answers{"listCollections": listed("collection"),
			"listIndexes": cursor(bson.D{{Key: "name", Value: "token_1"}, {Key: "key", Value: bson.D{{Key: "token", Value: 1}}}})}},
		{"an index with more than _id", ofASet, Config{}, "createIndex({_id: 1})", answers{"listCollections": listed("collection"),
			"listIndexes": cursor(bson.D{{Key: "name", Value: "x"}, {Key: "key", Value: bson.D{{Key: "_id", Value: 1}, {Key: "x", Value: 1}}}})}},
		{"a TTL index", ofASet, Config{}, `db.getCollection("leasekeeper_leases").dropIndex("since_1")`, answers{"listCollections": listed("collection"),
			"listIndexes": cursor(id, bson.D{{Key: "name", Value: "since_1"}, {Key: "key", Value: bson.D{{Key: "since", Value: 1}}}, {Key: "expireAfterSeconds", Value: 0}})}},
		{"who may not look", ofASet, Config{}, "look at the collections", answers{"listCollections": refused(13)}},
		{"a router", ofARouter, Config{}, "", answers{"listCollections": listed("collection"), "listIndexes": cursor(id)}},
		{"sharded by _id", ofARouter, Config{}, "", answers{"listCollections": listed("collection"), "listIndexes": cursor(id), "collections": sharded(bson.E{Key: "_id", Value: "hashed"})}},
		{"sharded by name", ofARouter, Config{}, "sharded by", answers{"listCollections": listed("collection"), "listIndexes": cursor(id), "collections": sharded(bson.E{Key: "name", Value: 1})}},
		{"sharded somehow", ofARouter, Config{}, "config.collections", answers{"listCollections": listed("collection"), "listIndexes": cursor(id), "collections": refused(13)}},
		{"a router's clock", ofARouter, Config{StoreClock: true}, "router", nil},
		{"a set's clock", ofASet, Config{StoreClock: true}, "", nil},
		{"FerretDB 1", ofNothing, Config{}, "FerretDB", answers{"buildInfo": bson.D{{Key: "ferretdbVersion", Value: "v1"}}, "leasekeeperSerializes": refused(59)}},
		{"FerretDB 2", ofNothing, Config{}, "FerretDB", answers{"buildInfo": bson.D{{Key: "ferretdb", Value: bson.D{}}}, "leasekeeperSerializes": refused(59)}},
		{"FerretDB behind what serializes", ofNothing, Config{}, "", answers{"buildInfo": bson.D{{Key: "ferretdb", Value: bson.D{}}}}},
		{"FerretDB's clock", ofNothing, Config{StoreClock: true}, "$$NOW", answers{"buildInfo": bson.D{{Key: "ferretdb", Value: bson.D{}}}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			mode := byWriter
			if c.config.StoreClock {
				mode = byStore
			}
			p := newPeer(t, c.hello, func(name string, body bson.Raw) bson.D {
				if from, _ := body.Lookup("find").StringValueOK(); name == "find" && from == "collections" {
					name = from
				}
				if answer, ok := c.answers[name]; ok {
					return answer
				}
				return namespaceOf(mode)(name, body)
			})
			s, err := New(t.Context(), p.client().Database("app"), c.config)
			if s != nil {
				defer s.Close(t.Context())
			}
			switch {
			case c.what == "an old server":
				if err == nil {
					t.Error("it was accepted")
				}
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (!errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("it does not say %q: %v", c.says, err)
			}
		})
	}
}

func TestStandaloneServerCausesAWarning(t *testing.T) {
	for _, c := range []struct {
		hello bson.D
		warns bool
	}{{ofNothing, true}, {ofASet, false}, {ofARouter, false}} {
		var log bytes.Buffer
		s := newPeer(t, c.hello, nil).openStore(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if warned := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "standalone"); warned != c.warns {
			t.Errorf("%v: %q", c.hello, log.String())
		}
		// A keeper that was opened by URL has no other way to know.
		b, err := claimed.New(s)
		if err != nil {
			t.Fatal(err)
		}
		if cautions := b.Cautions(); (len(cautions) == 1 && strings.Contains(cautions[0], "standalone")) != c.warns {
			t.Errorf("%v: %q", c.hello, cautions)
		}
	}
}

// A namespace has one mode, for ever. One of a newer version is left unchanged.
func TestNamespaceOfAnotherModeOrVersionIsRefused(t *testing.T) {
	for _, c := range []struct {
		config Config
		is     namespace
		kind   error
		says   string
	}{
		{Config{}, namespace{Mode: byWriter, Version: version}, nil, ""},
		{Config{}, namespace{Mode: byStore, Version: version}, backend.ErrInvalid, "store's clock"},
		{Config{StoreClock: true}, namespace{Mode: byWriter, Version: version}, backend.ErrInvalid, "writer's clock"},
		{Config{}, namespace{Mode: byWriter, Version: version + 1}, backend.ErrInvalid, "upgrade"},
		{Config{}, namespace{Mode: byWriter, Version: version, Floor: -1}, backend.ErrCorrupt, "cannot be read"},
	} {
		c.is.ID = DefaultNamespace
		p := newPeer(t, ofASet, func(name string, body bson.Raw) bson.D {
			if name == "find" {
				return cursor(c.is)
			}
			return nil
		})
		_, err := New(t.Context(), p.client().Database("app"), c.config)
		if !errors.Is(err, c.kind) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.is, err)
		}
	}
}

// The process that loses the race to create a namespace uses the winner's, if it is of the same kind.
func TestLoserOfANamespaceRaceUsesTheWinners(t *testing.T) {
	for mode, kind := range map[string]error{byWriter: nil, byStore: backend.ErrInvalid} {
		reads := 0
		p := newPeer(t, ofASet, func(name string, body bson.Raw) bson.D {
			switch name {
			case "find":
				if reads++; reads == 1 {
					return cursor()
				}
				return namespaceOf(mode)(name, body)
			case "insert":
				return bson.D{{Key: "n", Value: int32(0)}, {Key: "writeErrors", Value: bson.A{bson.D{{Key: "index", Value: 0}, {Key: "code", Value: 11000}, {Key: "errmsg", Value: "duplicate"}}}}}
			}
			return nil
		})
		if _, err := New(t.Context(), p.client().Database("app"), Config{}); !errors.Is(err, kind) {
			t.Errorf("%s: %v", mode, err)
		}
		if reads != 2 {
			t.Errorf("%s: it was read %d times", mode, reads)
		}
	}
}

// A client of the caller's stays open, and a client of the store's own is closed.
func TestCloseLeavesTheCallersClient(t *testing.T) {
	p := newPeer(t, ofASet, namespaceOf(byWriter))
	client := p.client()
	s, err := New(t.Context(), client.Database("app"), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context(), nil); err != nil {
		t.Errorf("after Close of the store the caller's client: %v", err)
	}
	own, err := Open(t.Context(), "mongodb://"+p.listener.Addr().String()+"/?directConnection=true", Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := own.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := own.owned.Ping(context.Background(), nil); err == nil {
		t.Error("the store has left its client open")
	}
}
