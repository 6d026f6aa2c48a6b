package mongodb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/leasekeeper/leasekeeper/backend"
)

// version is the version of the documents' form. A newer one is refused.
const version = 1

// The modes of a namespace: whose clock decides when leases end.
const (
	byWriter = "writer"
	byStore  = "store"
)

func (s *Store) mode() string {
	if s.config.StoreClock {
		return byStore
	}
	return byWriter
}

// namespace is the document of a namespace.
type namespace struct {
	ID      string    `bson:"_id"`
	Mode    string    `bson:"mode"`
	Version int64     `bson:"version"`
	Floor   int64     `bson:"floor"`
	Since   time.Time `bson:"since"` // for people to read
}

// ensureNamespace creates the namespace, or checks that it is one of this kind.
func (s *Store) ensureNamespace(ctx context.Context) error {
	_, err := s.floor(ctx)
	if !errors.Is(err, errNoNamespace) {
		return err
	}
	document := namespace{ID: s.config.Namespace, Mode: s.mode(), Version: version, Since: time.Now()}
	answer, err := s.write(ctx, "make the namespace "+s.config.Namespace, bson.D{
		{Key: "insert", Value: s.namespaces.Name()}, {Key: "documents", Value: bson.A{document}},
	})
	if errors.Is(err, backend.ErrUnknownOutcome) {
		return fmt.Errorf("mongodb: %w: the namespace may be missing, and the next opening makes it: %v", backend.ErrUnavailable, err)
	} else if err != nil {
		return err
	}
	if answer.N == 1 {
		return nil
	}
	_, err = s.floor(ctx) // another process has just created it
	return err
}

var errNoNamespace = fmt.Errorf("%w: there is no such namespace", backend.ErrCorrupt)

// floor reads the namespace's floor, linearizably.
func (s *Store) floor(ctx context.Context) (backend.Token, error) {
	what := "read the namespace " + s.config.Namespace
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return 0, err
	}
	defer done()
	raw, err := s.decisive(s.namespaces).FindOne(ctx, bson.D{{Key: "_id", Value: s.config.Namespace}}).Raw()
	if err == mongo.ErrNoDocuments {
		return 0, fmt.Errorf("mongodb: the document of the namespace %s is not in %s: was it deleted? %w", s.config.Namespace, s.namespaces.Name(), errNoNamespace)
	} else if err != nil {
		return 0, s.unread(what, err)
	}
	return s.floorOf(raw)
}

// floorOf reads the document of this namespace.
func (s *Store) floorOf(raw bson.Raw) (backend.Token, error) {
	var n namespace
	if err := bson.Unmarshal(raw, &n); err != nil || n.Floor < 0 {
		return 0, fmt.Errorf("mongodb: %w: the document of the namespace %s in %s cannot be read: %v", backend.ErrCorrupt, s.config.Namespace, s.namespaces.Name(), raw)
	}
	switch {
	case n.Version > version:
		return 0, fmt.Errorf("mongodb: %w: the namespace %s was made by a newer version of leasekeeper: upgrade this program", backend.ErrInvalid, s.config.Namespace)
	case n.Mode != s.mode():
		return 0, fmt.Errorf("mongodb: %w: in the namespace %s it is the %s's clock that decides, and that does not change: open it with that mode, or use another namespace", backend.ErrInvalid, s.config.Namespace, n.Mode)
	}
	return backend.Token(n.Floor), nil
}

// RaiseFloor implements [claim.Store].
func (s *Store) RaiseFloor(ctx context.Context, t backend.Token) (backend.Token, error) {
	if t > math.MaxInt64 {
		return 0, fmt.Errorf("mongodb: %w: the token %d is above %d", backend.ErrInvalid, t, int64(math.MaxInt64))
	}
	answer, err := s.write(ctx, "raise the floor", bson.D{
		{Key: "findAndModify", Value: s.namespaces.Name()},
		{Key: "query", Value: bson.D{{Key: "_id", Value: s.config.Namespace}}},
		{Key: "update", Value: bson.D{{Key: "$max", Value: bson.D{{Key: "floor", Value: int64(t)}}}}},
		{Key: "new", Value: true},
	})
	if err != nil {
		return 0, err
	}
	if len(answer.Value) == 0 {
		return 0, fmt.Errorf("mongodb: raise the floor of %s: %w", s.config.Namespace, errNoNamespace)
	}
	return s.floorOf(answer.Value)
}
