package lessor

import (
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
)

// leaderships remembers when this member applied each leader's first entry, as far as a lease may still ask. A
// lease asks for the first one after it was last cleared.
type leaderships struct {
	table []Leadership // ascending by Start
	limit int          // prune when the table is longer
}

// minLeaderships is how long the table may grow before anyone looks for what can go.
const minLeaderships = 16

func (r *leaderships) begin(at Position, now clock.Instant) {
	if n := len(r.table); n > 0 && at <= r.table[n-1].Start {
		panic(fmt.Sprintf("lessor: broken invariant: a leadership begins at %v, the one before it began at %v", at, r.table[n-1].Start))
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

func (r *leaderships) isTooLong() bool { return len(r.table) > max(minLeaderships, r.limit) }

// prune drops the leaderships that no lease can ask for any more, but never the current one: leases cleared
// before it may be checkpointed now and cleared never again. It walks all leases, so it is not tried again
// until the table has doubled.
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
