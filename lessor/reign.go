package lessor

import (
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
)

// reigns remembers when this member applied each leader's first entry, as far as a lease may still ask. A
// lease asks for the first one after it was last cleared.
type reigns struct {
	table []Reign // ascending by Start
	limit int     // prune when the table is longer
}

// minReigns is how long the table may grow before anyone looks for what can go.
const minReigns = 16

func (r *reigns) begin(at Position, now clock.Instant) {
	if n := len(r.table); n > 0 && at <= r.table[n-1].Start {
		panic(fmt.Sprintf("lessor: broken invariant: a reign begins at %v, the one before it began at %v", at, r.table[n-1].Start))
	}
	r.table = append(r.table, Reign{Start: at, Applied: now})
}

// after returns the first reign that began after p.
func (r *reigns) after(p Position) (Reign, bool) {
	i := r.indexAfter(p)
	if i == len(r.table) {
		return Reign{}, false
	}
	return r.table[i], true
}

func (r *reigns) indexAfter(p Position) int {
	if n := len(r.table); n == 0 || r.table[n-1].Start <= p {
		return n // the usual case: cleared in the current reign
	}
	i, _ := slices.BinarySearchFunc(r.table, p, func(reign Reign, p Position) int {
		if reign.Start <= p {
			return -1
		}
		return 1
	})
	return i
}

func (r *reigns) crowded() bool { return len(r.table) > max(minReigns, r.limit) }

// prune drops the reigns that no lease can ask for any more, but never the current one: leases cleared
// before it may be checkpointed now and cleared never again. It walks all leases, so it is not tried again
// until the table has doubled.
func (r *reigns) prune(leases map[ID]*lease) {
	asked := make([]bool, len(r.table))
	asked[len(r.table)-1] = true
	for _, le := range leases { // order: a set is gathered
		if i := r.indexAfter(le.cleared); i < len(r.table) && !le.has(checkpointed) {
			asked[i] = true
		}
	}
	kept := r.table[:0]
	for i, reign := range r.table {
		if asked[i] {
			kept = append(kept, reign)
		}
	}
	r.table = slices.Clip(slices.Clone(kept))
	r.limit = 2 * len(r.table)
}
