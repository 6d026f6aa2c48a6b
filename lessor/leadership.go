package lessor

import (
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
)

// leaderships remembers when this member applied the first entry of each leadership. It keeps only the
// leaderships that a lease may still need: each lease needs the first leadership after the lease was last
// cleared.
type leaderships struct {
	table []Leadership // ascending by Start
	limit int          // prune once the table is longer than this
}

// minLeaderships is the length up to which the table is never pruned.
const minLeaderships = 16

// begin adds a leadership. Its position must be after all earlier ones.
func (r *leaderships) begin(at Position, now clock.Instant) {
	if n := len(r.table); n > 0 && at <= r.table[n-1].Start {
		panic(fmt.Sprintf("lessor: broken invariant: a leadership begins at %v, but the previous one began at %v", at, r.table[n-1].Start))
	}
	r.table = append(r.table, Leadership{Start: at, Applied: now})
}

// after returns the first leadership that began after p.
func (r *leaderships) after(p Position) (Leadership, bool) {
	i := r.indexAfter(p)
	if i == len(r.table) {
		return Leadership{}, false
	}
	return r.table[i], true
}

// indexAfter returns the index of the first leadership that began after p, or the length of the table.
func (r *leaderships) indexAfter(p Position) int {
	if n := len(r.table); n == 0 || r.table[n-1].Start <= p {
		return n // the usual case: cleared in the current leadership
	}
	i, _ := slices.BinarySearchFunc(r.table, p, func(leadership Leadership, p Position) int {
		if leadership.Start <= p {
			return -1
		}
		return 1
	})
	return i
}

// isTooLong reports whether the table is long enough to be pruned.
func (r *leaderships) isTooLong() bool { return len(r.table) > max(minLeaderships, r.limit) }

// prune drops the leaderships that no lease can need. It keeps the current one: a lease that was cleared
// before it may be checkpointed now, and never cleared again. prune visits all leases, so it runs again only
// when the table has doubled.
func (r *leaderships) prune(leases map[ID]*leaseState) {
	needed := make([]bool, len(r.table))
	needed[len(r.table)-1] = true
	for _, le := range leases { // order: a set is gathered
		if i := r.indexAfter(le.cleared); i < len(r.table) && !le.has(checkpointed) {
			needed[i] = true
		}
	}
	kept := r.table[:0]
	for i, leadership := range r.table {
		if needed[i] {
			kept = append(kept, leadership)
		}
	}
	r.table = slices.Clip(slices.Clone(kept))
	r.limit = 2 * len(r.table)
}
