package ownership

import "github.com/leasekeeper/leasekeeper/lessor"

// endedClaims are the recently ended claims with the reasons. They explain the end to the claim's client, and refuse
// a claim that arrives after its own end. They are only in this member's memory. Every claim looks up its ID here, so
// the notes, which few ends have, are in a map of their own.
type endedClaims struct {
	why   map[lessor.ID]Why
	notes map[lessor.ID]string // only notes that are not empty
	order []lessor.ID          // a ring once it is full
	next  int                  // index of the oldest in the full ring
}

// maxRecentlyEnded is the number of remembered ends.
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

// find returns the reason for a claim's end, if it is remembered.
func (r *endedClaims) find(id lessor.ID) (why Why, note string, ok bool) {
	if why, ok = r.why[id]; ok {
		note = r.notes[id]
	}
	return why, note, ok
}
