package mongodb

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// attempts is how often a small write is tried while others write the same document.
const attempts = 16

// observation is when a domain first saw the op of a name.
type observation struct {
	ID        string   `bson:"_id"`
	Namespace string   `bson:"ns"`
	Name      string   `bson:"name"`
	Domain    string   `bson:"domain"`
	Op        string   `bson:"op"`
	At        *reading `bson:"at"`
}

// observationKey returns the _id of an observation. A name has no line break.
func (s *Store) observationKey(name string, d clock.Domain) string {
	return s.key(name) + "\n" + string(d)
}

// Observe implements [claim.Store].
func (s *Store) Observe(ctx context.Context, name string, d clock.Domain, op claim.Op, at clock.Instant) (clock.Instant, error) {
	id := s.observationKey(name, d)
	what := "keep what was seen of " + name
	document := observation{ID: id, Namespace: s.config.Namespace, Name: name, Domain: string(d), Op: op.String(), At: readingOf(at)}
	for range attempts {
		known, err := s.observed(ctx, what, id)
		if err != nil {
			return clock.Instant{}, err
		}
		// An unreadable document is overwritten: at worst a waiter restarts its count.
		if known.Op == document.Op && known.At != nil {
			return known.At.instant(), nil
		}
		command := bson.D{{Key: "insert", Value: s.observations.Name()}, {Key: "documents", Value: bson.A{document}}}
		if known.ID != "" {
			from := bson.D{{Key: "_id", Value: id}, {Key: "op", Value: known.Op}}
			command = bson.D{{Key: "update", Value: s.observations.Name()}, {Key: "updates", Value: bson.A{
				bson.D{{Key: "q", Value: from}, {Key: "u", Value: document}},
			}}}
		}
		answer, err := s.write(ctx, what, command)
		if err != nil {
			return clock.Instant{}, err
		}
		if answer.N == 1 {
			return at, nil
		}
	}
	return clock.Instant{}, fmt.Errorf("mongodb: %w: %s: another client was faster each of %d times", backend.ErrUnavailable, what, attempts)
}

// observed reads an observation. If there is none, it has no ID.
func (s *Store) observed(ctx context.Context, what, id string) (observation, error) {
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return observation{}, err
	}
	defer done()
	var known observation
	err = s.decisive(s.observations).FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&known)
	if err != nil && err != mongo.ErrNoDocuments {
		return observation{}, s.unread(what, err)
	}
	return known, nil
}

// sweepAtOnce is how many observations one statement reads, and one deletes.
const sweepAtOnce = 500

// Sweep implements [claim.Store].
func (s *Store) Sweep(ctx context.Context, prefix, after, through string) error {
	const what = "forget what was observed and replaced"
	keys := s.keysOf(prefix)
	if through != "" { // its observations sort before this key
		keys = append(keys, bson.E{Key: "$lte", Value: successor(s.observationKey(through, ""))})
	}
	last := ""
	if after != "" {
		last = successor(s.observationKey(after, ""))
	}
	for {
		all, err := s.observedAfter(ctx, what, keys, last)
		if err != nil {
			return err
		}
		replaced, err := s.replaced(ctx, what, all)
		if err != nil {
			return err
		}
		if len(replaced) > 0 {
			if _, err := s.write(ctx, what, s.deletion(s.observations, 0, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: replaced}}}})); err != nil {
				return err
			}
		}
		if len(all) < sweepAtOnce {
			return nil
		}
		last = all[len(all)-1].ID
	}
}

// observedAfter reads a page of observations, in order of their _id.
func (s *Store) observedAfter(ctx context.Context, what string, keys bson.D, last string) ([]observation, error) {
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return nil, err
	}
	defer done()
	keys = append(slices.Clone(keys), bson.E{Key: "$gt", Value: last})
	cursor, err := s.observations.Find(ctx, bson.D{{Key: "_id", Value: keys}},
		options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(sweepAtOnce).SetProjection(bson.D{{Key: "name", Value: 1}, {Key: "op", Value: 1}}))
	if err != nil {
		return nil, s.unread(what, err)
	}
	var all []observation
	if err := cursor.All(ctx, &all); err != nil {
		return nil, s.unread(what, err)
	}
	return all, nil
}

// replaced returns the _ids of observations whose op is not that of their record.
func (s *Store) replaced(ctx context.Context, what string, all []observation) (bson.A, error) {
	ids := make(bson.A, 0, len(all))
	for i := range all {
		if i == 0 || all[i].Name != all[i-1].Name {
			ids = append(ids, s.key(all[i].Name))
		}
	}
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return nil, err
	}
	defer done()
	ops, err := s.ops(ctx, ids)
	if err != nil {
		return nil, s.unread(what, err)
	}
	var replaced bson.A
	for i := range all {
		if ops[s.key(all[i].Name)].Op != all[i].Op {
			replaced = append(replaced, all[i].ID)
		}
	}
	return replaced, nil
}

// clockRecord is the clock record of a domain.
type clockRecord struct {
	At *reading `bson:"at"`
}

// Acknowledge implements [claim.Clocks].
func (s *Store) Acknowledge(ctx context.Context, d clock.Domain, at clock.Instant) error {
	update := bson.D{
		{Key: "$max", Value: bson.D{{Key: "at.raw", Value: at.Raw}, {Key: "at.boot", Value: at.Boot}}},
		{Key: "$setOnInsert", Value: bson.D{{Key: "ns", Value: s.config.Namespace}, {Key: "domain", Value: string(d)}}},
	}
	statement := bson.D{{Key: "q", Value: bson.D{{Key: "_id", Value: s.key(string(d))}}}, {Key: "u", Value: update}, {Key: "upsert", Value: true}}
	what := "acknowledge the clock of " + string(d)
	for range attempts {
		answer, err := s.write(ctx, what, bson.D{{Key: "update", Value: s.clocks.Name()}, {Key: "updates", Value: bson.A{statement}}})
		if err != nil || answer.N == 1 {
			return err
		} // otherwise another process created it at the same time
	}
	return fmt.Errorf("mongodb: %w: %s: another client was faster each of %d times", backend.ErrUnavailable, what, attempts)
}

// Acknowledged implements [claim.Clocks].
func (s *Store) Acknowledged(ctx context.Context, d clock.Domain) (clock.Instant, bool, error) {
	what := "read the clock of " + string(d)
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return clock.Instant{}, false, err
	}
	defer done()
	raw, err := s.decisive(s.clocks).FindOne(ctx, bson.D{{Key: "_id", Value: s.key(string(d))}}).Raw()
	if err == mongo.ErrNoDocuments {
		return clock.Instant{}, false, nil
	} else if err != nil {
		return clock.Instant{}, false, s.unread(what, err)
	}
	var known clockRecord
	if err := bson.Unmarshal(raw, &known); err != nil || known.At == nil {
		return clock.Instant{}, false, fmt.Errorf("mongodb: %w: the clock record of %q in %s cannot be read: delete it", backend.ErrCorrupt, d, s.clocks.Name())
	}
	return known.At.instant(), true, nil
}
