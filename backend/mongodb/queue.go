package mongodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/lookout"
	turns "github.com/leasekeeper/leasekeeper/internal/queue"
)

// processQueues are the queues as one process sees them. Its tickets outlive it if it is killed. Others then pass them
// over.
type processQueues struct {
	store *Store
	door  string
	wake  chan struct{} // has room for one: something may have changed
	stop  context.CancelFunc
	done  sync.WaitGroup // the goroutine that listens

	mu     sync.Mutex
	places map[string]int64 // of the process's tickets
}

// Prioritizes implements [claim.PriorityQueuer].
func (s *Store) Prioritizes() bool { return !s.noTickets.Load() }

// Queues implements [claim.Queuer].
func (s *Store) Queues(ctx context.Context) (claim.Queues, error) {
	s.noTickets.Store(false) // the user may have the right by now
	if _, err := s.findTickets(ctx, "", firstPlace, lastPlace, options.Find().SetLimit(1)); err != nil {
		return nil, err
	}
	q := &processQueues{store: s, door: rand.Text(), wake: make(chan struct{}, 1), places: make(map[string]int64)}
	listening, stop := context.WithCancel(context.WithoutCancel(ctx))
	q.stop = stop
	if s.server.streams() {
		q.done.Go(func() { q.listen(listening) })
	}
	return q, nil
}

// relisten is how long the process waits before it listens again after a failure. It polls meanwhile.
const relisten = 5 * time.Second

// listen wakes looks when owners change, until ctx ends.
func (q *processQueues) listen(ctx context.Context) {
	for ctx.Err() == nil {
		_ = q.store.Listen(ctx, func(name string) {
			if _, mine := q.mine()[name]; mine || name == "" {
				q.wakeLook()
			}
		})
		timer := time.NewTimer(relisten)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-q.store.closed.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

func (q *processQueues) wakeLook() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Join implements [claim.Queues].
func (q *processQueues) Join(ctx context.Context, name string) (claim.Standing, error) {
	return q.JoinWith(ctx, name, claim.Ticket{})
}

// JoinWith implements [claim.PriorityQueues].
func (q *processQueues) JoinWith(ctx context.Context, name string, t claim.Ticket) (claim.Standing, error) {
	place, err := q.store.addTicket(ctx, name, q.door, t)
	if err != nil {
		return claim.Standing{}, err
	}
	q.mu.Lock()
	q.places[name] = place
	q.mu.Unlock()
	q.wakeLook()
	is, there, err := q.standing(ctx, name, place)
	if err == nil {
		err = q.readRecords(ctx, []*claim.Standing{&is})
	}
	if err == nil && !there {
		err = fmt.Errorf("mongodb: %w: the ticket for %s was deleted at once", backend.ErrUnavailable, name)
	}
	if err != nil {
		return claim.Standing{}, errors.Join(err, q.Leave(context.WithoutCancel(ctx), name, place, false))
	}
	return is, nil
}

// Leave implements [claim.Queues].
func (q *processQueues) Leave(ctx context.Context, name string, place int64, before bool) error {
	q.mu.Lock()
	if own, ok := q.places[name]; ok && own <= place {
		delete(q.places, name)
	}
	q.mu.Unlock()
	filters := []bson.D{{q.store.ticketRange(name, firstPlace, place), {Key: "door", Value: q.door}}}
	if before {
		filters = append(filters, bson.D{q.store.ticketRange(name, claim.FirstToLeave(place), place)})
	}
	return q.store.deleteTickets(ctx, "leave the queue of "+name, filters...)
}

// Pass implements [claim.Queues]. It cannot know which other processes have ended.
func (q *processQueues) Pass(ctx context.Context, name string, head int64) error {
	return q.store.deleteTickets(ctx, "advance the queue of "+name, bson.D{{Key: "_id", Value: q.store.ticketKey(name, head)}})
}

// Look implements [claim.Queues]. It asks again and again, and at once when a change stream shows a change.
func (q *processQueues) Look(ctx context.Context, l claim.Look) ([]claim.Standing, error) {
	return lookout.Look(ctx, l, q.wake, func(ctx context.Context) ([]claim.Standing, error) {
		if q.store.closed.Err() != nil {
			return nil, fmt.Errorf("mongodb: %w: wait", backend.ErrClosed)
		}
		return q.standings(ctx)
	})
}

// Close implements [claim.Queues].
func (q *processQueues) Close(ctx context.Context) {
	q.stop()
	var filters []bson.D
	for name := range q.mine() { // order: all are deleted
		filters = append(filters, bson.D{q.store.ticketRange(name, firstPlace, lastPlace), {Key: "door", Value: q.door}})
	}
	if len(filters) > 0 {
		_ = q.store.deleteTickets(ctx, "leave all queues", filters...) // otherwise others pass them over
	}
	q.done.Wait()
}

func (q *processQueues) mine() map[string]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.places)
}

// standings returns the standings of all tickets of the process that are left, in the order of their names.
func (q *processQueues) standings(ctx context.Context) ([]claim.Standing, error) {
	mine := q.mine()
	all := make([]claim.Standing, 0, len(mine))
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		is, there, err := q.standing(ctx, name, mine[name])
		if err != nil {
			return nil, err
		}
		if there {
			all = append(all, is)
		}
	}
	pointers := make([]*claim.Standing, len(all))
	for i := range all {
		pointers[i] = &all[i]
	}
	return all, q.readRecords(ctx, pointers)
}

// standing returns the standing of a ticket without the record, or false if the ticket is gone.
func (q *processQueues) standing(ctx context.Context, name string, place int64) (is claim.Standing, there bool, err error) {
	before, err := q.store.findTickets(ctx, name, firstPlace, place, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(mostTickets))
	if err != nil || len(before) == 0 {
		return is, false, err
	}
	if i := slices.IndexFunc(before, func(t ticket) bool { return t.Door == q.door }); i >= 0 && claim.IsPreferred(before[i].Place) {
		place, before = before[i].Place, before[:i+1] // it was moved
		q.mu.Lock()
		if old, ok := q.places[name]; ok && place < old {
			q.places[name] = place
		}
		q.mu.Unlock()
	}
	last := len(before) - 1
	if there = before[last].Place == place; !there && len(before) < mostTickets {
		return is, false, nil
	}
	is = claim.Standing{Name: name, Place: place, Head: before[0].Place, Ahead: len(before), Preferred: claim.IsPreferred(place)}
	if there {
		is.Ahead = last
	}
	is.Patience = turns.ReadPatience(before[0].Patience)
	return is, true, nil
}

// readRecords reads the records of standings.
func (q *processQueues) readRecords(ctx context.Context, all []*claim.Standing) error {
	if len(all) == 0 {
		return nil
	}
	names := make([]string, len(all))
	for i, is := range all {
		names[i] = is.Name
	}
	found, err := q.store.GetAll(ctx, names)
	if err != nil {
		return err
	}
	for i, is := range all {
		is.Found, is.Err = found[i], found[i].Err
		is.Found.Err, is.Found.Record.Name = nil, is.Name
	}
	return nil
}
