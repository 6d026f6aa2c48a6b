package webconsole

import (
	"context"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// foreignInterval is the shortest time between two readings of locks of other programs.
	foreignInterval = 5 * time.Second
	// foreignLimit bounds one reading.
	foreignLimit = 10 * time.Second
	// mostForeign is how many locks of other programs the console shows.
	mostForeign = 500
)

// wantForeign is what a page wants that shows locks of other programs.
var wantForeign = want{topic: foreignTopic}

// foreignLocks are the locks of other programs as the store last reported them. It is immutable.
type foreignLocks struct {
	locks []backend.ForeignLock // in the order of kinds and names
	more  bool                  // the store has others
	at    clock.Instant         // of the reading
	err   error                 // why they cannot be read; the locks are then those of the last reading that succeeded
}

// left returns what is left of a lock now. It is negative if the lock does not end by time.
func (f *foreignLocks) left(l *backend.ForeignLock, now clock.Instant) time.Duration {
	if l.Remaining < 0 {
		return -1
	}
	return max(0, now.Remaining(f.at.Add(l.Remaining)))
}

// foreignKinds returns the kinds of locks of other programs that a store recognizes.
func foreignKinds(b backend.Backend) []string {
	lister, err := backend.Can[backend.ForeignLister](b)
	if err != nil {
		return nil
	}
	return lister.ForeignKinds()
}

// readForeign reads the locks of other programs if a page wants them and a reading is due. It forgets them if no page wants
// them, so that a later page shows no old ones. A failure concerns that page only.
func (r *reader) readForeign(ctx context.Context, next *knowledge, wants []want) {
	if !slices.Contains(wants, wantForeign) {
		next.foreign = nil
		return
	}
	if next.foreign != nil && r.clock().Remaining(r.foreignAt) > 0 {
		return
	}
	f := &foreignLocks{}
	if last := next.foreign; last != nil {
		*f = *last
	}
	next.foreign = f
	lister, err := backend.Can[backend.ForeignLister](r.store)
	if f.err = err; err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, foreignLimit)
	defer cancel()
	began := r.clock()
	locks, more, err := lister.ForeignLocks(ctx, mostForeign)
	now := r.clock()
	if f.err = err; err == nil {
		f.locks, f.more, f.at = locks, more, now
	}
	r.foreignAt = now.Add(max(foreignInterval, surveyShare*now.Elapsed(began)))
}
