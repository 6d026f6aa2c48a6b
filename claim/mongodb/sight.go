package mongodb

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/driver"
)

// attempts is how often a small write is tried when others write the same document at the same time.
const attempts = 16

// sighting is when a domain has first seen the op of a name.
type sighting struct {
	ID        string   `bson:"_id"`
	Namespace string   `bson:"ns"`
	Name      string   `bson:"name"`
	Domain    string   `bson:"domain"`
	Op        string   `bson:"op"`
	At        *reading `bson:"at"`
}

// sightingKey is the _id of a sighting. A name has no line break.
func (s *Store) sightingKey(name string, d clock.Domain) string {
	return s.key(name) + "\n" + string(d)
}

// Sight implements [claim.Store].
func (s *Store) Sight(ctx context.Context, name string, d clock.Domain, op claim.Op, at clock.Instant) (clock.Instant, error) {
	id := s.sightingKey(name, d)
	what := "keep what was seen of " + name
	document := sighting{ID: id, Namespace: s.config.Namespace, Name: name, Domain: string(d), Op: op.String(), At: readingOf(at)}
	for range attempts {
		known, err := s.sighted(ctx, what, id)
		if err != nil {
			return clock.Instant{}, err
		}
		// What can not be read is written over: at worst one waits anew.
		if known.Op == document.Op && known.At != nil {
			return known.At.instant(), nil
		}
		command := bson.D{{Key: "insert", Value: s.sightings.Name()}, {Key: "documents", Value: bson.A{document}}}
		if known.ID != "" {
			from := bson.D{{Key: "_id", Value: id}, {Key: "op", Value: known.Op}}
			command = bson.D{{Key: "update", Value: s.sightings.Name()}, {Key: "updates", Value: bson.A{
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
	return clock.Instant{}, fmt.Errorf("mongodb: %w: %s: others did so each of %d times", driver.ErrUnavailable, what, attempts)
}

// sighted reads a sighting; one that there is not has no ID.
func (s *Store) sighted(ctx context.Context, what, id string) (sighting, error) {
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return sighting{}, err
	}
	defer done()
	var known sighting
	err = s.decisive(s.sightings).FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&known)
	if err != nil && err != mongo.ErrNoDocuments {
		return sighting{}, s.unread(what, err)
	}
	return known, nil
}

// acknowledged is the clock record of a domain.
type acknowledged struct {
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
		} // else another made it at the same time
	}
	return fmt.Errorf("mongodb: %w: %s: others did so each of %d times", driver.ErrUnavailable, what, attempts)
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
	var known acknowledged
	if err := bson.Unmarshal(raw, &known); err != nil || known.At == nil {
		return clock.Instant{}, false, fmt.Errorf("mongodb: %w: the clock record of %q in %s can not be read: delete it", driver.ErrCorrupt, d, s.clocks.Name())
	}
	return known.At.instant(), true, nil
}
