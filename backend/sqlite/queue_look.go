package sqlite

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	turns "github.com/leasekeeper/leasekeeper/internal/queue"
)

// glance is what a look has seen of one name so far.
type glance struct {
	head    int64
	first   bool  // this process is the head
	version int64 // of the file, when the record was read
	read    time.Time
	op      claim.Op
	free    bool
	since   time.Time // since when head and record are the same
}

// lookState is one call of Look.
type lookState struct {
	*processQueues
	asked   claim.Look
	seen    map[string]*glance
	version int64 // of the file, or always a new number if it is unknown
	known   bool  // version was read in this round
	pause   time.Duration
}

// Look implements [claim.Queues]. The head of a queue often checks whether the file was written, and reads the
// record if so. All others look at locks, which takes a microsecond. They read the record only to find out that
// the head leaves the name unclaimed.
func (q *processQueues) Look(ctx context.Context, asked claim.Look) ([]claim.Standing, error) {
	l := &lookState{processQueues: q, asked: asked, seen: make(map[string]*glance)}
	end := time.Now().Add(asked.For)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-q.store.Closed():
			return nil, q.store.ErrClosed()
		case <-timer.C:
		}
		began := time.Now()
		ends, err := l.round(ctx)
		if err != nil {
			return nil, err
		}
		if ends || !began.Before(end) {
			return l.standings(ctx)
		}
		timer.Reset(min(max(l.pause, min(share*time.Since(began), longestRest)), max(0, time.Until(end))))
	}
}

// round looks at all tickets once, and reports whether the look ends.
func (l *lookState) round(ctx context.Context) (ends bool, err error) {
	l.known, l.pause = false, passLook
	for name, own := range l.mine() { // order: each is looked at by itself
		known := slices.Contains(l.asked.Known, own.place)
		ended, err := l.lookAt(ctx, name, own)
		if err != nil {
			return false, err
		}
		ends = ends || ended && !known
	}
	return ends, nil
}

// changed reports whether the file was written since a record was read. It asks once a round.
func (l *lookState) changed(ctx context.Context, g *glance) (bool, error) {
	switch {
	case l.known:
	case l.conn == nil:
		l.version++
	default:
		err := l.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&l.version)
		if f := failureOf(err, false); f != nil && !f.Again {
			return false, l.store.listens(ctx, err)
		}
	}
	l.known = true
	return g.version != l.version || g.read.IsZero(), nil
}

// untilNext returns for how long a ticket need not be looked at. That is less for the head, since all wait for
// it. It is more for a ticket with many before it, unless these hold the name for less than a few milliseconds.
func (l *lookState) untilNext(head, place int64) time.Duration {
	poll := l.store.config.Poll
	if head == place {
		return poll / headShare
	}
	return min(poll+poll*time.Duration(min(place-head, farthest))/farShare, max(poll, passLook))
}

func (q *processQueues) mine() map[string]ownTicket {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.tickets)
}

// lookAt looks at one ticket, and reports whether that ends the look.
func (l *lookState) lookAt(ctx context.Context, name string, own ownTicket) (ends bool, err error) {
	r, err := l.rankOf(name, own)
	if err != nil || !r.there {
		return err == nil, err
	}
	g := l.seen[name]
	if g == nil {
		g = new(glance)
		l.seen[name] = g
	}
	l.pause = min(l.pause, l.untilNext(r.head, own.place))
	if r.first || time.Since(g.read) >= passLook {
		changed, err := l.changed(ctx, g)
		if err == nil && (changed || r.first && !g.first) {
			err = l.read(ctx, name, g)
		}
		if err != nil {
			return false, err
		}
	}
	if r.head != g.head {
		g.head, g.since = r.head, time.Now()
	}
	g.first = r.first
	return g.free && (r.first || time.Since(g.since) >= turns.PassAfter), nil
}

// read reads a record. If it cannot be read, no ticket's turn has come.
func (l *lookState) read(ctx context.Context, name string, g *glance) error {
	f, err := l.store.Store.Get(ctx, name)
	if err != nil && !errors.Is(err, backend.ErrCorrupt) {
		return err
	}
	free := err == nil && !f.Record.Held()
	if g.read = time.Now(); free != g.free || f.Record.Op != g.op {
		g.since = g.read
	}
	g.free, g.op, g.version = free, f.Record.Op, l.version
	return nil
}

// standings returns the standings of all tickets that still count.
func (l *lookState) standings(ctx context.Context) (all []claim.Standing, err error) {
	mine := l.mine()
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		s, there, err := l.standing(ctx, name, mine[name], l.seen[name])
		if err != nil {
			return nil, err
		}
		if there {
			all = append(all, s)
		}
	}
	return all, nil
}
