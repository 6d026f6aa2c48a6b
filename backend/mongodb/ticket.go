package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// ticket is the document of a ticket. No decision depends on it.
type ticket struct {
	ID        string `bson:"_id"` // the name's key, a line break and the place, so that the order of _id is that of the queue
	Namespace string `bson:"ns"`
	Name      string `bson:"name"`
	Place     int64  `bson:"place"`
	Door      string `bson:"door"`     // identifies the process that waits
	Holder    string `bson:"holder"`   // for which it waits
	Patience  int64  `bson:"patience"` // how long the process may take to claim a free name at its turn, in milliseconds
}

// mostTickets is how many tickets of a name one look reads. Those behind them do not see whether theirs are left.
const mostTickets = 256

// ticketKey returns the _id of a ticket. A name has no line break. As text, places have the order of numbers.
func (s *Store) ticketKey(name string, place int64) string {
	return fmt.Sprintf("%s\n%016x", s.key(name), uint64(place)^1<<63)
}

// ticketRange selects the tickets of a name from one place to another.
func (s *Store) ticketRange(name string, from, to int64) bson.E {
	return bson.E{Key: "_id", Value: bson.D{{Key: "$gte", Value: s.ticketKey(name, from)}, {Key: "$lte", Value: s.ticketKey(name, to)}}}
}

// The first and the last place of a queue.
const (
	firstPlace = -1 << 63
	lastPlace  = 1<<63 - 1
)

// findTickets reads tickets of a name. It returns [backend.ErrUnsupported] if the user may not read them.
func (s *Store) findTickets(ctx context.Context, name string, from, to int64, o *options.FindOptionsBuilder) ([]ticket, error) {
	what := "read the queue of " + name
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return nil, err
	}
	defer done()
	cursor, err := s.tickets.Find(ctx, bson.D{s.ticketRange(name, from, to)}, o)
	if err != nil {
		return nil, s.queueError(s.unread(what, err), err)
	}
	var all []ticket
	if err := cursor.All(ctx, &all); err != nil {
		return nil, s.queueError(s.unread(what, err), err)
	}
	return all, nil
}

// notAllowed is the code of an error for a missing privilege.
const notAllowed = 13

// queueError returns the error of a command about tickets. If the user may not use their collection, there are no queues.
func (s *Store) queueError(err, cause error) error {
	var command mongo.CommandError
	if errors.As(cause, &command) && command.Code == notAllowed {
		s.noTickets.Store(true)
		return fmt.Errorf("mongodb: %w: no queue of processes: the user may not use the collection %s: %w", backend.ErrUnsupported, s.tickets.Name(), cause)
	}
	return err
}

// waiting reports whether a process waits for a name. If that cannot be determined, it returns false.
func (s *Store) waiting(ctx context.Context, name string) bool {
	if s.noTickets.Load() {
		return false
	}
	all, err := s.findTickets(ctx, name, firstPlace, lastPlace, options.Find().SetLimit(1).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	return err == nil && len(all) > 0
}

// addTicket adds a ticket behind all of its priority.
func (s *Store) addTicket(ctx context.Context, name, door string, t claim.Ticket) (place int64, err error) {
	what := "wait for " + name
	first := claim.FirstPlace(t.Priority)
	for range attempts {
		behind, err := s.findTickets(ctx, name, first+1, first+claim.PlacesOfPriority-1, options.Find().SetLimit(1).SetSort(bson.D{{Key: "_id", Value: -1}}))
		if err != nil {
			return 0, err
		}
		// The time only makes it unlikely that a place is used twice. The order follows from the places before.
		place = first + max(1, time.Now().UnixMilli())
		if len(behind) > 0 {
			place = max(place, behind[0].Place+1)
		}
		if place >= first+claim.PlacesOfPriority {
			return 0, fmt.Errorf("mongodb: %w: %s: the places of the priority %d are used up until no process waits", backend.ErrUnavailable, what, t.Priority)
		}
		added, err := s.advise(ctx, what, bson.D{{Key: "insert", Value: s.tickets.Name()}, {Key: "documents", Value: bson.A{ticket{
			ID: s.ticketKey(name, place), Namespace: s.config.Namespace, Name: name, Place: place, Door: door, Holder: t.Holder, Patience: t.Patience().Milliseconds(),
		}}}})
		if err != nil {
			return 0, err
		}
		if added == 1 {
			return place, nil
		} // otherwise another process has taken the place
	}
	return 0, fmt.Errorf("mongodb: %w: %s: another process was faster each of %d times", backend.ErrUnavailable, what, attempts)
}

// Prefer implements [claim.Preferrer]. It adds the ticket once more in front of all others, and then deletes it at its
// old place. The process that waits takes the first of its tickets for its own.
func (s *Store) Prefer(ctx context.Context, name, holder string) (bool, error) {
	what := "advance the queue of " + name
	for range attempts {
		all, err := s.findTickets(ctx, name, firstPlace, lastPlace, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(all, func(t ticket) bool { return t.Holder == holder && holder != "" })
		if i < 0 {
			return false, nil
		}
		moved := all[i]
		moved.Place = min(all[0].Place, claim.FrontPlace) - 1
		moved.ID = s.ticketKey(name, moved.Place)
		added, err := s.advise(ctx, what, bson.D{{Key: "insert", Value: s.tickets.Name()}, {Key: "documents", Value: bson.A{moved}}})
		if err != nil {
			return false, err
		}
		if added == 1 {
			return true, s.deleteTickets(ctx, what, bson.D{{Key: "_id", Value: all[i].ID}})
		} // otherwise another client moves a ticket at the same time
	}
	return false, fmt.Errorf("mongodb: %w: %s: another client was faster each of %d times", backend.ErrUnavailable, what, attempts)
}

// deleteTickets deletes all tickets that any of the filters selects.
func (s *Store) deleteTickets(ctx context.Context, what string, filters ...bson.D) error {
	deletes := make(bson.A, len(filters))
	for i, q := range filters {
		deletes[i] = bson.D{{Key: "q", Value: q}, {Key: "limit", Value: 0}}
	}
	_, err := s.advise(ctx, what, bson.D{{Key: "delete", Value: s.tickets.Name()}, {Key: "deletes", Value: deletes}})
	return err
}

// advise runs a command that writes tickets, and returns how many it has changed. The write need not survive anything.
func (s *Store) advise(ctx context.Context, what string, command bson.D) (n int, err error) {
	ctx, done, err := s.begin(ctx, what)
	if err != nil {
		return 0, err
	}
	defer done()
	raw, err := s.db.RunCommand(ctx, append(command, bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}})).Raw()
	if refused := (mongo.WriteException{}); errors.As(err, &refused) {
		raw, err = refused.Raw, nil
	}
	if err != nil {
		return 0, s.queueError(fmt.Errorf("mongodb: %w: %s: %w", s.kind(backend.ErrUnavailable), what, err), err)
	}
	var a answer
	if err := bson.Unmarshal(raw, &a); err != nil {
		return 0, fmt.Errorf("mongodb: %w: %s: the answer cannot be read: %w", s.kind(backend.ErrUnavailable), what, err)
	}
	for _, e := range a.Errors {
		if e.Code != duplicateKey {
			return 0, fmt.Errorf("mongodb: %w: %s: %s", s.kind(backend.ErrUnavailable), what, e.Message)
		}
	}
	return a.N, nil
}
