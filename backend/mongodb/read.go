package mongodb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// decisive returns a collection for reads on which decisions depend.
func (s *Store) decisive(c *mongo.Collection) *mongo.Collection {
	return c.Clone(options.Collection().SetReadConcern(s.server.linearizable()))
}

// Get implements [claim.Store]. It reads the floor after the record, not at the same time. A collection that
// comes between raises the floor before it removes a record. So a read that sees a record from after the
// removal sees that floor too.
func (s *Store) Get(ctx context.Context, name string) (claim.Found, error) {
	var waiting bool
	var other sync.WaitGroup
	other.Go(func() { waiting = s.waiting(ctx, name) }) // meanwhile
	defer other.Wait()
	f, err := s.readRecord(ctx, name)
	if err != nil {
		return claim.Found{}, err
	}
	if f.Floor, err = s.floor(ctx); err != nil {
		return claim.Found{}, err
	}
	other.Wait()
	f.Waiting = waiting
	return f, nil
}

// readRecord reads one record.
func (s *Store) readRecord(ctx context.Context, name string) (claim.Found, error) {
	what := "read " + name
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return claim.Found{}, err
	}
	defer done()
	id := s.key(name)
	raw, err := s.one(ctx, id)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return claim.Found{Record: claim.Record{Name: name}}, nil
	case err != nil:
		return claim.Found{}, s.unread(what, err)
	}
	return s.found(id, raw)
}

// maxGather is how many records one statement reads. They fit into the first batch of a cursor, and only that
// is read linearizably.
const maxGather = 500

// errManyBatches says that the records do not fit into one batch.
var errManyBatches = errors.New("the records do not fit into one answer")

// GetAll implements [claim.Gatherer]. It reads the floor after the records, as Get does.
func (s *Store) GetAll(ctx context.Context, names []string) ([]claim.Found, error) {
	const what = "read many"
	whole := ctx
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return nil, err
	}
	defer done()
	all, places := make([]claim.Found, len(names)), make(map[string]int, len(names))
	for i, name := range names {
		all[i].Record.Name, places[s.key(name)] = name, i
	}
	for first := 0; first < len(names); first += maxGather {
		keys := make(bson.A, 0, maxGather)
		for _, name := range names[first:min(first+maxGather, len(names))] {
			keys = append(keys, s.key(name))
		}
		raws, err := s.gather(ctx, keys)
		if err != nil {
			return nil, s.unread(what, err)
		}
		for _, raw := range raws {
			id, _ := raw.Lookup("_id").StringValueOK() // it is a text: the filter compared it with texts
			i, asked := places[id]
			if !asked {
				continue
			}
			if all[i], err = s.found(id, raw); err != nil {
				all[i] = claim.Found{Record: claim.Record{Name: names[i]}, Err: err}
			}
		}
	}
	floor, err := s.floor(whole)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Floor = floor
	}
	return all, nil
}

// gather reads the documents with these _ids linearizably, in one answer. It asks for one more than there can
// be: a server that has filled the first batch does not know that this was all, and keeps the cursor open.
func (s *Store) gather(ctx context.Context, keys bson.A) ([]bson.Raw, error) {
	pipeline := bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: keys}}}}}}}
	if s.config.StoreClock {
		pipeline = append(pipeline, withLeft)
	}
	var answer struct {
		Cursor struct {
			ID    int64      `bson:"id"`
			First []bson.Raw `bson:"firstBatch"`
		} `bson:"cursor"`
	}
	err := s.db.RunCommand(ctx, bson.D{
		{Key: "aggregate", Value: s.records.Name()},
		{Key: "pipeline", Value: pipeline},
		{Key: "cursor", Value: bson.D{{Key: "batchSize", Value: int32(len(keys) + 1)}}},
		{Key: "readConcern", Value: bson.D{{Key: "level", Value: s.server.linearizable().Level}}},
	}).Decode(&answer)
	if err == nil && answer.Cursor.ID != 0 {
		err = errManyBatches
	}
	return answer.Cursor.First, err
}

// one reads the document with this _id linearizably. A linearizable read waits for a majority for ever unless
// the server gets a time limit, and the driver sends none for a cursor.
func (s *Store) one(ctx context.Context, id string) (bson.Raw, error) {
	filter := bson.D{{Key: "_id", Value: id}}
	if !s.config.StoreClock {
		return s.decisive(s.records).FindOne(ctx, filter).Raw()
	}
	var answer struct {
		Cursor struct {
			First []bson.Raw `bson:"firstBatch"`
		} `bson:"cursor"`
	}
	err := s.db.RunCommand(ctx, bson.D{
		{Key: "aggregate", Value: s.records.Name()},
		{Key: "pipeline", Value: bson.A{bson.D{{Key: "$match", Value: filter}}, withLeft}},
		{Key: "cursor", Value: bson.D{}},
		{Key: "readConcern", Value: bson.D{{Key: "level", Value: s.server.linearizable().Level}}},
	}).Decode(&answer)
	if err == nil && len(answer.Cursor.First) == 0 {
		err = mongo.ErrNoDocuments
	}
	if err != nil {
		return nil, err
	}
	return answer.Cursor.First[0], nil
}

// withLeft is the stage that computes the remaining time of a record by the clock of the primary.
var withLeft = bson.D{{Key: "$addFields", Value: bson.D{
	{Key: "left", Value: bson.D{{Key: "$subtract", Value: bson.A{"$ends", "$$NOW"}}}},
}}}

// find reads up to limit documents in the order of their _id, with the remaining time of each in store-clock
// mode.
func (s *Store) find(ctx context.Context, filter bson.D, limit int) ([]bson.Raw, error) {
	var cursor *mongo.Cursor
	var err error
	if s.config.StoreClock {
		cursor, err = s.records.Aggregate(ctx, bson.A{
			bson.D{{Key: "$match", Value: filter}},
			bson.D{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}},
			bson.D{{Key: "$limit", Value: int64(limit)}},
			withLeft,
		})
	} else {
		cursor, err = s.records.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit)))
	}
	if err != nil {
		return nil, err
	}
	var all []bson.Raw
	err = cursor.All(ctx, &all)
	return all, err
}

// List implements [claim.Store].
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]claim.Found, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("mongodb: %w: the limit is %d names: it must be at least 1", backend.ErrInvalid, limit)
	}
	if !utf8.ValidString(prefix) || !utf8.ValidString(after) {
		return nil, fmt.Errorf("mongodb: %w: list names that begin with %q, after %q: names are UTF-8", backend.ErrInvalid, prefix, after)
	}
	const what = "list names"
	whole := ctx
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return nil, err
	}
	defer done()
	keys := append(s.keysOf(prefix), bson.E{Key: "$gt", Value: s.key(after)})
	all, err := s.find(ctx, bson.D{{Key: "_id", Value: keys}}, limit)
	if err != nil {
		return nil, s.unread(what, err)
	}
	floor, err := s.floor(whole) // after the records, as in Get
	if err != nil {
		return nil, err
	}
	list := make([]claim.Found, 0, len(all))
	for _, raw := range all {
		id, _ := raw.Lookup("_id").StringValueOK() // it is a text: the filter compared it with texts
		f, err := s.found(id, raw)
		if err != nil {
			f = claim.Found{Record: claim.Record{Name: strings.TrimPrefix(id, s.key(""))}, Err: err}
		}
		f.Floor = floor
		list = append(list, f)
	}
	return list, nil
}

// keysOf returns the filter for an _id of data about names that begin with prefix.
func (s *Store) keysOf(prefix string) bson.D {
	keys := bson.D{{Key: "$gte", Value: s.key(prefix)}}
	if end := successor(s.key(prefix)); end != "" {
		keys = append(keys, bson.E{Key: "$lt", Value: end})
	}
	return keys
}

// successor returns the least text that sorts after all that begin with prefix, in UTF-8 and by bytes; empty if
// there is none.
func successor(prefix string) string {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case last == utf8.MaxRune:
			continue
		case last == 0xD7FF: // the numbers after it are no characters
			last = 0xDFFF
		}
		return prefix + string(last+1)
	}
	return ""
}
