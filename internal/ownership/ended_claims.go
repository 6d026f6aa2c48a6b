package ownership

import "github.com/leasekeeper/leasekeeper/lessor"

// endedClaims are the claims that ended recently, and why. They explain the end to the claim's client, and turn away
// a claim that arrives after its own end. They are in this member's memory only. Notes, which most ends do not have,
// are in a map of their own, since every claim looks for its id here.
type endedClaims struct {
	why   map[lessor.ID]Why
	notes map[lessor.ID]string // not empty
	order []lessor.ID          // a ring once it is full
	next  int                  // the oldest in the full ring
}

// maxRecentlyEnded is how many ends are remembered.
const maxRecentlyEnded = 1 << 16

func (r *endedClaims) add(id lessor.ID, why Why, note string) {
	if r.why == nil {
		r.why, r.notes = make(map[lessor.ID]Why), make(map[lessor.ID]string)
	}
	if _, known := r.why[id]; !known {
		if len(r.order) < maxRecentlyEnded {
			r.order = append(r.order, id)
		} else {
			r.drop(r.order[r.next])
			r.order[r.next] = id
			r.next = (r.next + 1) % maxRecentlyEnded
		}
	}
	r.why[id] = why
	delete(r.notes, id)
	if note != "" {
		r.notes[id] = note
	}
}

func (r *endedClaims) drop(id lessor.ID) {
	delete(r.why, id)
	delete(r.notes, id)
}

// find returns why a claim ended, if that is remembered.
func (r *endedClaims) find(id lessor.ID) (why Why, note string, ok bool) {
	if why, ok = r.why[id]; ok {
		note = r.notes[id]
	}
	return why, note, ok
}
