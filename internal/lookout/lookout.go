package lookout

import (
	"context"
	"time"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/queue"
)

const (
	// headShare is how much more often the head of a queue asks than others do.
	headShare = 4
	// least keeps a look from asking without a pause.
	least = time.Millisecond
)

// glance is what a look has seen of one name so far.
type glance struct {
	place, head int64
	op          claim.Op
	free        bool
	since       time.Time // since when all of these are the same
}

// progress is the state of one call of Look.
type progress struct {
	claim.Look
	seen map[string]glance
}

// Look implements the method of [claim.Queues] with read, which returns the present standings of all tickets of the
// process. A value on wake makes it ask at once. It calls read on the caller's goroutine.
func Look(ctx context.Context, l claim.Look, wake <-chan struct{}, read func(ctx context.Context) ([]claim.Standing, error)) ([]claim.Standing, error) {
	if l.Every <= 0 {
		l.Every = claim.DefaultEvery
	}
	k := &progress{Look: l, seen: make(map[string]glance)}
	end := time.Now().Add(l.For)
	for {
		began := time.Now()
		all, err := read(ctx)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		ends, pause := k.take(all, now)
		if ends || !began.Before(end) {
			return all, nil
		}
		timer := time.NewTimer(max(least, min(pause, end.Sub(now))))
		select {
		case <-timer.C:
		case <-wake:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// take takes in what a read has shown at now, and sets [claim.Standing.For]. It reports whether that ends the look, and
// else how long to pause.
func (k *progress) take(all []claim.Standing, now time.Time) (ends bool, pause time.Duration) {
	pause = k.Every
	before := k.seen
	k.seen = make(map[string]glance, len(all))
	for i := range all {
		s := &all[i]
		g := glance{place: s.Place, head: s.Head, op: s.Found.Record.Op, free: s.Err == nil && !s.Found.Record.Held(), since: now}
		if old, ok := before[s.Name]; ok && old.place == g.place && old.head == g.head && old.op == g.op && old.free == g.free {
			g.since = old.since
		}
		k.seen[s.Name] = g
		patience := max(queue.PassAfter, s.Patience)
		switch {
		case s.Ahead == 0:
			pause = min(pause, k.Every/headShare)
			ends = ends || g.free && !k.knows(s.Place)
		case g.free:
			s.For = now.Sub(g.since)
			ends = ends || s.For >= patience
			pause = min(pause, patience-s.For)
		}
	}
	for name := range before { // order: any of them ends it
		if _, there := k.seen[name]; !there {
			ends = true // its ticket was deleted
		}
	}
	return ends, pause
}

// knows reports whether the caller knows that the turn of a ticket has come.
func (k *progress) knows(place int64) bool {
	for _, known := range k.Known {
		if known == place {
			return true
		}
	}
	return false
}
