package mongodb

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/leasekeeper/leasekeeper/backend"
)

// server says what kind of server it is, and so what it can do.
type server struct {
	set      string // the name of the replica set; empty if it is not a member of one
	isRouter bool   // a mongos
	ferret   bool
	session  bool // it has sessions
}

// wireUpdatesByPipeline is the wire version of servers 4.2, which have updates by pipeline.
const wireUpdatesByPipeline = 8

// greeting is the answer to hello.
type greeting struct {
	SetName  string `bson:"setName"`
	Msg      string `bson:"msg"`
	MaxWire  int    `bson:"maxWireVersion"`
	Sessions any    `bson:"logicalSessionTimeoutMinutes"`
}

// inspectServer finds out what the server is, and refuses one that cannot keep leases.
func (s *Store) inspectServer(ctx context.Context) (server, error) {
	const what = "greet the server"
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return server{}, err
	}
	defer done()
	var hello greeting
	if err := s.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return server{}, s.unread(what, err)
	}
	found := server{set: hello.SetName, isRouter: hello.Msg == "isdbgrid", session: hello.Sessions != nil}
	// A user without the privilege, or a client of the stable API only, gets an error; it talks to a mongod.
	if build, err := s.db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Raw(); err == nil {
		_, v1 := build.LookupErr("ferretdbVersion")
		_, v2 := build.LookupErr("ferretdb")
		found.ferret = v1 == nil || v2 == nil
	}
	switch {
	case found.ferret:
		if err := s.inspectFerret(ctx); err != nil {
			return server{}, err
		}
	case hello.MaxWire < wireUpdatesByPipeline:
		return server{}, fmt.Errorf("mongodb: %w: the server is older than 4.2: upgrade it", backend.ErrInvalid)
	case s.config.StoreClock && found.isRouter:
		return server{}, fmt.Errorf("mongodb: %w: on a sharded cluster each router may tell its own time, so none can judge: leave the store clock out, or use a replica set", backend.ErrInvalid)
	case !found.isRouter && found.set == "":
		const text = "mongodb: a standalone mongod keeps leases: they are lost with its disk, and there is no failover; use a replica set for what matters"
		s.cautions = append(s.cautions, text)
		s.config.Log.Warn(text, "database", s.db.Name())
	}
	return found, nil
}

// inspectFerret refuses FerretDB, whose conditional update is a read and then a write. It accepts FerretDB
// behind a proxy that lets one command through at a time, which only its tests have.
func (s *Store) inspectFerret(ctx context.Context) error {
	if s.config.StoreClock {
		return fmt.Errorf("mongodb: %w: FerretDB has no $$NOW in updates, so its clock cannot judge: leave the store clock out", backend.ErrInvalid)
	}
	if err := s.db.RunCommand(ctx, bson.D{{Key: "leasekeeperSerializes", Value: 1}}).Err(); err != nil {
		return fmt.Errorf("mongodb: %w: this server is FerretDB, where two clients can both win the same conditional update: use MongoDB, or the PostgreSQL below FerretDB", backend.ErrInvalid)
	}
	return nil
}

// transactions reports whether the server has transactions of several documents.
func (v server) transactions() bool { return (v.set != "" || v.isRouter) && v.session && !v.ferret }

// streams reports whether the server has change streams.
func (v server) streams() bool { return (v.set != "" || v.isRouter) && !v.ferret }

// readConcern returns the read concern of all reads that need not be linearizable: they read what cannot be
// undone. A single server has nothing else to read.
func (v server) readConcern() *readconcern.ReadConcern {
	if v.set == "" && !v.isRouter {
		return readconcern.Local()
	}
	return readconcern.Majority()
}

// linearizable returns the read concern of reads for decisions.
func (v server) linearizable() *readconcern.ReadConcern {
	if v.set == "" && !v.isRouter {
		return readconcern.Local()
	}
	return readconcern.Linearizable()
}

// collectionInfo is one entry of the answer to listCollections.
type collectionInfo struct {
	Name    string `bson:"name"`
	Type    string `bson:"type"`
	Options struct {
		Capped    bool `bson:"capped"`
		Collation *struct {
			Locale string `bson:"locale"`
		} `bson:"collation"`
	} `bson:"options"`
}

// admit checks the collections that exist already, and refuses what would break leases, since MongoDB would
// accept it silently.
func (s *Store) admit(ctx context.Context) error {
	const what = "look at the collections"
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return err
	}
	defer done()
	names := bson.A{}
	for _, c := range s.all() {
		names = append(names, c.Name())
	}
	cursor, err := s.db.ListCollections(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}})
	if err != nil {
		return s.unread(what, err)
	}
	var all []collectionInfo
	if err := cursor.All(ctx, &all); err != nil {
		return s.unread(what, err)
	}
	for _, c := range all {
		if err := c.admit(); err != nil {
			return err
		}
		if err := s.admitIndexes(ctx, c.Name); err != nil {
			return err
		}
		if err := s.admitShards(ctx, c.Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) all() []*mongo.Collection {
	return []*mongo.Collection{s.records, s.observations, s.clocks, s.namespaces}
}

func (c collectionInfo) admit() error {
	why := ""
	switch {
	case c.Type != "" && c.Type != "collection":
		why = "is a " + c.Type
	case c.Options.Capped:
		why = "is capped, so old records vanish and tokens start again"
	case c.Options.Collation != nil && c.Options.Collation.Locale != "simple":
		why = "compares texts by the collation " + c.Options.Collation.Locale + ", so different names can be the same"
	default:
		return nil
	}
	return fmt.Errorf("mongodb: %w: the collection %s %s: choose another prefix, so that it is created as it has to be", backend.ErrInvalid, c.Name, why)
}

// index is one entry of the answer to listIndexes.
type index struct {
	Name    string `bson:"name"`
	Key     bson.D `bson:"key"`
	Expires any    `bson:"expireAfterSeconds"`
}

// admitIndexes checks that names are unique and that no index deletes records.
func (s *Store) admitIndexes(ctx context.Context, collection string) error {
	what := "look at the indexes of " + collection
	cursor, err := s.db.Collection(collection).Indexes().List(ctx)
	if err != nil {
		return s.unread(what, err)
	}
	var all []index
	if err := cursor.All(ctx, &all); err != nil {
		return s.unread(what, err)
	}
	unique := false
	for _, i := range all {
		if i.Expires != nil {
			return fmt.Errorf("mongodb: %w: the index %s deletes records of %s by age, so tokens start again: db.getCollection(%q).dropIndex(%q)",
				backend.ErrInvalid, i.Name, collection, collection, i.Name)
		}
		unique = unique || len(i.Key) == 1 && i.Key[0].Key == "_id"
	}
	if !unique {
		return fmt.Errorf("mongodb: %w: the collection %s has no unique index on _id, so two could hold one name: db.getCollection(%q).createIndex({_id: 1})",
			backend.ErrInvalid, collection, collection)
	}
	return nil
}

// admitShards refuses a collection that is sharded by anything but _id: each shard has a unique index of its
// own, so one name could have a record on each.
func (s *Store) admitShards(ctx context.Context, collection string) error {
	if !s.server.isRouter {
		return nil
	}
	what := "look at how " + collection + " is sharded (the user needs to read config.collections, as by the role clusterMonitor)"
	var sharded struct {
		Key     bson.D `bson:"key"`
		Dropped bool   `bson:"dropped"`
	}
	err := s.db.Client().Database("config").Collection("collections").
		FindOne(ctx, bson.D{{Key: "_id", Value: s.db.Name() + "." + collection}}).Decode(&sharded)
	switch {
	case err == mongo.ErrNoDocuments || err == nil && sharded.Dropped:
		return nil
	case err != nil:
		return s.unread(what, err)
	case len(sharded.Key) != 1 || sharded.Key[0].Key != "_id":
		return fmt.Errorf("mongodb: %w: the collection %s is sharded by %v, so two could hold one name: shard it by _id, or choose another prefix",
			backend.ErrInvalid, collection, sharded.Key)
	}
	return nil
}
