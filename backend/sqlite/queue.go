package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	turns "github.com/leasekeeper/leasekeeper/internal/queue"
)

const (
	// ticketSuffix follows the path of the database in the path of the queue file.
	ticketSuffix = "-queue"
	// queueCount is how many queues there are. Names that share a queue also wait for each other's waiters.
	// That costs [turns.PassAfter] for each change of the holder, and happens to two names in a million.
	queueCount = 1 << 20
	// headShare is how much more often the head of a queue looks than others do, since all of them wait for it.
	headShare = 3
	// farShare is the number of earlier tickets for which a process waits one more poll interval between looks.
	farShare = 8
	// farthest is from which distance on a ticket is far. A ticket of another priority always is.
	farthest = 1 << 10
	// passLook is how often others check whether the head leaves the name unclaimed.
	passLook = turns.PassAfter / 2
	// behindAll is behind all places of a queue.
	behindAll = -math.MinInt16*claim.PlacesOfPriority + claim.PlacesOfPriority - 1
)

// ticketsOf opens the queue file when it is first needed. It creates the file only if a database is given.
type ticketsOf struct {
	mu     sync.Mutex
	open   *ticketFile
	closed bool
}

func (o *ticketsOf) get(path string, database fs.FileInfo) (*ticketFile, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || path == "" {
		return nil, fs.ErrNotExist
	}
	if o.open == nil {
		t, err := openTickets(path+ticketSuffix, database)
		if err != nil {
			return nil, err
		}
		o.open = t
	}
	return o.open, nil
}

// close releases all tickets. Calls under way fail.
func (o *ticketsOf) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed = true; o.open != nil {
		_ = o.open.close() // the file holds nothing on which a decision depends
		o.open = nil
	}
}

// queueOf returns the number of a name's queue.
func (s *Store) queueOf(name string) uint32 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, s.Config().Namespace, "\x00", name) // cannot fail
	return uint32(h.Sum64() % queueCount)
}

// waiting reports whether another process waits for a name. If that cannot be determined, it returns false.
func (s *Store) waiting(name string) bool {
	t, err := s.tickets.get(s.file.path, nil)
	if err != nil {
		return false
	}
	_, found, err := t.head(s.queueOf(name), behindAll)
	return found && err == nil
}

// Get implements [claim.Store].
func (s *Store) Get(ctx context.Context, name string) (claim.Found, error) {
	f, err := s.Store.Get(ctx, name)
	if err == nil {
		f.Waiting = s.waiting(name)
	}
	return f, err
}

// Swap implements [claim.Store].
func (s *Store) Swap(ctx context.Context, w claim.Swap) (bool, error) {
	if w.Alone && s.waiting(w.Record.Name) {
		return false, nil
	}
	return s.Store.Swap(ctx, w)
}

// processQueues are the queues of the file, as one process sees them.
type processQueues struct {
	store *Store
	file  *ticketFile
	conn  *sql.Conn // checks whether anything was written; nil if the database has a single connection

	mu      sync.Mutex
	tickets map[string]ownTicket
}

// ownTicket is a ticket of this process.
type ownTicket struct {
	place  int64
	holder uint32 // a hash of its holder; 0 if the ticket has none, so that nobody can prefer it
}

// Queues implements [claim.Queuer].
func (s *Store) Queues(ctx context.Context) (claim.Queues, error) {
	file, err := s.tickets.get(s.file.path, s.file.info)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w: no queue of processes: %w", backend.ErrUnsupported, err)
	}
	q := &processQueues{store: s, file: file, tickets: make(map[string]ownTicket)}
	if s.file.db.Stats().MaxOpenConnections != 1 {
		if q.conn, err = s.file.db.Conn(ctx); err != nil {
			return nil, s.listens(ctx, err)
		}
	}
	return q, nil
}

// trouble returns the error of a queue file that cannot be used. Waiters poll then.
func (q *processQueues) trouble(err error) error {
	return fmt.Errorf("sqlite: the queue beside %s: %w: %w", q.store.file.path, backend.ErrUnavailable, err)
}

// Prioritizes implements [claim.PriorityQueuer]. It cannot where there are no queues.
func (s *Store) Prioritizes() bool {
	_, err := s.tickets.get(s.file.path, s.file.info)
	return err == nil
}

// Join implements [claim.Queues].
func (q *processQueues) Join(ctx context.Context, name string) (claim.Standing, error) {
	return q.JoinWith(ctx, name, claim.Ticket{})
}

// JoinWith implements [claim.PriorityQueues].
func (q *processQueues) JoinWith(ctx context.Context, name string, t claim.Ticket) (claim.Standing, error) {
	number, own := q.store.queueOf(name), ownTicket{}
	var err error
	if t.Holder != "" {
		own.holder = holderOf(t.Holder)
		err = errors.Join(q.file.passHolder(number, own.holder), q.file.showHolder(number, own.holder)) // what was preferred is an earlier ticket
	}
	if err == nil {
		own.place, err = q.file.join(number, t.Priority)
	}
	if err != nil {
		return claim.Standing{}, errors.Join(q.trouble(err), q.file.hideHolder(number, own.holder))
	}
	q.mu.Lock()
	q.tickets[name] = own
	q.mu.Unlock()
	s, _, err := q.standing(ctx, name, own, nil)
	if err != nil {
		return s, errors.Join(err, q.Leave(ctx, name, own.place, false))
	}
	return s, nil
}

// Leave implements [claim.Queues].
func (q *processQueues) Leave(_ context.Context, name string, place int64, before bool) error {
	number := q.store.queueOf(name)
	q.mu.Lock()
	defer q.mu.Unlock()
	own, ok := q.tickets[name]
	mine := ok && own.place <= place
	preferred, err := q.file.preferred(number)
	if before && !(mine && slices.Contains(preferred, own.holder)) { // its turn has come by its place
		err = errors.Join(err, q.file.pass(number, place))
	}
	if mine {
		delete(q.tickets, name)
		err = errors.Join(err, q.file.leaveFor(number, own))
	}
	if err != nil {
		return q.trouble(err)
	}
	return nil
}

// Pass implements [claim.Queues]. Tickets of processes that have ended are gone already.
func (q *processQueues) Pass(_ context.Context, name string, head int64) error {
	number := q.store.queueOf(name)
	var err error
	if claim.IsPreferred(head) {
		err = q.file.passHolder(number, uint32(claim.FrontPlace-head))
	} else {
		err = q.file.pass(number, head)
	}
	if err != nil {
		return q.trouble(err)
	}
	return nil
}

// Close implements [claim.Queues].
func (q *processQueues) Close(context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, own := range q.tickets { // order: all are deleted
		_ = q.file.leaveFor(q.store.queueOf(name), own) // otherwise the end of the process deletes it
	}
	clear(q.tickets)
	if q.conn != nil {
		_ = q.conn.Close() // returns it to the pool
	}
}

// rank is where a ticket is in its queue.
type rank struct {
	head      int64 // the place of the first ticket
	first     bool  // it is this one
	preferred bool
	there     bool // it still counts
}

// rankOf returns where a ticket is in its queue.
func (q *processQueues) rankOf(name string, own ownTicket) (rank, error) {
	number := q.store.queueOf(name)
	there, err := q.file.counts(number, own.place)
	if err != nil {
		return rank{}, q.trouble(err)
	}
	if !there {
		return rank{}, nil
	}
	r := rank{head: own.place, first: true, there: true}
	all, err := q.file.preferred(number)
	if err != nil {
		return rank{}, q.trouble(err)
	}
	for _, holder := range all {
		if r.preferred = holder == own.holder; r.preferred {
			return r, nil
		}
		switch waits, err := q.file.awaits(number, holder); {
		case err != nil:
			return rank{}, q.trouble(err)
		case !waits: // its process has ended
			err = q.file.passHolder(number, holder)
			if err != nil {
				return rank{}, q.trouble(err)
			}
		case r.first:
			r.first, r.head = false, preferredPlace(holder)
		}
	}
	if !r.first {
		return r, nil
	}
	head, found, err := q.file.head(number, own.place)
	if err != nil {
		return rank{}, q.trouble(err)
	}
	if found {
		r.first, r.head = false, head
	}
	return r, nil
}

// standing returns the standing of a ticket, where Ahead is 0 or 1. It returns false if the ticket no longer counts.
func (q *processQueues) standing(ctx context.Context, name string, own ownTicket, seen *glance) (claim.Standing, bool, error) {
	is := claim.Standing{Name: name, Place: own.place}
	r, err := q.rankOf(name, own)
	if err != nil || !r.there {
		return is, false, err
	}
	is.Head, is.Preferred = r.head, r.preferred
	if !r.first {
		is.Ahead = 1
	}
	is.Found, err = q.store.Get(ctx, name)
	is.Found.Record.Name = name // also if the name has no record
	if errors.Is(err, backend.ErrCorrupt) {
		is.Err, err = err, nil
	}
	if seen != nil && seen.free && seen.head == r.head && seen.op == is.Found.Record.Op {
		is.For = time.Since(seen.since)
	}
	return is, true, err
}

// Prefer implements [claim.Preferrer].
func (s *Store) Prefer(_ context.Context, name, holder string) (bool, error) {
	file, err := s.tickets.get(s.file.path, s.file.info)
	if err != nil {
		return false, fmt.Errorf("sqlite: %w: no queue of processes: %w", backend.ErrUnsupported, err)
	}
	if holder == "" {
		return false, nil
	}
	found, err := file.prefer(s.queueOf(name), holderOf(holder))
	if err != nil {
		return false, (&processQueues{store: s}).trouble(err)
	}
	return found, nil
}
